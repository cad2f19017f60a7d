"""Translation from Python: `Translator.load(run).translate([...])`."""

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nmt.alignment.weights import Alignment, concatenate, merge_words
from nmt.config.check import check
from nmt.config.schema import PRECISIONS, SamplingConfig, SearchConfig
from nmt.data.batch import Batch, collate, cut_batches, pad
from nmt.errors import UserError, unknown
from nmt.fast.accelerate import accelerate, restore
from nmt.fast.packing import pack
from nmt.models.checkpoint import Checkpoint, load_checkpoint, resolve_device
from nmt.models.ensemble import Ensemble
from nmt.models.quantization import quantize
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from nmt.search.hypothesis import Hypothesis, StepModel
from nmt.search.sampling import sample
from nmt.text.parts import join_texts, split_line
from nmt.text.tokenizer import Tokenizers
from nmt.text.vocabulary import UNK, Vocabulary, text_of

Array = np.ndarray
Words = tuple[list[str], list[int]]  # words, and for each piece the index of its word


@dataclass(frozen=True)
class Translation(Alignment):
    """A translation of a sentence, with the attention of the search that found it."""

    source: str
    text: str
    score: float
    log_prob: float
    pieces: list[str]
    cut: bool = False  # it was cut off at the longest length that the search allows
    parts: int = 1  # above 1: the source, far longer than what was trained on, was translated in so many parts

    @property
    def line(self) -> str:
        """The text without line breaks."""
        return self.text.replace("\r", " ").replace("\n", " ")


