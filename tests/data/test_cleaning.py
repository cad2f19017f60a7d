import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import CleaningConfig
from nmt.data.corpus import CleaningReport, clean
from nmt.errors import UserError

lines = st.lists(st.sampled_from(["a", " ", "  ", "\u3000", "\t", "b\u00a0c"]), max_size=12).map("".join)


def words(count: int) -> str:
    return " ".join(["w"] * count)


def corpus_of(pairs: list[tuple[str, str]]) -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {
            "source": [s for s, _ in pairs],
            "target": [t for _, t in pairs],
            "alignment": [str(i) for i in range(len(pairs))],
        }
    )


@pytest.mark.parametrize(
    ("source", "target", "rule"),
    [
        (1, 1, None),
        (0, 1, "empty"),
        (1, 0, "empty"),
        (0, 40, "empty"),
        (20, 20, None),
        (21, 20, "too_long"),
        (1, 21, "too_long"),
        (1, 7, None),
        (1, 8, "uneven"),
        (10, 4, None),
        (14, 4, "uneven"),
    ],
)
def test_each_rule(source: int, target: int, rule: str | None) -> None:
    corpus = corpus_of([(words(source), words(target)), ("kept", "kept")])
    cleaned, report = clean(corpus, CleaningConfig(max_length=20, max_ratio=2))
    assert {name: getattr(report, name) for name in ("empty", "too_long", "uneven") if getattr(report, name)} == (
        {rule: 1} if rule else {}
    )
    assert cleaned["alignment"][:] == (["1"] if rule else ["0", "1"])
    assert report.kept == len(cleaned)


@given(st.lists(st.tuples(lines, lines)), st.integers(1, 5), st.floats(1, 3))
def test_against_a_plain_loop(pairs: list[tuple[str, str]], max_length: int, max_ratio: float) -> None:
    pairs = [*pairs, ("a", "a")]
    counts = [sorted((len(s.split()), len(t.split()))) for s, t in pairs]
    kept = [
        i
        for i, (shorter, longer) in enumerate(counts)
        if shorter > 0 and longer <= max_length and longer <= max_ratio * shorter + 5
    ]
    cleaned, report = clean(corpus_of(pairs), CleaningConfig(max_length=max_length, max_ratio=max_ratio))
    assert cleaned["alignment"][:] == [str(i) for i in kept]
    assert report.kept == len(kept)
    assert report.total == len(pairs)


def test_a_corpus_that_was_reordered() -> None:
    corpus = corpus_of([("a", "a"), ("", "a"), ("b", "b")]).select(np.array([2, 1, 0, 1]))
    cleaned, report = clean(corpus, CleaningConfig())
    assert cleaned["source"][:] == ["b", "a"]
    assert report.empty == 2


def test_summary() -> None:
    report = CleaningReport(total=29_000, empty=1, too_long=2, uneven=3, config=CleaningConfig())
    assert str(report) == (
        "kept 28,994 of 29,000 pairs; dropped 1 with an empty side, 2 longer than 200 words, "
        "3 with a length ratio above 9"
    )


def test_nothing_left() -> None:
    with pytest.raises(
        UserError,
        match=r"cleaning leaves nothing of the corpus: kept 0 of 2 pairs; dropped 2 with an empty side.*data.cleaning",
    ):
        clean(corpus_of([("", "a"), ("b", " ")]), CleaningConfig())


def test_a_sentence_without_spaces_is_as_long_as_its_characters() -> None:
    """One part between spaces against 20 words: even. Against a single character: not."""
    pairs = [(words(20), "猫三天后买了一辆旧自行车。"), ("ก" * 90, "Yes."), (words(30), "猫")]
    cleaned, report = clean(corpus_of(pairs), CleaningConfig())
    assert cleaned["alignment"][:] == ["0", "1"]
    assert report.uneven == 1


def test_a_character_of_a_script_without_spaces_is_a_word_of_a_long_line() -> None:
    corpus = corpus_of([("猫" * 21, "ก" * 21), ("猫" * 20, "ก" * 20)])
    cleaned, report = clean(corpus, CleaningConfig(max_length=20))
    assert (report.too_long, cleaned["source"][:]) == (1, ["猫" * 20])
