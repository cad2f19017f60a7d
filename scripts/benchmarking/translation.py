"""The speed of translation: a whole file, from text to text, through the translator that users run."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sacrebleu.metrics.base import Metric

from benchmarking.machine import describe, synchronize
from benchmarking.training import peak_memory, spread
from nmt.evaluation.metrics import corpus_score
from nmt.translator import Translation, Translator


def measure_translation(
    translator: Translator, sources: Sequence[str], references: Sequence[str], *, metric: Metric, repeats: int
) -> dict[str, Any]:
    """Return speed, memory and BLEU of translating sentences.

    Seconds are those from lines of text to lines of text alone, as `nmt.translate` gives without further options:
    segmentation, search and joining pieces to words, without loading. Where the corpus is segmented already, references
    are joined to words as the translations are.

    Args:
        translator: a translator, as `start_translating` returns it.
        sources: the sentences.
        references: their reference translations.
        metric: BLEU, as the run is scored.
        repeats: the number of measurements, after one to warm up.
    """
    translator.with_alignment = False
    timed_translation(translator, sources)
    measured = [timed_translation(translator, sources) for _ in range(repeats)]
    memory = peak_memory(translator.device)
    median = statistics.median(seconds for seconds, _ in measured)
    rates = [len(sources) / seconds for seconds, _ in measured]
    translations = measured[-1][1]
    pieces = sum(len(each.pieces) for each in translations)
    texts = [each.text for each in translations]
    score = corpus_score(metric, texts, translator.tokenizers.target.detokenize(references))
    return {
        "sentences_per_second": len(sources) / median,
        "sentences_per_second_of_repeats": rates,
        "spread": spread(rates),
        "output_tokens_per_second": (pieces + len(sources)) / median,  # one end mark a sentence
        "bleu": score.value,
        "bleu_signature": score.signature,
        "mean_output_length": pieces / len(sources),
        "seconds": median,
        "sentences": len(sources),
        "precision": translator.precision,
        "search": asdict(translator.search),
        "checkpoint": None if translator.checkpoint is None else str(translator.checkpoint),
        "step": translator.step,
        "repeats": repeats,
        **memory,
        **describe(translator.device),
    }


def timed_translation(translator: Translator, sources: Sequence[str]) -> tuple[float, list[Translation]]:
    """Return the seconds that translating sentences takes, and the translations."""
    synchronize(translator.device)
    began = time.perf_counter()
    translations = translator.translate(sources)
    synchronize(translator.device)
    return time.perf_counter() - began, translations
