"""What tests of the page ask of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.browser import Browser

TEXT = "document.querySelector('.pane .nmt-target')?.textContent"
MESSAGE = "document.querySelector('#message').textContent"
HIDDEN = "document.querySelector('.pane .next').hidden"

CHANGED = "text.value = 'He sleeps.'; text.dispatchEvent(new Event('input'))"
UNREACHABLE = "const f = fetch; window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))"

Serving = Callable[..., AbstractContextManager[str]]


def write(page: Browser, text: str) -> None:
    """Type a text, and wait for its translation."""
    page.run("document.querySelector('#text').focus()")
    page.type(text)
    page.wait("document.querySelectorAll('.pane .nmt-word').length > 4 && !document.querySelector('.waiting')")
