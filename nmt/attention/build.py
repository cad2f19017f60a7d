"""Build an attention from the names of its parts."""

from torch import nn

from nmt.attention.attention import Attention, MultiHead
from nmt.attention.coverage import COVERAGES, CoverageAttention
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import BASES, SCORES, Additive
from nmt.attention.settings import AttentionSettings
from nmt.attention.windows import WINDOWS
from nmt.errors import UserError, unknown

PROJECTIONS = ("identity", "learned")


def build_attention(score: str, normalizer: str, window: str, settings: AttentionSettings) -> Attention | MultiHead:
    """Compose an attention from the names of its parts.

    Raises:
        UserError: as `check_attention`, or the sizes do not fit the score.
    """
    check_attention(score, normalizer, window, settings)
    head_settings = settings.per_head()

    def build_head() -> Attention:
        parts = NORMALIZERS[normalizer](head_settings), WINDOWS[window](head_settings)
        if settings.coverage == "none":
            return Attention(SCORES[score](head_settings), *parts)
        return CoverageAttention(Additive(head_settings), *parts, head_settings)

    heads = [build_head() for _ in range(settings.num_heads)]
    if settings.projection == "identity":
        return heads[0] if len(heads) == 1 else MultiHead(heads, *(nn.Identity() for _ in range(4)))
    query, state, size = settings.query_size, settings.state_size, settings.size
    shapes = ((query, size), (state, size), (state, state), (state, state))
    return MultiHead(heads, *(nn.Linear(*shape, bias=False) for shape in shapes))


def check_attention(score: str, normalizer: str, window: str, settings: AttentionSettings) -> None:
    """Check names and settings before anything is built.

    Raises:
        UserError: a name is not in its registry (the nearest choice is suggested); the number of heads does not divide
            a size; or coverage is combined with a score that is not additive, several heads, or projections.
    """
    names = (
        ("score", score, SCORES),
        ("normalizer", normalizer, NORMALIZERS),
        ("window", window, WINDOWS),
        ("basis", settings.basis, BASES),
        ("projection", settings.projection, PROJECTIONS),
        ("coverage", settings.coverage, COVERAGES),
    )
    for part, name, registry in names:
        if name not in registry:
            raise unknown(f"model.attention.{part}", name, registry)
    settings.per_head()
    if settings.coverage == "none":
        return
    option = f"model.attention.coverage={settings.coverage}"
    if SCORES[score] is not Additive:
        raise UserError(f"{option} is an input of additive and concat scores: set model.attention.score=additive")
    if settings.num_heads > 1 or settings.projection != "identity":
        raise UserError(f"{option} needs one head without projections: set num_heads=1 and projection=identity")
