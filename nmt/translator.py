"""Translation from Python: `Translator.load(run).translate("...")`."""

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import torch

from nmt.alignment.weights import empty_alignment, split_characters
from nmt.config.check import check, check_settings
from nmt.config.schema import LARGEST_BEAM, PRECISIONS, WORDS, SamplingConfig, SearchConfig
from nmt.data.batch import Batch, Int64Array, collate, pad
from nmt.data.sentence_batches import halve_on_memory_error, lengths_of, plan_sentences
from nmt.errors import UserError, unknown
from nmt.fast.accelerate import accelerate, decelerate
from nmt.fast.projection import pack_weights
from nmt.models.checkpoint import load_checkpoint, resolve_device
from nmt.models.ensemble import Ensemble, check_together
from nmt.models.neighbors import Datastore, load_datastore, use_neighbors
from nmt.models.quantization import quantize
from nmt.models.seq2seq import Seq2Seq
from nmt.search.hypothesis import Hypothesis
from nmt.search.search import longest_targets, search_batch
from nmt.search.threads import map_in_threads
from nmt.text.long_lines import split_line
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import UNK, Vocabulary, text_of
from nmt.translation import (
    SentencePair,
    Translation,
    Words,
    alignment_of_words,
    copy_unknown_words,
    empty_translation,
    join_parts,
    to_pairs,
    to_sentences,
)

__all__ = ["SentencePair", "Translation", "Translator"]

Result = TypeVar("Result")
# Applies a function to every item: one after the other like `map`, in threads, or distributed over processes.
MapFunction = Callable[[Callable[[Any], Result], Sequence[Any]], Iterable[Result]]

# Limits in bytes for attention weights and probabilities of all concurrent batches: the bulk of memory for long
# sentences and wide beams.
MEMORY_CPU, MEMORY_GPU = 2**30, 2**33
FLOAT = 4  # bytes
MOST_WIDENING = 16  # of the beam, for n different translations
MAX_EXPONENT = 700.0  # of e, in a float


