"""Recurrent attention translators: train them, translate with them, study their attention.

from nmt import Translator
Translator.load("outputs/latest").translate("A man rides a horse.")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.errors import UserError
    from nmt.translator import SentencePair, Translation, Translator

__all__ = ["SentencePair", "Translation", "Translator", "UserError", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Deferred, so that `import nmt` and the command line's error messages do not wait for torch.
    if name in __all__:
        from nmt import errors, translator

        return getattr(errors if name == "UserError" else translator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
