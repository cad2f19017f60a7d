"""Floating-point operations of an update in closed form: its matrix products, independent of the implementation.

Each weight matrix multiplies every real token of its side once, so with n source and m target tokens,

    forward = 2 sum_W |W| (n, m or the number of sentences)  +  2 sum_sentences n_s m_s (key size + value size)

and an update is three times that, as the gradient of a product is two products. Padding and elementwise functions, the
additive score's v . tanh(.) among them, count as 0, so needless work does not raise the GFLOP/s reached. Work that an
implementation avoids still counts. That is the nominal arithmetic. Equal words of a batch may share what is computed
from their embeddings alone (nmt/fast/words.py); what is then left is the arithmetic done.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

import torch
from torch import nn

from nmt.config.schema import ModelConfig
from nmt.data.batch import Batch
from nmt.fast.accelerate import replaced_methods
from nmt.models.decoder import Decoder
from nmt.models.encoder import Recurrent
from nmt.models.seq2seq import Seq2Seq

UPDATE = 3  # products of an update for each product of its forward pass
ADDITIVE_SCORES = ("additive", "concat", "linear")  # sums of query and key; the others are products


@dataclass(frozen=True)
class Work:
    """The size of some batches, in real tokens including end marks."""

    sentences: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    target_positions: int = 0  # including padding
    pairs: int = 0  # (source token, target token) of a sentence pair
    source_pairs: int = 0  # (source token, source token) of a sentence
    source_repeats: int = 0  # tokens that are in their batch before
    target_repeats: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def twice(self) -> "Work":
        """Return the size with all pairs once more in their batches, as for two passes (`trainer.consistency`)."""
        repeats = {
            "source_repeats": self.source_repeats + self.source_tokens,
            "target_repeats": self.target_repeats + self.target_tokens,
        }
        return replace(self + self, **repeats)

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
        source_repeats=batch.num_source_tokens - len(batch.source[batch.source_mask].unique()),
        target_repeats=batch.num_target_tokens - len(batch.target_in[batch.target_mask].unique()),
    )


def update_flop(model: Seq2Seq, config: ModelConfig, work: Work) -> int:
    """Return the floating-point operations of the forward and the backward pass."""
    return UPDATE * forward_flop(model, config, work)


def spared_flop(model: Seq2Seq, work: Work) -> int:
    """Return the floating-point operations of the forward and the backward pass that equal words of a batch share.

    On a GPU they share none.
    """
    products = 0
    encoder, decoder = model.encoder, model.decoder
    if decoder.embedding.weight.device.type != "cpu":
        return 0
    if isinstance(encoder, Recurrent) and "recur" in replaced_methods(encoder) and not encoder.embedding.is_random:
        matrices = [weight for name, weight in encoder.rnn.named_parameters() if name.startswith("weight_ih_l0")]
        products += work.source_repeats * sum(weight.numel() for weight in matrices)
    if "unroll" in replaced_methods(decoder) and not decoder.embedding.is_random:
        products += work.target_repeats * word_size(decoder)
    return 2 * UPDATE * products


def word_size(decoder: Decoder) -> int:
    """Return the number of elements in the matrices that the decoder multiplies a word's embedding with."""
    sizes: list[int] = []
    maps = [part for part in decoder.modules() if isinstance(part, nn.Linear)]
    hooks = [part.register_forward_hook(lambda part, *_: sizes.append(matrix_size(part))) for part in maps]
    type(decoder).read_words(decoder, torch.zeros(1, dtype=torch.long, device=decoder.embedding.weight.device))
    for hook in hooks:
        hook.remove()
    return sum(sizes)


def forward_flop(model: Seq2Seq, config: ModelConfig, work: Work) -> int:
    """Return the floating-point operations of the forward pass and the loss: a multiply-add counts as two."""
    products = sum(matrix_size(part) * num_vectors(name, config, work) for name, part in model.named_modules())
    layers = [part for part in model.encoder.modules() if isinstance(part, nn.MultiheadAttention)]
    self_attention = work.source_pairs * sum(2 * layer.embed_dim for layer in layers)
    return 2 * (products + work.pairs * pair_size(config) + self_attention)


def pair_size(config: ModelConfig) -> int:
    """Return the multiplications for each pair of a query and a key: those of the score, and those with the value."""
    attention, is_learned = config.attention, config.attention.projection == "learned"
    value_size = 2 * (config.hidden_size // 2)
    if config.decoder == "fixed_context":
        return 0
    if attention.score in ADDITIVE_SCORES:
        return value_size
    if attention.score == "location":
        return value_size + attention.num_heads * attention.num_basis
    return value_size + (attention.size if is_learned and attention.size else config.hidden_size)


def matrix_size(part: nn.Module) -> int:
    """Return the number of elements in the weight matrices of a module itself, without its submodules."""
    if isinstance(part, nn.RNNBase):
        return sum(weight.numel() for weight in part.parameters() if weight.dim() == 2)
    if isinstance(part, nn.MultiheadAttention):
        assert part.in_proj_weight is not None
        return part.in_proj_weight.numel()
    return part.weight.numel() if isinstance(part, nn.Linear) else 0


def num_vectors(name: str, config: ModelConfig, work: Work) -> int:
    """Return the number of vectors that the module of this name multiplies: tokens of a side, or sentences x layers."""
    names = name.split(".")
    if names[-1] == "energy":  # v of the additive score, counted as elementwise
        return 0
    if names[-1] == "covered":
        return work.pairs
    if "bridge" in names:
        return work.sentences * config.num_layers
    if "encoder" in names or ("attention" in names and {"key", "value", "fertility"} & set(names)):
        return work.source_tokens
    return work.target_tokens
