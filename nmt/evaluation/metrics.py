"""Scores of translated text: BLEU, chrF and TER by sacrebleu, each with its signature; repetition."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from nmt.config.schema import TrainConfig
from nmt.errors import UserError, one_line
from nmt.text.words import plain_words

NUM_RESAMPLES = 1_000
BUCKET_WIDTH = 10
MAX_REPEATED_NGRAM = 4

# Languages with particles joined to words, or without spaces: sacrebleu's defaults, and characters where it has none.
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"} | dict.fromkeys(("th", "lo", "km", "my"), "char")
EXTRAS = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}  # the packages of tokenizers


class Score(NamedTuple):
    """A score of a corpus and sacrebleu's signature of its settings."""

    value: float
    signature: str


def bleu(tokenize: str = "13a", lowercase: bool = False, *, warn: bool = False, of_sentences: bool = False) -> BLEU:
    """BLEU (Papineni et al., 2002), from 0 to 100; raise UserError if the tokenizer is not available.

    With `warn`, sacrebleu warns about text that looks tokenized. `of_sentences`: one is added to the counts of n-grams
    of two and more words (Lin & Och, 2004).
    """
    smoothing: dict[str, Any] = (
        {"smooth_method": "add-k", "smooth_value": 1, "effective_order": True} if of_sentences else {}
    )
    try:
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=not warn, **smoothing)
    except (ImportError, RuntimeError, OSError) as error:
        if tokenize in EXTRAS:
            advice = f"pip install '{EXTRAS[tokenize]}', or count characters with bleu_tokenize=char"
        else:
            advice = f"({one_line(error)}): install what it needs or choose 13a"
        raise UserError(f"bleu_tokenize={tokenize} is not available here: {advice}") from error


def chrf(tokenize: str = "13a", lowercase: bool = False) -> CHRF:
    """ChrF (Popovic, 2015) with beta = 2 (Popovic, 2016), 0 to 100; it has no tokenizer."""
    return CHRF(lowercase=lowercase)


def ter(lowercase: bool = False, *, asian: bool = False) -> TER:
    """Translation edit rate (Snover et al., 2006), at least 0, in percent; its tokenizer is its own.

    `asian`: Chinese characters and East Asian marks are words, which takes its normalization as well.
    """
    return TER(case_sensitive=not lowercase, normalized=asian, asian_support=asian)


def bleu_tokenizer(config: TrainConfig) -> str:
    """Return sacrebleu's tokenizer for a run: `bleu_tokenize`, else by the target language; 13a of segmented text."""
    if config.bleu_tokenize is not None:
        return config.bleu_tokenize
    if config.tokenizer.kind == "whitespace":
        return "13a"
    language = config.data.target_language.lower().replace("_", "-").split("-")[0]
    return TOKENIZERS.get(language, "13a")


def corpus_score(metric: SacrebleuMetric, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Score detokenized hypotheses against a reference each; raise UserError for none, or where line counts differ."""
    check_lines(hypotheses, references)
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(value, str(metric.get_signature()))


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lowercase: bool = False
) -> tuple[list[float], str]:
    """Return the bounds of the 95% confidence interval of BLEU, and its signature, which holds the seed.

    It is sacrebleu's: the mean of 1,000 bootstrap resamples of the sentences (Koehn, 2004), plus or minus half the
    distance of their 2.5% and 97.5% quantiles. Where text looks tokenized, sacrebleu logs a warning.
    """
    metric = bleu(tokenize, lowercase, warn=tokenize != "none")
    score = metric.corpus_score(hypotheses, [references], n_bootstrap=NUM_RESAMPLES)
    bounds = [max(0.0, score._mean - score._ci), min(100.0, score._mean + score._ci)]
    return bounds, str(metric.get_signature())


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> list[float]:
    """ChrF of every sentence by itself, 0 to 100; where translation and reference are both blank, 100."""
    metric = CHRF(lowercase=lowercase)
    pairs = zip(hypotheses, references, strict=True)
    return [metric.sentence_score(h, [r]).score if h.strip() or r.strip() else 100.0 for h, r in pairs]


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> list[dict[str, Any]]:
    """Corpus BLEU of the sentences whose source has 1-10, 11-20, ... words (`plain_words`), where there are any."""
    buckets: dict[int, list[int]] = {}
    for index, source in enumerate(sources):
        words = len(plain_words(source))
        if words:
            buckets.setdefault((words - 1) // BUCKET_WIDTH, []).append(index)
    metric = bleu(tokenize, lowercase)
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
    """Share of words that belong to a copy of the n-gram directly before it.

    Word i is repeated if, for some n of 1 to 4, it lies in words j..j+n-1 that equal words j-n..j-1; the rate is
    repeated words / words. `a b a b c` has 2/5: the second `a b` copies the first. Nearly 0 in human text, and high
    where an attention model loops. Words are those of `plain_words`; None if there are none.
    """
    words = repeated = 0
    for sentence in sentences:
        tokens = plain_words(sentence)
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
    metric: SacrebleuMetric, hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """Compare with a baseline by paired bootstrap resampling (Koehn, 2004), as sacrebleu does it.

    Returns the `baseline`'s score, the `difference` (ours minus the baseline's), the `p_value` of the hypothesis that
    both systems are equally good (1 for a single sentence), and the `signature`.
    """
    systems = [("baseline", baseline), ("system", hypotheses)]
    test = PairedTest(systems, {"metric": metric}, [references], test_type="bs", n_samples=NUM_RESAMPLES)
    signatures, scores = test()
    ((name, signature),) = signatures.items()
    theirs, ours = scores[name]
    assert isinstance(theirs, Result)
    assert isinstance(ours, Result)
    difference = ours.score - theirs.score
    return {
        "baseline": theirs.score,
        "difference": difference,
        # sacrebleu gives 1/1001 to equal scores, and to a single sentence: no resample is strictly further apart.
        "p_value": ours.p_value if difference and len(references) > 1 else 1.0,
        "signature": str(signature),
    }


def check_lines(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise UserError unless there is a reference for each translation, and at least one."""
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "give one reference a translation"
        )
    if not references:
        raise UserError("there is nothing to score: the corpus has no sentences; give one that has some")
