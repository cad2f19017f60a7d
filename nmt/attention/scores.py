"""Scores: how well a query (decoder state) matches each key. A new one is a class here and a line in `SCORES`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.settings import AttentionSettings
from nmt.attention.shapes import Keys, Mask, Query, Scores, States, at_least_fp32
from nmt.errors import UserError


class Score(nn.Module, ABC):
    """score(q, h_j) of a query and an encoder state, in two parts: h_j is projected to a key once per sentence.

    It neither masks nor normalizes. Each score below is checked in the tests against its formula.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()

    @abstractmethod
    def project(self, states: States, source_mask: Mask) -> Keys:
        """Return the keys of the states. `source_mask` gives the sentence's length; keys of padding may be anything."""

    @abstractmethod
    def forward(self, query: Query, keys: Keys) -> Scores:
        """Return the score of every query with every key of its sentence."""

    def inner_product(self, query: Query, keys: Keys) -> Scores:
        """Return the inner product of every query with every key of its sentence."""
        return query @ keys.transpose(1, 2)


@final
class Additive(Score):
    """v . tanh(Wq q + Wk h_j + b)  (Bahdanau et al., 2015); the key is Wk h_j + b, of size `settings.size`.

    Luong's `concat`, v . tanh(W [q; h_j]), is the same function with W = [Wq, Wk].
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.query = nn.Linear(settings.query_size, settings.size, bias=False)
        self.key = nn.Linear(settings.state_size, settings.size)
        self.energy = nn.Linear(settings.size, 1, bias=False)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.key(states)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.score_pairs(query, keys[:, None])

    def score_pairs(self, query: Query, keys: Float[Tensor, "batch #target source key"]) -> Scores:
        """Like `forward`, but the keys may differ from query to query."""
        hidden = (self.query(query)[:, :, None] + keys).tanh()  # [batch, target, source, size]
        return hidden @ self.energy.weight[0]


@final
class Dot(Score):
    """q . h_j  (Luong et al., 2015), for queries and states of one size; the key is the state."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        check_equal("dot", settings)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return states

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.inner_product(query, keys)


@final
class ScaledDot(Score):
    """q . h_j / sqrt(d), d the size of queries and states  (Vaswani et al., 2017); the key is the state."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        check_equal("scaled_dot", settings)
        self.scale = 1.0 / math.sqrt(settings.state_size)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return states

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.inner_product(query * self.scale, keys)


@final
class General(Score):
    """q . W h_j  (Luong et al., 2015); the key is W h_j, of the query's size d.

    W = M / sqrt(d), and M is the parameter. Adam changes all weights by the same amount, so with W itself as the
    parameter the weights of attention would be sharp within a hundred updates, before the states carry meaning.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.key = nn.Linear(settings.state_size, settings.query_size, bias=False)
        self.scale = 1.0 / math.sqrt(settings.query_size)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.scale * self.key(states)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.inner_product(query, keys)


