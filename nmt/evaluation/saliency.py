"""Saliency: the importance of each source word for each target word, by gradient times input.

Attention weights are what the decoder reads from; the gradient follows every path from the source to the prediction,
including the recurrence of encoder and decoder.
"""

from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.alignment.weights import Alignment, empty_alignment, split_characters
from nmt.data.batch import Batch, fixed_batches
from nmt.data.tables import Ragged
from nmt.errors import UserError
from nmt.fast.accelerate import without_fast_path
from nmt.models.seq2seq import Seq2Seq
from nmt.translation import Translation, Words, to_pairs
from nmt.translator import Translator

TOKENS = 1_024  # target positions of a batch, whose graph is kept in memory


def gradient_times_input(model: Seq2Seq, batch: Batch) -> Float[Tensor, "batch target source"]:
    """S_ij = e_j . d log p(y_i | y_<i, x) / d e_j, e_j the vector that the encoder reads for source piece j.

    Gradient times input (Denil et al., 2014; Ding et al., 2019, for translation), signed: to first order, how much
    log p(y_i) would fall if e_j faded to 0. The target is given (teacher forcing) and dropout is off. Padding gets 0.
    One forward pass serves a batch, and one backward pass each target position, through the steps up to it only;
    parameters get no gradient.
    """
    model.eval()
    # cuDNN has a backward pass for recurrent networks only in training mode, which would turn dropout on.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embedded, log_probs = forced_log_probs(model, batch)
        rows = []
        for number, log_prob in enumerate(log_probs, start=1):
            (gradient,) = torch.autograd.grad(log_prob.sum(), embedded, retain_graph=number < len(log_probs))
            rows.append((gradient * embedded.detach()).sum(dim=-1))
    return torch.stack(rows, dim=1)


def forced_log_probs(
    model: Seq2Seq, batch: Batch
) -> tuple[Float[Tensor, "batch source embedding"], list[Float[Tensor, " batch"]]]:
    """Return the embedded sources, leaves of the graph, and log p(y_i | y_<i, x) for each i, 0 on padding.

    Step by step as in search, so that the graph of y_i holds no later step.
    """
    leaves: list[Tensor] = []

    def make_leaf(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    # The hook is on while the encoder runs only: the decoder's embedding may be the same module. The encoder runs as it
    # is written (`without_fast_path`): each target word's gradient goes through its graph once more.
    with model.encoder.embedding.register_forward_hook(make_leaf), without_fast_path(model.encoder):
        state = model.start(batch.source, batch.source_mask, batch.source_lengths)
    log_probs = []
    for i in range(batch.target_in.shape[1]):
        step = model.step(batch.target_in[:, i : i + 1], state)
        state = step.state
        log_prob = step.log_probs[:, 0].gather(1, batch.target_out[:, i : i + 1])[:, 0]
        log_probs.append(log_prob.where(batch.target_mask[:, i], 0.0))
    (embedded,) = leaves
    return embedded, log_probs


def word_saliency(
    contributions: Float[np.ndarray, "rows columns"], target_word: Sequence[int], source_word: Sequence[int]
) -> Float[np.ndarray, "target source"]:
    """Saliency of words as weights, from gradient times input of pieces.

    The contributions of a word's pieces are summed on both sides: log p of a target word is the sum over its pieces,
    and a source word fades with all of its pieces. The weights are the absolute values (as Jain & Wallace, 2019: a
    word that makes another less probable matters too), divided by their sum over the source words. Rows and columns
    beyond the words (end marks) are left out. A target word that no source word matters to has weights of 0.
    """
    words = np.zeros((max(target_word, default=-1) + 1, max(source_word, default=-1) + 1))
    np.add.at(words, np.ix_(target_word, source_word), contributions[: len(target_word), : len(source_word)])
    magnitudes = np.abs(words)
    total = magnitudes.sum(axis=1, keepdims=True)
    return np.divide(magnitudes, total, out=np.zeros_like(magnitudes), where=total > 0)


def obstacle_to_saliency(translator: Translator) -> str | None:
    """Return why the saliency of a translator's words cannot be computed; None if it can."""
    if not isinstance(translator.model, Seq2Seq):
        return "saliency explains one model, not several: leave saliency or the ensemble out"
    if translator.precision == "int8":
        return "saliency needs gradients, and precision=int8 has none: leave one of the two out"
    if translator.search.neighbors:
        return "saliency needs gradients, and neighbors pass none on: leave saliency or search.neighbors out"
    return None


@final
class Explainer:
    """Computes the saliency of a translator's words; UserError when it is made with an `obstacle_to_saliency`."""

    def __init__(self, translator: Translator) -> None:
        if obstacle := obstacle_to_saliency(translator):
            raise UserError(obstacle)
        assert isinstance(translator.model, Seq2Seq)
        self.model = translator.model
        self.translator = translator

    def pairs(self, sources: Iterable[str], targets: Iterable[str]) -> list[Alignment]:
        """Return the saliency of given targets; raise UserError if the numbers of sources and targets differ."""
        sources, targets = to_pairs(sources, targets)
        source, target = self.translator.tokenizers.source, self.translator.tokenizers.target
        source_ids, target_ids = source.encode(sources), target.encode(targets)
        source_words = list(map(source.parts, source_ids, sources))
        return self._explain(source_ids, target_ids, source_words, list(map(target.parts, target_ids, targets)))

    def translations(self, translations: Sequence[Translation]) -> list[Alignment | None]:
        """Return the saliency of translations; None for one in parts, which the model has never read as a whole."""
        source, target = self.translator.tokenizers.source, self.translator.tokenizers.target
        whole = [translation for translation in translations if translation.parts == 1]
        lines = [translation.source for translation in whole]
        source_ids = source.encode(lines)
        target_ids = [target.ids_of(translation.pieces) for translation in whole]
        words_of = self.translator.words_of
        source_words = [words_of(source, ids, line) for ids, line in zip(source_ids, lines, strict=True)]
        target_words = [translation.words for translation in whole]
        explained = self._explain(source_ids, target_ids, source_words, target_words)
        saliency = iter(map(split_characters, explained) if self.translator.words == "split" else explained)
        return [next(saliency) if each.parts == 1 else None for each in translations]

    @torch.inference_mode(False)  # the caller's inference mode has no gradients
    def _explain(
        self,
        source_ids: list[list[int]],
        target_ids: list[list[int]],
        source_words: list[Words],
        target_words: list[Words],
    ) -> list[Alignment]:
        saliency = [empty_alignment()] * len(source_ids)
        rows = [row for row, ids in enumerate(source_ids) if ids]
        sources, targets = (Ragged.of([side[row] for row in rows]) for side in (source_ids, target_ids))
        for batch in fixed_batches(sources, targets, TOKENS):
            matrices = gradient_times_input(self.model, batch.to(self.translator.device)).double().cpu().numpy()
            for row, matrix in zip([rows[number] for number in batch.rows], matrices, strict=True):
                (source, source_word), (target, target_word) = source_words[row], target_words[row]
                saliency[row] = Alignment(source, target, word_saliency(matrix, target_word, source_word))
        return saliency