class Translator:
    """Translates sentences with a trained model.

    >>> from nmt import Translator
    >>> translator = Translator.load(run, beam_size=3)  # the folder of a run, such as outputs/latest
    >>> translation, nothing = translator.translate(["Luc sees my sister.", ""])
    >>> translation.source_words
    ['Luc', 'sees', 'my', 'sister.']
    >>> translation.weights.shape == (len(translation.target_words), 4)  # what each word attended to
    True
    >>> len(translation.text.split()) == len(translation.target_words)
    True
    >>> nothing.text
    ''
    """

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        tokenizers: Tokenizers,
        search: SearchConfig,
        device: torch.device,
        precision: str = "fp32",
    ) -> None:
        if precision not in PRECISIONS:
            raise unknown("precision", precision, PRECISIONS)
        self.model = quantize(restore(model)) if precision == "int8" else model
        self.precision = precision
        self.tokenizers = tokenizers
        self.search = search
        self.copies = search.replace_unknown and isinstance(tokenizers.target, Vocabulary)
        self.device = device
        self.checkpoint: Path | None = None
        self.ensemble: list[Path] = []
        self.step: int | None = None
        self.progress: Callable[[int], None] = lambda count: None  # told how many sentences more have been read
        self.longest: int | None = None  # most subwords of a training sentence; far longer lines are cut into parts

    @classmethod
    def load(
        cls,
        run: str | Path,
        device: str = "auto",
        precision: str = "fp32",
        *,
        ensemble: Sequence[str | Path] = (),
        **search: Any,
    ) -> "Translator":
        """Load a run or a checkpoint folder.

        Args:
            run: the folder.
            device: `auto`, `cpu` or `cuda`.
            precision: arithmetic of the products: `fp32`, `bf16`, or on a CPU `int8`.
            ensemble: further runs or checkpoints, to translate together (`nmt.models.ensemble`).
            **search: keys of `SearchConfig` that replace those the model was trained with; None keeps them.

        Raises:
            UserError: there is no checkpoint, a search setting is out of range, the device has no such precision, or
                an ensemble's members have other subwords.
        """
        where = resolve_device(device)
        checkpoint = load_checkpoint(run, where)
        others = [load_checkpoint(each, where) for each in ensemble]
        for other in others:
            check_together(checkpoint, other)
        given = {name: value for name, value in search.items() if value is not None}
        settings = dataclasses.replace(checkpoint.config.search, **given)
        check(settings)
        model = Ensemble([each.model for each in (checkpoint, *others)]) if others else checkpoint.model
        translator = cls(model, checkpoint.tokenizers, settings, where, precision)
        translator.checkpoint, translator.step = checkpoint.folder, checkpoint.step
        translator.ensemble = [other.folder for other in others]
        translator.longest = min(each.config.batch.max_length for each in (checkpoint, *others))
        for each in (checkpoint, *others):
            if each.config.model.fast == "auto":
                accelerate(each.model)
                if precision == "fp32":
                    pack(each.model)  # from here on the model only translates
        return translator

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        """Return the best translation of each sentence, in order; an empty sentence gives an empty one."""
        return [found[0] for found in self.translate_n_best(sentences, 1)]

    def translate_n_best(self, sentences: Sequence[str], n: int) -> list[list[Translation]]:
        """Return the n best translations of each sentence, best first.

        A line of more than twice the subwords that a training sentence could have (`batch.max_length`) is translated
        in parts, cut at punctuation or spaces: its k-th best translation is made of those of its parts.
        """
        return self._in_parts(sentences, n, None)

    def sample(self, sentences: Sequence[str], n: int = 1, **sampling: Any) -> list[list[Translation]]:
        """Return n translations of each sentence, drawn at random from the model (`nmt.search.sampling`).

        Each depends on the seed, the sentence and its number among the n alone; on the batch only by rounding, which is
        more of it with `precision=int8`. Log-probabilities are the model's. There is no beam and no coverage penalty.

        Args:
            sentences: lines of source text.
            n: translations of each, in the order of drawing; they may be equal.
            **sampling: keys of `SamplingConfig`: `temperature`, `top_k`, `top_p`, `seed`.

        Raises:
            UserError: one of them is out of range.
        """
        settings = SamplingConfig(**sampling)
        check(settings)
        return self._in_parts(sentences, n, settings)

    def _in_parts(self, sentences: Sequence[str], n: int, sampling: SamplingConfig | None) -> list[list[Translation]]:
        lines = [split_line(each, self._source_size, self.longest) for each in sentences]
        found = iter(self._translate([part for line in lines for part in line], n, sampling))
        parts = (list(itertools.islice(found, len(line))) for line in lines)
        return [joined(sentence, each) for sentence, each in zip(sentences, parts, strict=True)]

    def _source_size(self, line: str) -> int:
        return len(self.tokenizers.source.encode([line])[0])

    @torch.inference_mode()
    def _translate(self, sentences: Sequence[str], n: int, sampling: SamplingConfig | None) -> list[list[Translation]]:
        self.model.eval()
        ids = self.tokenizers.source.encode(list(sentences))
        results: list[list[Translation]] = [[empty(sentence)] for sentence in sentences]
        for rows in self._groups(ids):
            found = self._search([ids[row] for row in rows], n, sampling)
            for row, hypotheses in zip(rows, found, strict=True):
                results[row] = [self._translation(sentences[row], ids[row], each) for each in hypotheses]
            self.progress(len(rows))
        return results

    def greedy(self, sentences: Sequence[str]) -> list[Translation]:
        """Return the translation of each sentence by greedy search, whatever `search.beam_size` is."""
        other = copy.copy(self)
        other.search = dataclasses.replace(self.search, beam_size=1)
        return other.translate(sentences)

    def plain(self, lines: Sequence[str]) -> list[str]:
        """Return target text in the form of translations: the pieces of text that is segmented already are joined."""
        return self.tokenizers.target.plain(lines)

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
        """Return the attention between each source and a given target (forced decoding).

        Words are the parts between spaces, as gold links count them: in text that is segmented already, its pieces.
        """
        sides = self.tokenizers
        source_ids, target_ids = sides.source.encode(list(sources)), sides.target.encode(list(targets))
        results = [Alignment([], [], np.zeros((0, 0)))] * len(source_ids)
        for batch, found in self._read(source_ids, target_ids, self.model.attend):
            for row, weights in zip(batch.rows, found.float().cpu().numpy(), strict=True):
                source = sides.source.parts(source_ids[row], sources[row])
                results[row] = alignment(source, sides.target.parts(target_ids[row], targets[row]), weights)
        return results

    def perplexity(self, sources: Sequence[str], targets: Sequence[str]) -> float:
        """Return exp(-mean log p(y_i | y_<i, x)) over the subwords of given targets, including end marks.

        Models with different subwords cannot be compared by it. Pairs with an empty source are left out.
        """
        log_prob, num_tokens = 0.0, 0
        ids = self.tokenizers.source.encode(list(sources)), self.tokenizers.target.encode(list(targets))
        for batch, found in self._read(*ids, self.model.log_probs):
            log_prob += float(found.double().sum())
            num_tokens += batch.num_target_tokens
        return math.exp(-log_prob / num_tokens) if num_tokens else math.nan

    def _read(
        self, sources: list[list[int]], targets: list[list[int]], read: Callable[[Batch], Tensor]
    ) -> Iterator[tuple[Batch, Tensor]]:
        """Yield the pairs in batches, each with the output of `read`; `Batch.rows` are the indices of the pairs."""
        self.model.eval()
        for rows in self._groups(sources):
            arrays = [[np.asarray(side[row], dtype=np.int32) for row in rows] for side in (sources, targets)]
            batch = collate(arrays[0], arrays[1], np.asarray(rows)).to(self.device)
            with torch.inference_mode(), self._arithmetic():
                found = read(batch)
            yield batch, found
            self.progress(len(rows))

    def _groups(self, sentences: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the rows of each batch: sentences of similar length together, empty ones left out."""
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        order = lengths.argsort(kind="stable")
        order = order[lengths[order] > 0]
        batches = cut_batches(order, lengths, unit=self.search.batch_unit, size=self.search.batch_size)
        return [batch.tolist() for batch in batches]

    def _search(self, ids: list[list[int]], n: int, sampling: SamplingConfig | None) -> list[list[Hypothesis]]:
        source, source_mask, source_lengths = pad([np.asarray(row, dtype=np.int32) for row in ids])
        limits = source_lengths * self.search.max_length_ratio + self.search.max_length_offset
        model: StepModel[Any] = self.model
        with self._arithmetic():
            return self._find(n, sampling)(
                model,
                source.to(self.device),
                source_mask.to(self.device),
                source_lengths,
                length_penalty=self.search.length_penalty,
                max_lengths=limits.long().to(self.device),
                unk=None if self.copies else UNK,
            )

    def _find(self, n: int, sampling: SamplingConfig | None) -> Callable[..., list[list[Hypothesis]]]:
        if sampling is not None:
            return partial(sample, num_samples=n, **vars(sampling))
        search = self.search
        return partial(
            beam_search,
            beam_size=max(search.beam_size, n),
            coverage_penalty=search.coverage_penalty,
            patience=search.patience,
            n_best=n,
        )

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def _translation(self, sentence: str, ids: list[int], hypothesis: Hypothesis) -> Translation:
        source, target = self.tokenizers.source.words(ids, sentence), self.tokenizers.target.words(hypothesis.tokens)
        found = alignment(source, target, hypothesis.weights)
        text = self.tokenizers.target.decode([hypothesis.tokens])[0]
        if self.copies:
            found = with_copies(found, [target[1][n] for n, token in enumerate(hypothesis.tokens) if token == UNK])
            text = text_of(found.target_words)
        return Translation(
            **vars(found),
            source=sentence,
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            pieces=self.tokenizers.target.pieces(hypothesis.tokens),
            cut=hypothesis.is_cut,
        )


def check_together(first: Checkpoint, other: Checkpoint) -> None:
    """Check that two checkpoints predict the same subwords of the same language.

    Raises:
        UserError: they do not.
    """
    ours, theirs = first.config.data.direction, other.config.data.direction
    if ours != theirs:
        both = f"{other.folder} translates {theirs}, and {first.folder} {ours}"
        raise UserError(f"{both}: they cannot translate together")
    if not first.tokenizers.agree_with(other.tokenizers):
        raise UserError(
            f"{other.folder} and {first.folder} have different subwords and cannot translate together: train the one "
            f"with tokenizer.source_model and tokenizer.target_model of the other"
        )


def alignment(source: Words, target: Words, weights: Float[Array, "rows columns"]) -> Alignment:
    """Return the alignment of words from attention between their pieces."""
    return Alignment(source[0], target[0], merge_words(weights, target[1], source[1]))


def with_copies(found: Alignment, unknown: Iterable[int]) -> Alignment:
    """Replace unknown target words by the source words that they attend to most, if any (Luong et al., 2015)."""
    words = list(found.target_words)
    for index in unknown:
        if found.weights[index].any():
            words[index] = found.source_words[int(found.weights[index].argmax())]
    return dataclasses.replace(found, target_words=words)


def joined(sentence: str, parts: Sequence[list[Translation]]) -> list[Translation]:
    """Return the translations of a sentence, best first, from those of its parts, of which most have just one."""
    if len(parts) == 1:
        return parts[0]
    return [
        Translation(
            **vars(concatenate(each)),
            source=sentence,
            text=join_texts([part.text for part in each]),
            score=sum(part.score for part in each) / len(each),
            log_prob=sum(part.log_prob for part in each),
            pieces=[piece for part in each for piece in part.pieces],
            cut=any(part.cut for part in each),
            parts=len(each),
        )
        for each in zip(*parts, strict=False)  # a part may have fewer translations than others
    ]


def empty(sentence: str) -> Translation:
    """Return the translation of a sentence without words."""
    return Translation([], [], np.zeros((0, 0)), source=sentence, text="", score=0.0, log_prob=0.0, pieces=[])
