"""Scores: how well a query matches each key. A new one is a class here and a line in `SCORES`."""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.bases import BASES
from nmt.attention.settings import Settings, at_least_fp32
from nmt.attention.shapes import Keys, Mask, Query, Scores, States
from nmt.errors import UserError


class Score(nn.Module, ABC):
    """A compatibility function between queries and keys. It neither masks nor normalizes."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()

    @abstractmethod
    def project(self, states: States, source_mask: Mask) -> Keys:
        """Make the keys of a sentence, once, whatever the number of queries that follow.

        The mask is for keys that depend on the sentence's length; what padding gets for a key does not matter.
        """

    @abstractmethod
    def forward(self, query: Query, keys: Keys) -> Scores:
        """Score every query against every key."""


@final
class Additive(Score):
    """v . tanh(Wq q + Wk k + b)  (Bahdanau et al., 2015).

    Luong's `concat`, v . tanh(W [q; k]), is the same function with Wq and Wk stacked into W.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.query = nn.Linear(settings.query_size, settings.size, bias=False)
        self.key = nn.Linear(settings.state_size, settings.size)
        self.energy = nn.Linear(settings.size, 1, bias=False)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.key(states)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.compare(query, keys[:, None])

    def compare(self, query: Query, keys: Float[Tensor, "batch #target source key"]) -> Scores:
        """As `forward`, with keys that may be other ones for each query."""
        hidden = (self.query(query)[:, :, None] + keys).tanh()  # [batch, target, source, size]
        scores: Tensor = hidden @ self.energy.weight[0]
        return scores


@final
class Dot(Score):
    """q . k  (Luong et al., 2015). The states are the keys, so the sizes must agree."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        check_equal("dot", settings)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return states

    def forward(self, query: Query, keys: Keys) -> Scores:
        return query @ keys.transpose(1, 2)


@final
class ScaledDot(Score):
    """q . k / sqrt(d), d the size of both  (Vaswani et al., 2017)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        check_equal("scaled_dot", settings)
        self.scale = 1.0 / math.sqrt(settings.state_size)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return states

    def forward(self, query: Query, keys: Keys) -> Scores:
        return (query * self.scale) @ keys.transpose(1, 2)


@final
class General(Score):
    """q . W k  (Luong et al., 2015), W applied to the states once a sentence.

    W = M / sqrt(d), and M is what is learned: Adam moves all weights alike, and would sharpen a sum of d^2 products
    within a hundred updates, before there is anything to look for.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.key = nn.Linear(settings.state_size, settings.query_size, bias=False)
        self.scale = 1.0 / math.sqrt(settings.query_size)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.scale * self.key(states)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return query @ keys.transpose(1, 2)


@final
class Linear(Score):
    """wq . q + wk . k. The query's term is the same for all keys and cancels in every normalizer.

    So wq never learns, and each target word pays the same attention, on the words worth most: the baseline that a
    score has to beat which does look at the query.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.query = nn.Linear(settings.query_size, 1, bias=False)
        self.key = nn.Linear(settings.state_size, 1, bias=False)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.key(states)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.query(query) + keys.transpose(1, 2)


@final
class Cosine(Score):
    """beta cos(q, k) = beta q . k / |q| |k|, beta > 0 learned  (Graves et al., 2014).

    beta = sqrt(d) exp(theta) and theta = 0 at first, for scores of variance 1 between random directions. Vectors
    shorter than `SHORTEST` are divided by that instead of their length, so a zero vector scores 0.
    """

    SHORTEST = 1e-4

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        check_equal("cosine", settings)
        self.scale = math.sqrt(settings.state_size)
        self.log_sharpness = nn.Parameter(torch.zeros(()))

    def project(self, states: States, source_mask: Mask) -> Keys:
        return nn.functional.normalize(states, dim=-1, eps=self.SHORTEST)

    def forward(self, query: Query, keys: Keys) -> Scores:
        direction = nn.functional.normalize(query, dim=-1, eps=self.SHORTEST)
        return (self.scale * self.log_sharpness.exp() * direction) @ keys.transpose(1, 2)


@final
class Gaussian(Score):
    """-|q - k|^2 / 2 sigma^2, sigma > 0 learned: with softmax, Nadaraya-Watson regression on the values.

    sigma = d^(1/4) exp(theta) and theta = 0 at first: scaled_dot less a price for length. A key is a state with
    half its squared norm behind it, as |q - k|^2 / 2 = |q|^2 / 2 + |k|^2 / 2 - q . k.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        check_equal("gaussian", settings)
        self.scale = settings.state_size**0.25
        self.log_bandwidth = nn.Parameter(torch.zeros(()))

    @property
    def bandwidth(self) -> Float[Tensor, ""]:
        """Return sigma."""
        return self.scale * self.log_bandwidth.exp()

    def project(self, states: States, source_mask: Mask) -> Keys:
        states = at_least_fp32(states)
        return torch.cat((states, half_square(states)), dim=-1)

    def forward(self, query: Query, keys: Keys) -> Scores:
        # Outside autocast: near neighbors differ by less than half precision leaves of their squared norms.
        with torch.autocast(query.device.type, enabled=False):
            query, keys = at_least_fp32(query), at_least_fp32(keys)
            states, half_norms = keys[..., :-1], keys[..., -1]
            halves = half_square(query) + half_norms[:, None] - query @ states.transpose(1, 2)
            return -halves.clamp_min(0.0) / self.bandwidth.square()


@final
class Location(Score):
    """theta(q) . phi(position), theta(q) = W q: where to look is told by the query alone  (Luong et al., 2015).

    phi is a basis of `nmt/attention/bases.py`: canonical, as in the paper, or radial.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.basis = BASES[settings.basis]
        self.query = nn.Linear(settings.query_size, settings.num_basis, bias=False)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.basis(source_mask, self.query.out_features).to(states.dtype)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.query(query) @ keys.transpose(1, 2)


def half_square(vectors: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch 1"]:
    """Return |x|^2 / 2."""
    return 0.5 * vectors.square().sum(dim=-1, keepdim=True)


def check_equal(name: str, settings: Settings) -> None:
    """Raise UserError when a score without projection is given sizes that differ."""
    if settings.query_size != settings.state_size:
        raise UserError(
            f"model.attention.score={name} needs queries and encoder states of one size, "
            f"but they have {settings.query_size} and {settings.state_size}: use general or additive, which project, "
            f"or model.attention.projection=learned"
        )


SCORES: dict[str, type[Score]] = {
    "additive": Additive,
    "concat": Additive,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "linear": Linear,
    "cosine": Cosine,
    "gaussian": Gaussian,
    "location": Location,
}
