"""The message of a user's mistake."""

from collections.abc import Callable
from typing import Any

import pytest

from nmt.errors import UserError


def error_message(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Return the message, one line, of the UserError that a call raises."""
    with pytest.raises(UserError) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
