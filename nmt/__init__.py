"""Recurrent attention translators: train them, translate with them, study their attention.

from nmt import Translator
Translator.load("outputs/latest").translate(["A man rides a horse."])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.translator import Translator

__all__ = ["Translator", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Deferred, so that `import nmt` and the command line's error messages do not wait for torch.
    if name == "Translator":
        from nmt.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
