"""The arithmetic of an update in closed form: its matrix products, whatever program carries them out.

Each weight matrix is applied to every real token of its side once, so with n source and m target tokens,

    forward = 2 sum_W |W| (n, m or the number of sentences)  +  2 sum_sentences n_s m_s (key size + value size)

and an update is three times that: each product has two in its derivative, by either factor. Padding counts for nothing
and neither do elementwise functions, the additive score's v . tanh(.) among them, so a program's share of what the
machine can do is never flattered by needless work. What a program spares counts as done: where there is no dropout on
embeddings, ours multiplies equal words of a batch once (`nmt.models.embedding`).
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from torch import nn

from nmt.config.schema import ModelConfig
from nmt.data.batch import Batch
from nmt.models.seq2seq import Seq2Seq

UPDATE = 3  # products of an update for each of its forward pass
ADDING_SCORES = ("additive", "concat", "linear")  # they add query and key up; the others multiply two vectors


@dataclass(frozen=True)
class Work:
    """What some batches ask for: counts of real tokens, end marks in, and of the positions that hold them."""

    sentences: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    target_positions: int = 0  # padding in
    pairs: int = 0  # of a source and a target token of one sentence
    source_pairs: int = 0  # of two source tokens of one sentence

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "Work":
        """Count batches, which must be on the CPU."""
        return sum(map(count, batches), cls())


def count(batch: Batch) -> Work:
    """Count one batch."""
    return Work(
        sentences=len(batch),
        source_tokens=batch.num_source_tokens,
        target_tokens=batch.num_target_tokens,
        target_positions=batch.target_mask.numel(),
        pairs=int((batch.target_mask.sum(dim=1) * batch.source_lengths).sum()),
        source_pairs=int(batch.source_lengths.square().sum()),
    )


def update_flop(model: Seq2Seq, config: ModelConfig, work: Work) -> int:
    """Return the floating-point operations of forward and backward pass."""
    return UPDATE * forward_flop(model, config, work)


def forward_flop(model: Seq2Seq, config: ModelConfig, work: Work) -> int:
    """Return the floating-point operations of a forward pass with its loss, multiplications and additions apart."""
    products = sum(matrix_size(part) * rows(name, config, work) for name, part in model.named_modules())
    self_attention = 2 * config.hidden_size * work.source_pairs if config.self_attention_heads else 0
    return 2 * (products + work.pairs * pair_size(config) + self_attention)


def pair_size(config: ModelConfig) -> int:
    """Return the size of what is multiplied for each pair of a query and a key: the score's vectors, and the value."""
    attention, is_learned = config.attention, config.attention.projection == "learned"
    value_size = 2 * (config.hidden_size // 2)
    if config.decoder == "fixed_context":
        return 0
    if attention.score in ADDING_SCORES:
        return value_size
    if attention.score == "location":
        return value_size + attention.num_heads * attention.num_basis
    return value_size + (attention.size if is_learned and attention.size else config.hidden_size)


def matrix_size(part: nn.Module) -> int:
    """Return the size of the matrices that a module itself multiplies with."""
    if isinstance(part, nn.RNNBase):
        return sum(weight.numel() for weight in part.parameters() if weight.dim() == 2)
    if isinstance(part, nn.MultiheadAttention):
        assert part.in_proj_weight is not None
        return part.in_proj_weight.numel()
    return part.weight.numel() if isinstance(part, nn.Linear) else 0


def rows(name: str, config: ModelConfig, work: Work) -> int:
    """Return how many vectors go through the module of this name: by its side, or once a sentence and layer."""
    names = name.split(".")
    if names[-1] == "energy":  # the additive score's v, of a product by elements
        return 0
    if names[-1] == "covered":
        return work.pairs
    if "bridge" in names:
        return work.sentences * config.num_layers
    if "encoder" in names or ("attention" in names and {"key", "value", "fertility"} & set(names)):
        return work.source_tokens
    return work.target_tokens
