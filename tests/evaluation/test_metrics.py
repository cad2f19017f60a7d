import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.schema import DataConfig, TokenizerConfig, TrainConfig
from nmt.errors import UserError
from nmt.evaluation.metrics import (
    Score,
    bleu,
    bleu_by_length,
    bleu_interval,
    bleu_tokenizer,
    chrf,
    corpus_score,
    paired_bootstrap,
    repetition_rate,
    sentence_chrf,
    ter,
)
from nmt.evaluation.outcome import Outcome
from nmt.evaluation.registry import METRICS
from nmt.text.words import text_words
from nmt.translator import Translation

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=12)
REFERENCES = [f"the {color} cat number {n} sleeps on the mat ." for n in range(20) for color in ("red", "blue")]
GOOD = [line.replace("sleeps", "sleep") if n % 5 == 0 else line for n, line in enumerate(REFERENCES)]
BAD = [" ".join(line.split()[::-1]) if n % 2 else line for n, line in enumerate(REFERENCES)]


def plain_bleu(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. (2002) on words, for corpora in which every n-gram order matches at least once."""
    log_precision = 0.0
    for n in range(1, 5):
        matches = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            grams, wanted = (
                Counter(tuple(line.split()[k : k + n]) for k in range(len(line.split()) - n + 1))
                for line in (hypothesis, reference)
            )
            matches += sum(min(count, wanted[gram]) for gram, count in grams.items())
            total += sum(grams.values())
        log_precision += math.log(matches / total) / 4
    lengths = [sum(len(line.split()) for line in side) for side in (hypotheses, references)]
    return 100 * math.exp(min(0.0, 1 - lengths[1] / lengths[0]) + log_precision)


def test_bleu_is_that_of_the_paper() -> None:
    shorter = [line.replace(" the mat", "") for line in GOOD]
    for hypotheses in (GOOD, BAD, shorter):
        assert corpus_score(bleu(), hypotheses, REFERENCES).value == pytest.approx(plain_bleu(hypotheses, REFERENCES))


def test_perfect_translations_have_perfect_scores() -> None:
    assert corpus_score(bleu(), REFERENCES, REFERENCES).value == pytest.approx(100)
    assert corpus_score(chrf(), REFERENCES, REFERENCES).value == pytest.approx(100)
    assert corpus_score(ter(), REFERENCES, REFERENCES).value == 0
    assert bleu_interval(REFERENCES, REFERENCES)[0] == pytest.approx((100, 100))


def test_ter_counts_edits_against_reference_words() -> None:
    assert corpus_score(ter(), ["a b x d"], ["a b c d e"]).value == pytest.approx(100 * 2 / 5)


def test_signatures_name_the_settings() -> None:
    signatures = {build: corpus_score(build(), GOOD, REFERENCES).signature for build in (bleu, chrf, ter)}
    assert "tok:13a" in signatures[bleu]
    assert "bs:" not in signatures[bleu]
    assert "bs:1000" in bleu_interval(GOOD, REFERENCES)[1]
    assert "tok:none" in corpus_score(bleu("none"), GOOD, REFERENCES).signature
    assert all("case:mixed" in signature and "version:" in signature for signature in signatures.values())
    for metric in (bleu("none", lowercase=True), chrf(lowercase=True), ter(lowercase=True)):
        assert "case:lc" in corpus_score(metric, GOOD, REFERENCES).signature


def test_lowercase_ignores_case_everywhere() -> None:
    upper = [line.upper() for line in REFERENCES]
    assert corpus_score(bleu(lowercase=True), upper, REFERENCES).value == pytest.approx(100)
    assert corpus_score(chrf(lowercase=True), upper, REFERENCES).value == pytest.approx(100)
    assert corpus_score(ter(lowercase=True), upper, REFERENCES).value == 0
    assert corpus_score(ter(), upper, REFERENCES).value > 50


def test_confidence_interval_holds_the_score_and_is_reproducible() -> None:
    first, again = bleu_interval(BAD, REFERENCES), bleu_interval(BAD, REFERENCES)
    low, high = first[0]
    assert first == again
    assert low < corpus_score(bleu(), BAD, REFERENCES).value < high


@pytest.mark.parametrize(("tokenize", "warns"), [("13a", True), ("none", False)])
def test_text_that_looks_tokenized_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, tokenize: str, warns: bool
) -> None:
    tokenized = [f"line {n} ends ." for n in range(100)]
    with caplog.at_level("WARNING", logger="sacrebleu"):
        corpus_score(bleu(tokenize), tokenized, tokenized)
        assert not caplog.records
        bleu_interval(tokenized, tokenized, tokenize=tokenize)
    assert bool(caplog.records) == warns


def test_sentence_chrf_is_by_sentence() -> None:
    assert sentence_chrf(["abc", "xyz"], ["abc", "abc"]) == [pytest.approx(100), 0]
    assert sentence_chrf(["", " ", "a", ""], ["", "", "", "a"]) == [100, 100, 0, 0]


def test_buckets_end_at_multiples_of_ten() -> None:
    sources = ["w " * 10, "w " * 11, "w " * 20, "w", "", "w " * 35]
    right, wrong = "one two three four five", "six seven eight nine ten"
    hypotheses = [right, wrong, wrong, right, wrong, right]
    buckets = bleu_by_length(sources, hypotheses, [right] * 6)
    ranges = [(each["min_words"], each["max_words"], each["sentences"]) for each in buckets]
    assert ranges == [(1, 10, 2), (11, 20, 2), (31, 40, 1)]
    assert [each["bleu"] for each in buckets] == pytest.approx([100, 0, 100])


@pytest.mark.parametrize(
    ("sentence", "rate"),
    [("a b a b c", 2 / 5), ("the the the", 2 / 3), ("a b c a", 0), ("a b c d a b c d", 1 / 2), ("a b c d e " * 2, 0)],
)
def test_repetition_rate_of_examples(sentence: str, rate: float) -> None:
    assert repetition_rate([sentence]) == pytest.approx(rate)


@given(WORDS)
@settings(max_examples=200, deadline=None)
def test_repetition_rate_is_its_definition(words: list[str]) -> None:
    def copied(i: int) -> bool:
        starts = [(n, j) for n in range(1, 5) for j in range(i - n + 1, i + 1) if n <= j <= len(words) - n]
        return any(all(words[j + k] == words[j + k - n] for k in range(n)) for n, j in starts)

    rate = repetition_rate([" ".join(words)])
    assert rate == (pytest.approx(sum(map(copied, range(len(words)))) / len(words)) if words else None)


def test_paired_bootstrap_knows_better_from_equal() -> None:
    better = paired_bootstrap(bleu(), GOOD, BAD, REFERENCES)
    worse = paired_bootstrap(bleu(), BAD, GOOD, REFERENCES)
    equal = paired_bootstrap(chrf(), GOOD, GOOD, REFERENCES)
    assert better["difference"] == pytest.approx(plain_bleu(GOOD, REFERENCES) - plain_bleu(BAD, REFERENCES))
    assert worse["difference"] == -better["difference"]
    assert better["p_value"] < 0.01
    assert (equal["difference"], equal["p_value"]) == (0, 1)
    assert "bs:1000" in better["signature"]


def test_one_sentence_is_no_evidence_of_a_difference() -> None:
    only = paired_bootstrap(bleu(), GOOD[:1], ["another sentence"], REFERENCES[:1])
    assert only["difference"] > 0
    assert only["p_value"] == 1


def test_wrong_input_says_what_is_wrong() -> None:
    with pytest.raises(UserError, match="2 translations cannot be scored against 1 references"):
        corpus_score(bleu(), ["a", "b"], ["a"])
    with pytest.raises(UserError, match="nothing to score"):
        corpus_score(chrf(), [], [])
    with pytest.raises(UserError, match="bleu_tokenize=ja-mecab is not available here"):
        corpus_score(bleu("ja-mecab"), ["a"], ["a"])


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("ZH_tw", "zh"),
        ("ja", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("th", "char"),
        ("km-KH", "char"),
        ("de", "13a"),
        ("", "13a"),
    ],
)
def test_bleu_goes_by_the_target_language(language: str, tokenizer: str) -> None:
    data = DataConfig(source_language="zh", target_language=language)
    assert bleu_tokenizer(TrainConfig(data=data)) == tokenizer
    assert bleu_tokenizer(TrainConfig(data=data, bleu_tokenize="intl")) == "intl"
    segmented = TokenizerConfig(kind="whitespace")
    assert bleu_tokenizer(TrainConfig(data=data, tokenizer=segmented)) == "13a"
    assert bleu_tokenizer(TrainConfig(data=data, tokenizer=segmented, bleu_tokenize="none")) == "none"


def test_chinese_has_a_score() -> None:
    hypothesis, reference = ["我们喜欢吃苹果和梨"], ["我们喜欢吃苹果和桃子"]
    assert corpus_score(bleu(), hypothesis, reference).value == 0
    assert corpus_score(bleu("zh"), hypothesis, reference).value > 50


def test_a_tokenizer_that_is_not_here_is_told() -> None:
    bleu("zh")
    with pytest.raises(UserError, match="bleu_tokenize=ko-mecab is not available here"):
        bleu("ko-mecab")
    for name, package in (("ja-mecab", "sacrebleu[ja]"), ("ko-mecab", "sacrebleu[ko]")):
        with pytest.raises(UserError, match=re.escape(f"here: pip install '{package}', or count characters")):
            bleu(name)


def test_ter_counts_chinese_characters() -> None:
    """One of four characters is wrong; without the option the sentence is one word, and wrong."""
    hypothesis, reference = "猫买书。", "猫卖书。"
    translation = Translation(
        [], [], np.zeros((0, 0)), source="", text=hypothesis, score=0, log_prob=0, pieces=[], words=([], [])
    )
    score = METRICS["ter"].measure(Outcome(translations=[translation], references=[reference]))
    assert isinstance(score, Score)
    assert score.value == pytest.approx(25)
    assert "norm:yes" in score.signature
    assert "asian:yes" in score.signature
    plain = corpus_score(ter(), [hypothesis], [reference])
    assert (plain.value, "asian:no" in plain.signature) == (100, True)
    western = METRICS["ter"].measure(
        Outcome(translations=[replace(translation, text="a b c 猫")], references=["a b c d"])
    )
    assert isinstance(western, Score)
    assert western == corpus_score(ter(), ["a b c 猫"], ["a b c d"])


def test_ter_counts_thai_characters() -> None:
    """One of seven is wrong, and not the whole sentence."""
    hypothesis, reference = "แมวกินปลา", "แมวกินปลก"
    words = [text_words(line) for line in (hypothesis, reference)]
    assert len(words[0]) == len(words[1])
    wrong = sum(one != other for one, other in zip(*words, strict=True))
    translation = Translation(
        [], [], np.zeros((0, 0)), source="", text=hypothesis, score=0, log_prob=0, pieces=[], words=([], [])
    )
    score = METRICS["ter"].measure(Outcome(translations=[translation], references=[reference]))
    assert isinstance(score, Score)
    assert score.value == pytest.approx(100 * wrong / len(words[1]))
    assert score.value < 40


def test_characters_are_the_words_of_scripts_without_spaces() -> None:
    assert repetition_rate(["买书买书。"]) == pytest.approx(2 / 5)
    assert repetition_rate(["dog. dog."]) == pytest.approx(1 / 2)
    buckets = bleu_by_length(["猫" * 12, "a b c."], ["x", "y"], ["x", "y"])
    assert [(each["min_words"], each["sentences"]) for each in buckets] == [(1, 1), (11, 1)]