class Translator:
    """Translates sentences with a trained model.

    >>> from nmt import Translator
    >>> translator = Translator.load(run, beam_size=3)  # the folder of a run, such as outputs/latest
    >>> translation = translator.translate("Luc sees my sister.")
    >>> translation.source_words
    ['Luc', 'sees', 'my', 'sister', '.']
    >>> translation.weights.shape == (len(translation.target_words), 5)  # what each word attended to
    True
    >>> one, nothing = translator.translate(["Luc sees my sister.", ""])
    >>> (one == translation, nothing.text)
    (True, '')
    """

    def __init__(
        self,
        model: Seq2Seq | Ensemble,
        tokenizers: Tokenizers,
        search: SearchConfig,
        device: torch.device,
        precision: str = "fp32",
        words: str = "split",
    ) -> None:
        for name, value, choices in (("precision", precision, PRECISIONS), ("words", words, WORDS)):
            if value not in choices:
                raise unknown(name, value, choices)
        self.model = quantize(decelerate(copy.deepcopy(model))) if precision == "int8" else model
        self.precision = precision
        self.words = words
        self.tokenizers = tokenizers
        self.search = search
        self.replaces_unknown = search.replace_unknown and isinstance(tokenizers.target, Vocabulary)
        self.device = device
        self.checkpoint: Path | None = None
        self.ensemble: list[Path] = []
        self.datastore: Datastore | None = None  # of the model alone, without an ensemble
        self.step: int | None = None
        self.progress: Callable[[int], None] = ignore  # called with the number of sentences just read
        self.map_batches: MapFunction[Any] = map_in_threads if device.type == "cpu" else map
        self.with_alignment = True  # False: text only, without words and weights, which is quicker
        self.longest_source: int | None = None  # in subwords, while training; far longer lines are cut into parts

    @classmethod
    @torch.inference_mode(False)  # weights that the caller's inference mode makes have no gradients, nor has saliency
    def load(
        cls,
        run: str | Path,
        device: str = "auto",
        precision: str = "fp32",
        *,
        ensemble: Sequence[str | Path] = (),
        words: str = "split",
        verify: bool = True,
        **search: Any,
    ) -> "Translator":
        """Load a run, a checkpoint folder, or a model of the Hugging Face hub.

        Args:
            run: the folder, or `hub:USER/NAME` or `hub:USER/NAME@REVISION` (a branch, tag or commit).
            device: `auto`, `cpu` or `cuda`.
            precision: arithmetic of the products: `fp32`, `bf16`, or on a CPU `int8`.
            ensemble: further runs or checkpoints, to translate together (`nmt.models.ensemble`).
            words: the words of translations. `split`: punctuation is a word, and in scripts without spaces so is each
                character (Chinese, Japanese) or piece; `spaces`: the parts between spaces, which gold links count.
            verify: compare the files with the digests in the checkpoint's manifest: about a second per gigabyte.
            **search: keys of `SearchConfig` that replace those the model was trained with; None keeps them.

        Raises:
            UserError: there is no checkpoint, the hub does not give it, a search setting is unknown or out of range,
                the device has no such precision, or an ensemble's members have other subwords.
        """
        check_settings(
            "setting of Translator.load", search, SearchConfig, "device", "precision", "ensemble", "words", "verify"
        )
        torch_device = resolve_device(device)
        members = [load_checkpoint(folder, torch_device, verified=verify) for folder in (run, *ensemble)]
        checkpoint, *further = members
        for member in further:
            check_together(checkpoint, member)
        changed = {name: value for name, value in search.items() if value is not None}
        settings = dataclasses.replace(checkpoint.config.search, **changed)
        check(settings)
        model = Ensemble([member.model for member in members]) if further else checkpoint.model
        translator = cls(model, checkpoint.tokenizers, settings, torch_device, precision, words)
        translator.checkpoint, translator.step = checkpoint.folder, checkpoint.step
        translator.ensemble = [member.folder for member in further]
        translator.longest_source = min(member.longest_source for member in members)
        models = [module for module in translator.model.modules() if isinstance(module, Seq2Seq)]  # int8: copies
        for member, each in zip(members, models, strict=True):
            if member.config.model.fast == "auto":
                accelerate(each)
                with translator.arithmetic():
                    pack_weights(each)  # from here on the model only translates
        if settings.neighbors:
            for path, member, each in zip((run, *ensemble), members, models, strict=True):
                datastore = load_datastore(path, member)
                use_neighbors(each, datastore, settings)
                translator.datastore = None if further else datastore
        return translator

    @overload
    def translate(self, sentences: str) -> Translation: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, sentences: Iterable[str]) -> list[Translation]: ...

    def translate(self, sentences: str | Iterable[str]) -> Translation | list[Translation]:
        """Return the best translation of a sentence, or of each of several (a list, a column of a table), in order, or
        raise UserError for one that is not a text. That of an empty sentence is empty.
        """
        best = [n_best[0] for n_best in self.translate_n_best(to_sentences(sentences), 1)]
        return best[0] if isinstance(sentences, str) else best

    def translate_n_best(self, sentences: Iterable[str], n: int) -> list[list[Translation]]:
        """Return the n best translations of each sentence, best first; no two have the same text.

        Different subwords may spell the same text. Where that leaves too few, the sentence is searched again with a
        beam twice as wide, up to `MOST_WIDENING` times as wide; so there may still be fewer than n.

        A line of more than twice the subwords of the longest training sources is translated in parts: sentences, cut
        further at punctuation or spaces where they are too long. Its k-th best translation is made of those of its
        parts, without words and weights where there are too many of them (`nmt.translation.MAX_WEIGHTS`).

        Raises:
            UserError: a sentence is not a text, `n` is not from 1 to 10,000, or memory is short for one sentence.
        """
        return self._translate_lines(to_sentences(sentences), n, None)

    def sample(self, sentences: Iterable[str], n: int = 1, **sampling: Any) -> list[list[Translation]]:
        """Return n translations of each sentence, drawn at random from the model (`nmt.search.sampling`), in order.

        They may be equal. An empty sentence yields a single one, and so does a sentence with a part without subwords.
        Each sample depends only on the seed, the sentence and its index among the n; the batch affects it only through
        rounding, which is coarser with `precision=int8`. Log-probabilities are the model's. There is no beam and no
        coverage penalty. `sampling` are keys of `SamplingConfig`: `temperature`, `top_k`, `top_p`, `seed`.

        Raises:
            UserError: a setting is unknown, a setting or `n` is out of range, or a sentence is not a string.
        """
        check_settings("setting of Translator.sample", sampling, SamplingConfig)
        settings = SamplingConfig(**sampling)
        check(settings)
        return self._translate_lines(to_sentences(sentences), n, settings)

    def parts_of(self, line: str) -> list[str]:
        """Return the parts in which a line is translated: itself, unless it is far longer than those trained on."""
        return split_line(line, lambda part: len(self.tokenizers.source.encode([part])[0]), self.longest_source)

    def _translate_lines(
        self, lines: Sequence[str], n: int, sampling: SamplingConfig | None
    ) -> list[list[Translation]]:
        if not 1 <= n <= LARGEST_BEAM:
            raise UserError(f"n is {n}: ask for at least 1 and at most {LARGEST_BEAM:,} translations of each sentence")
        parts_of_lines = [self.parts_of(line) for line in lines]
        sentences = list(itertools.chain.from_iterable(parts_of_lines))
        if n == 1 or sampling is not None:
            found = iter(self._translate_sentences(sentences, n, sampling))
        else:
            found = iter(self._distinct_translations(sentences, n))
        pairs = zip(lines, parts_of_lines, strict=True)
        return [join_parts(line, list(itertools.islice(found, len(parts)))) for line, parts in pairs]

    def _distinct_translations(self, sentences: Sequence[str], n: int) -> list[list[Translation]]:
        """Return the n best translations of each sentence with different texts."""
        results: list[list[Translation]] = [[] for _ in sentences]
        rows = list(range(len(sentences)))
        width = max(self.search.beam_size, n)
        widest = min(MOST_WIDENING * width, LARGEST_BEAM)
        while rows and width <= widest:
            searched = self._translate_sentences([sentences[row] for row in rows], width, None)
            found, rows = dict(zip(rows, searched, strict=True)), []
            for row, translations in found.items():
                first_of_text: dict[str, Translation] = {}
                for translation in translations:
                    first_of_text.setdefault(translation.text, translation)
                results[row] = list(first_of_text.values())[:n]
                if len(results[row]) < n and len(translations) == width:
                    rows.append(row)
            width *= 2
        return results

    def _translate_sentences(
        self, sentences: Sequence[str], n: int, sampling: SamplingConfig | None
    ) -> list[list[Translation]]:
        ids = self.tokenizers.source.encode(sentences)
        results: list[list[Translation]] = [[empty_translation(sentence)] for sentence in sentences]

        def search(rows: list[int]) -> list[tuple[int, list[Hypothesis]]]:
            n_best = self._search_batch([ids[row] for row in rows], n, sampling)
            return list(zip(rows, n_best, strict=True))

        for row, hypotheses in self._map_batches(search, ids, self._search_costs(ids, n, sampling)):
            results[row] = [self._translation(sentences[row], ids[row], hypothesis) for hypothesis in hypotheses]
        return results

    def greedy(self, sentences: Sequence[str]) -> list[Translation]:
        """Return the translation of each sentence by greedy search, whatever `search` says of beam and patience."""
        greedy = copy.copy(self)
        greedy.search = dataclasses.replace(self.search, beam_size=1, patience=1.0)  # more finds others as well
        return greedy.translate(sentences)

    def detokenize(self, lines: Sequence[str]) -> list[str]:
        """Return target lines in the form of translations: the pieces of pre-segmented text are joined."""
        return self.tokenizers.target.detokenize(lines)

    @overload
    def align(self, sources: str, targets: str, words: str = ...) -> SentencePair: ...  # type: ignore[overload-overlap]

    @overload
    def align(self, sources: Iterable[str], targets: Iterable[str], words: str = ...) -> list[SentencePair]: ...

    def align(
        self, sources: str | Iterable[str], targets: str | Iterable[str], words: str = "spaces"
    ) -> SentencePair | list[SentencePair]:
        """Return the attention between a source and a given target, or each of several (forced decoding).

        `words` are those of `spaces`: the parts between spaces, as gold links count them, in pre-segmented text its
        pieces; or of `split`: as in translations, where punctuation is separate.

        Raises:
            UserError: the numbers of sources and targets differ, or `words` is neither of the two.
        """
        if words not in WORDS:
            raise unknown("words", words, WORDS)
        source_lines, target_lines = to_pairs(sources, targets)
        source, target = self.tokenizers.source, self.tokenizers.target
        source_ids, target_ids = source.encode(source_lines), target.encode(target_lines)
        alignments = [empty_alignment() for _ in source_lines]

        def attend(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
            return batch.rows, self.model.attend(batch).float().cpu().numpy()

        def words_of(side: Tokenizer | Vocabulary, ids: list[int], line: str) -> Words:
            return side.parts(ids, line) if words == "spaces" else side.display_words(ids, line)

        for rows, attention in self._map_pairs(attend, source_ids, target_ids):
            for row, weights in zip(rows, attention, strict=True):
                source_words = words_of(source, source_ids[row], source_lines[row])
                target_words = words_of(target, target_ids[row], target_lines[row])
                weights = weights[:, : len(source_ids[row]) + 1]  # without padding, with the end mark
                alignment = alignment_of_words(source_words, target_words, weights)
                alignments[row] = split_characters(alignment) if words == "split" else alignment
        triples = zip(alignments, source_lines, target_lines, strict=True)
        pairs = [SentencePair(**vars(alignment), source=line, text=text) for alignment, line, text in triples]
        return pairs[0] if isinstance(sources, str) else pairs

    def perplexity(self, sources: str | Iterable[str], targets: str | Iterable[str]) -> float:
        """Return the exponential of `cross_entropy`, or infinity where it overflows."""
        return exponential(self.cross_entropy(sources, targets))

    def cross_entropy(self, sources: str | Iterable[str], targets: str | Iterable[str]) -> float:
        """Return -mean log p(y_i | y_<i, x) over the subwords of given targets, including end marks, in nats.

        Models with different subwords cannot be compared by it. Pairs with an empty source are left out.
        """
        source_lines, target_lines = to_pairs(sources, targets)
        source_ids = self.tokenizers.source.encode(source_lines)
        target_ids = self.tokenizers.target.encode(target_lines)

        def score(batch: Batch) -> tuple[float, int]:
            return float(self.model.log_probs(batch).double().sum()), batch.num_target_tokens

        total, num_tokens = 0.0, 0
        for log_prob, count in self._map_pairs(score, source_ids, target_ids):
            total += log_prob
            num_tokens += count
        return -total / num_tokens if num_tokens else math.nan

    def _map_pairs(
        self, function: Callable[[Batch], Result], sources: list[list[int]], targets: list[list[int]]
    ) -> Iterator[Result]:
        """Yield `function(batch)` for each batch of the pairs; `Batch.rows` are the indices of its pairs."""

        def work(rows: list[int]) -> list[Result]:
            source, target = ([np.asarray(side[row], dtype=np.int32) for row in rows] for side in (sources, targets))
            batch = collate(source, target, np.asarray(rows)).to(self.device)
            with self.arithmetic():
                return [function(batch)]

        source_lengths, target_lengths = lengths_of(sources), lengths_of(targets) + 1
        costs = FLOAT * target_lengths * (2 * source_lengths + 3 * len(self.tokenizers.target))
        return self._map_batches(work, sources, costs)

    def _map_batches(
        self, work: Callable[[list[int]], list[Result]], sentences: Sequence[Sequence[int]], costs: Int64Array
    ) -> Iterator[Result]:
        """Yield the results of `work` for the rows of each batch; `costs` are the bytes that each sentence takes."""
        self.model.eval()
        memory = MEMORY_CPU if self.device.type == "cpu" else MEMORY_GPU
        if self.map_batches is map_in_threads:
            memory //= torch.get_num_threads()
        unit, size = self.search.batch_unit, self.search.batch_size
        batches = plan_sentences(lengths_of(sentences), costs, unit=unit, size=size, memory=memory)
        work_in_memory = torch.inference_mode()(partial(halve_on_memory_error, work))
        for rows, results in zip(batches, self.map_batches(work_in_memory, batches), strict=True):
            yield from results
            self.progress(len(rows))

    def _search_costs(self, ids: list[list[int]], n: int, sampling: SamplingConfig | None) -> Int64Array:
        """Estimate the bytes that searching each sentence takes: attention of all steps, and the scores of one step."""
        width = n if sampling else max(self.search.beam_size, n)
        lengths = lengths_of(ids) + 1
        return FLOAT * width * (3 * longest_targets(lengths, self.search) * lengths + 3 * len(self.tokenizers.target))

    def _search_batch(self, ids: list[list[int]], n: int, sampling: SamplingConfig | None) -> list[list[Hypothesis]]:
        source, source_mask, source_lengths = pad([np.asarray(row, dtype=np.int32) for row in ids])
        inputs = source.to(self.device), source_mask.to(self.device), source_lengths
        with self.arithmetic():
            return search_batch(
                self.model, *inputs, self.search, n=n, sampling=sampling, with_unk=self.replaces_unknown
            )

    def words_of(self, side: Tokenizer | Vocabulary, ids: Iterable[int], line: str | None = None) -> Words:
        """Return the words of translations, as `words` says, and the index of each piece's word."""
        return side.display_words(ids, line) if self.words == "split" else side.words(ids, line)

    def arithmetic(self) -> torch.autocast:
        """Return the context in which the model computes, as `precision` says."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def _translation(self, sentence: str, ids: list[int], hypothesis: Hypothesis) -> Translation:
        tokens = hypothesis.tokens
        text, alignment = self.tokenizers.target.decode([tokens])[0], empty_alignment()
        words: Words = [], []
        if self.with_alignment or self.replaces_unknown:
            source_words = self.words_of(self.tokenizers.source, ids, sentence)
            words = self.words_of(self.tokenizers.target, tokens)
            alignment = alignment_of_words(source_words, words, hypothesis.weights)
            if self.replaces_unknown:
                _, word_of_piece = words
                unknown = [word for word, token in zip(word_of_piece, tokens, strict=True) if token == UNK]
                alignment = copy_unknown_words(alignment, unknown)
                words = alignment.target_words, word_of_piece
                text = text_of(alignment.target_words)
            if self.with_alignment and self.words == "split":
                alignment = split_characters(alignment)
        return Translation(
            **vars(alignment),
            source=sentence,
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            pieces=self.tokenizers.target.pieces(tokens),
            words=words,
            cut=hypothesis.is_cut,
        )


def ignore(count: int) -> None:
    """Report no progress."""


def exponential(x: float) -> float:
    """Return e^x, or infinity where it overflows, as for the loss of a training that has diverged."""
    return math.inf if x > MAX_EXPONENT else math.exp(x)