@final
class Linear(Score):
    """wq . q + wk . h_j; the key is wk . h_j, of size 1.

    The query's term is the same for all keys and cancels in every normalizer. So wq gets no gradient, and all queries
    have the same weights: a baseline for scores that depend on the query.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.query = nn.Linear(settings.query_size, 1, bias=False)
        self.key = nn.Linear(settings.state_size, 1, bias=False)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.key(states)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.query(query) + keys.transpose(1, 2)


@final
class Cosine(Score):
    """beta cos(q, h_j) = beta q . h_j / |q| |h_j|, beta > 0 learned  (Graves et al., 2014); the key is h_j / |h_j|.

    beta = sqrt(d) exp(theta), with theta = 0 at first, for scores of variance 1 between random directions. Lengths
    below `MIN_LENGTH` are replaced by it, so a zero vector has the score 0.
    """

    MIN_LENGTH = 1e-4

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        check_equal("cosine", settings)
        self.scale = math.sqrt(settings.state_size)
        self.log_sharpness = nn.Parameter(torch.zeros(()))

    def project(self, states: States, source_mask: Mask) -> Keys:
        return nn.functional.normalize(states, dim=-1, eps=self.MIN_LENGTH)

    def forward(self, query: Query, keys: Keys) -> Scores:
        direction = nn.functional.normalize(query, dim=-1, eps=self.MIN_LENGTH)
        return self.inner_product(self.scale * self.log_sharpness.exp() * direction, keys)


@final
class Gaussian(Score):
    """-|q - h_j|^2 / 2 sigma^2, sigma > 0 learned: with softmax, kernel regression  (Nadaraya, 1964; Watson, 1964).

    sigma = d^(1/4) exp(theta), with theta = 0 at first: scaled_dot less (|q|^2 + |h_j|^2) / 2 sqrt(d). The key is
    [h_j; |h_j|^2 / 2], as |q - h_j|^2 / 2 = |q|^2 / 2 + |h_j|^2 / 2 - q . h_j.
    """

    def __init__(self, settings: AttentionSettings) -> None:
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
        # Without autocast: differences of squared norms need more digits than half precision has.
        with torch.autocast(query.device.type, enabled=False):
            query, keys = at_least_fp32(query), at_least_fp32(keys)
            states, half_norms = keys[..., :-1], keys[..., -1]
            distances = half_square(query) + half_norms[:, None] - query @ states.transpose(1, 2)  # |q - h_j|^2 / 2
            return -distances.clamp_min(0.0) / self.bandwidth.square()


def canonical(source_mask: Mask, size: int) -> Float[Tensor, "batch source basis"]:
    """phi_j(s) = 1 if s = j else 0, position s from 0: an independent score for each position  (Luong et al., 2015).

    Positions from size - 1 on share the last function, so that sentences of any length have a basis.
    """
    batch, source = source_mask.shape
    positions = torch.arange(source, device=source_mask.device).clamp_max(size - 1)
    return torch.eye(size, device=source_mask.device)[positions].expand(batch, source, size)


def radial(source_mask: Mask, size: int) -> Float[Tensor, "batch source basis"]:
    """phi_j(s) = exp(-(size (r_s - c_j))^2 / 2), r_s = (s + 1/2) / S, c_j = (j + 1/2) / size.

    Gaussians of the relative position r_s in a sentence of S real tokens, with evenly spaced centers and the spacing
    as standard deviation: scores stretch with the sentence.
    """
    lengths = source_mask.sum(dim=1, keepdim=True).clamp_min(1)
    positions = torch.arange(source_mask.shape[1], device=source_mask.device)
    relative = (positions + 0.5) / lengths
    centers = (torch.arange(size, device=source_mask.device) + 0.5) / size
    return (-0.5 * (size * (relative[:, :, None] - centers)).square()).exp()


BASES: dict[str, Callable[[Tensor, int], Tensor]] = {"canonical": canonical, "radial": radial}


@final
class Location(Score):
    """(W q) . phi(j), a function of the query and the position j alone  (Luong et al., 2015); the key is phi(j).

    phi is one of `BASES`, of size `settings.num_basis`: canonical, as in the paper, or radial.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.basis = BASES[settings.basis]
        self.query = nn.Linear(settings.query_size, settings.num_basis, bias=False)

    def project(self, states: States, source_mask: Mask) -> Keys:
        return self.basis(source_mask, self.query.out_features).to(states.dtype)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.inner_product(self.query(query), keys)


def half_square(vectors: Float[Tensor, "*batch size"]) -> Float[Tensor, "*batch 1"]:
    """Return |x|^2 / 2."""
    return 0.5 * vectors.square().sum(dim=-1, keepdim=True)


def check_equal(name: str, settings: AttentionSettings) -> None:
    """Raise UserError if queries and states differ in size, for a score without projections."""
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
