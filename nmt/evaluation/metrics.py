"""Scores of translations: BLEU, chrF and TER by sacrebleu, each with the signature that makes it comparable."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from nmt.config.schema import TrainConfig
from nmt.errors import UserError

NUM_RESAMPLES = 1_000
BUCKET_WIDTH = 10
MAX_REPEATED_NGRAM = 4

# Languages written without spaces, or with particles joined: sacrebleu's own defaults.
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


class Scores(NamedTuple):
    """Scores of a corpus: BLEU and chrF of at most 100, TER of at least 0."""

    bleu: float
    chrf: float
    ter: float
    signatures: dict[str, str]
    bleu_ci95: tuple[float, float]


def bleu_tokenizer(config: TrainConfig) -> str:
    """Return the tokenizer by which a run's translations are scored: the one it names, else by its target language.

    Text that is segmented already brings its words, in whatever language.
    """
    if config.bleu_tokenize is not None:
        return config.bleu_tokenize
    if config.tokenizer.kind == "whitespace":
        return "13a"
    language = config.data.target_language.lower().replace("_", "-").split("-")[0]
    return TOKENIZERS.get(language, "13a")


def check_tokenizer(name: str) -> None:
    """Refuse a tokenizer of BLEU that cannot be loaded here, before anything is translated.

    Raises:
        UserError: naming what it lacks.
    """
    _bleu(name, lowercase=False)


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lowercase: bool = False
) -> Scores:
    """Score detokenized hypotheses against one reference each.

    The 95% confidence interval of BLEU is sacrebleu's: the mean of 1,000 bootstrap resamples of the sentences
    (Koehn, 2004), plus or minus half the distance of their 2.5% and 97.5% quantiles; its seed is in its signature.
    TER tells case apart as BLEU does, unless `lowercase`.

    Raises:
        UserError: there is nothing to score, the line counts differ or the tokenizer is not available.
    """
    check_lines(hypotheses, references)
    bleu = _bleu(tokenize, lowercase, force=tokenize == "none")
    point = bleu.corpus_score(hypotheses, [references])
    signature = str(bleu.get_signature())
    bleu = _bleu(tokenize, lowercase)
    interval = bleu.corpus_score(hypotheses, [references], n_bootstrap=NUM_RESAMPLES)
    chrf = CHRF(lowercase=lowercase)
    ter = TER(case_sensitive=not lowercase)
    return Scores(
        bleu=point.score,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        ter=ter.corpus_score(hypotheses, [references]).score,
        signatures={
            "bleu": signature,
            "bleu_ci95": str(bleu.get_signature()),
            "chrf": str(chrf.get_signature()),
            "ter": str(ter.get_signature()),
        },
        bleu_ci95=(max(0.0, interval._mean - interval._ci), min(100.0, interval._mean + interval._ci)),
    )


def quick_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lowercase: bool = False
) -> dict[str, float]:
    """`bleu` and `chrf` only, the same as those of `corpus_scores`: cheap enough for every validation.

    Raises:
        UserError: as `corpus_scores`.
    """
    check_lines(hypotheses, references)
    metrics: dict[str, Metric] = {"bleu": _bleu(tokenize, lowercase), "chrf": CHRF(lowercase=lowercase)}
    return {name: metric.corpus_score(hypotheses, [references]).score for name, metric in metrics.items()}


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> list[float]:
    """ChrF of every sentence by itself, 0 to 100."""
    metric = CHRF(lowercase=lowercase)
    return [metric.sentence_score(h, [r]).score for h, r in zip(hypotheses, references, strict=True)]


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> list[dict[str, Any]]:
    """Corpus BLEU of the sentences whose source has 1-10, 11-20, ... words, an entry for each bucket with any.

    An entry has `min_words`, `max_words`, `sentences` and `bleu`. Sources without words are in no bucket.
    """
    buckets: dict[int, list[int]] = {}
    for index, source in enumerate(sources):
        words = len(source.split())
        if words:
            buckets.setdefault((words - 1) // BUCKET_WIDTH, []).append(index)
    metric = _bleu(tokenize, lowercase)
    return [
        {
            "min_words": bucket * BUCKET_WIDTH + 1,
            "max_words": (bucket + 1) * BUCKET_WIDTH,
            "sentences": len(members),
            "bleu": metric.corpus_score([hypotheses[i] for i in members], [[references[i] for i in members]]).score,
        }
        for bucket, members in sorted(buckets.items())
    ]


def repetition_rate(sentences: Sequence[str]) -> float | None:
    """Share of words that stutter: that belong to a copy of an n-gram which stands directly before it.

    Word i is repeated if, for some n of 1 to 4, it lies in words j..j+n-1 that equal words j-n..j-1; the rate is
    repeated words / words. `a b a b c` has 2/5: the second `a b` copies the first. Nearly 0 in human text, and high
    where an attention model loops. None where there are no words.
    """
    words = repeated = 0
    for sentence in sentences:
        tokens = sentence.split()
        words += len(tokens)
        repeated += len(_repeated_positions(tokens))
    return repeated / words if words else None


def _repeated_positions(tokens: Sequence[str]) -> set[int]:
    positions: set[int] = set()
    for n in range(1, MAX_REPEATED_NGRAM + 1):
        for start in range(n, len(tokens) - n + 1):
            if tokens[start : start + n] == tokens[start - n : start]:
                positions.update(range(start, start + n))
    return positions


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> dict[str, dict[str, Any]]:
    """Compare with a baseline by paired bootstrap resampling (Koehn, 2004), as sacrebleu does it.

    Returns for `bleu` and `chrf`: the `baseline`'s score, the `difference` (ours minus the baseline's), the `p_value`
    of the hypothesis that both systems are equally good, and the `signature`.

    Raises:
        UserError: as `corpus_scores`.
    """
    check_lines(hypotheses, references)
    check_lines(baseline, references)
    compared: dict[str, Metric] = {"bleu": _bleu(tokenize, lowercase), "chrf": CHRF(lowercase=lowercase)}
    result: dict[str, dict[str, Any]] = {}
    for name, metric in compared.items():
        systems = [("baseline", baseline), ("system", hypotheses)]
        test = PairedTest(systems, {name: metric}, [references], test_type="bs", n_samples=NUM_RESAMPLES)
        signatures, scores = test()
        (key,) = signatures
        theirs, ours = scores[key]
        assert isinstance(theirs, Result)
        assert isinstance(ours, Result)
        difference = ours.score - theirs.score
        result[name] = {
            "baseline": theirs.score,
            "difference": difference,
            # sacrebleu gives 1/1001 to equal translations: none of its resamples is strictly further apart.
            "p_value": ours.p_value if difference else 1.0,
            "signature": str(signatures[key]),
        }
    return result


def check_lines(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse to score nothing, or sides of different lengths.

    Raises:
        UserError: with both counts.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "give one reference a translation"
        )
    if not references:
        raise UserError("there is nothing to score: the corpus has no sentences; give one that has some")


def _bleu(tokenize: str, lowercase: bool, force: bool = True) -> BLEU:
    """`force` keeps sacrebleu from warning about text that looks tokenized."""
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=force)
    except (ImportError, RuntimeError, OSError) as error:
        first_line = str(error).strip().split("\n")[0]
        raise UserError(
            f"bleu_tokenize={tokenize} is not available here ({first_line}): install what it needs or choose 13a"
        ) from error
