"""The built-in sentence pairs, judged by rules that do not know how they were made."""

from collections import Counter, defaultdict
from itertools import product

import pytest

from nmt.data.grammar.lexicon import Lexicon
from studies.entailment_pairs import CLASSES, Pair, generate
from studies.pair_classes import words_of
from studies.scenes import GENERAL, OPPOSITES

LEXICON = Lexicon()
VERBS = LEXICON.transitives + LEXICON.intransitives
FORMS = [{form for forms in verb.english.values() for form in forms} for verb in VERBS]
KINDS = {form: GENERAL[noun.kind] for noun in LEXICON.nouns for form in (*noun.english, *GENERAL[noun.kind])}
IS_A = {(form, GENERAL[noun.kind][number]) for noun in LEXICON.nouns for number, form in enumerate(noun.english)}


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return generate([150], seed=3)[0]


def exclude(one: str, other: str) -> bool:
    return one != other and any({one, other} <= set(group) for group in OPPOSITES)


def of_other_kinds(one: str, other: str) -> bool:
    return one in KINDS and other in KINDS and KINDS[one] != KINDS[other]


def differing(pair: Pair) -> list[tuple[str, str]]:
    """Linked words that are not the same, articles and forms of a verb left out."""
    premise, hypothesis = pair.premise.split(), pair.hypothesis.split()
    linked = [(premise[i], hypothesis[j]) for i, j in pair.gold.sure]
    same = [{"a", "an"}, *FORMS]
    return [words for words in linked if words[0] != words[1] and not any(set(words) <= forms for forms in same)]


def unlinked(pair: Pair) -> set[str]:
    """Words of the hypothesis without a link."""
    linked = {j for _, j in pair.gold.sure}
    return {word for j, word in enumerate(pair.hypothesis.split()) if j not in linked}


def test_a_hypothesis_has_a_premise_of_each_class(pairs: list[Pair]) -> None:
    labels = defaultdict(list)
    for pair in pairs:
        labels[pair.hypothesis].append(pair.label)
    assert len(labels) == 150
    assert all(sorted(each) == sorted(CLASSES) for each in labels.values())


def test_parts_share_no_hypothesis_and_follow_from_the_seed() -> None:
    first, second = generate([20, 10], seed=5)
    assert (len(first), len(second)) == (60, 30)
    assert not {pair.hypothesis for pair in first} & {pair.hypothesis for pair in second}
    assert generate([30], seed=5) == [first + second]
    assert generate([30], seed=6) != [first + second]


def test_what_is_entailed_is_in_the_premise(pairs: list[Pair]) -> None:
    for pair in pairs:
        if pair.label == "entailment":
            assert not unlinked(pair)
            assert all(words in IS_A for words in differing(pair))
            assert pair.premise != pair.hypothesis


def test_a_neutral_hypothesis_says_more_and_nothing_opposite(pairs: list[Pair]) -> None:
    for pair in pairs:
        if pair.label == "neutral":
            assert ("not" in pair.premise.split()) == ("not" in pair.hypothesis.split())
            narrower = [words for words in differing(pair) if words not in IS_A]
            assert all(words[::-1] in IS_A for words in narrower)
            assert unlinked(pair) or narrower


def test_a_contradiction_has_one_opposite_and_would_be_entailed_without_it(pairs: list[Pair]) -> None:
    kinds = Counter[object]()
    for pair in pairs:
        if pair.label == "contradiction":
            opposite = [words for words in differing(pair) if exclude(*words) or of_other_kinds(*words)]
            assert all(words in IS_A for words in differing(pair) if words not in opposite)
            denied = ("not" in pair.premise.split()) != ("not" in pair.hypothesis.split())
            assert len(opposite) + denied == 1
            assert unlinked(pair) <= ({"do", "does", "did", "not"} if denied else set())
            changed = "not" if denied else opposite[0][0]
            kinds["number" if changed in OPPOSITES[0] else "noun" if changed in KINDS else changed == "not"] += 1
    assert min(kinds.values()) > 10
    assert set(kinds) == {"number", "noun", True, False}


def test_no_word_has_two_possible_counterparts(pairs: list[Pair]) -> None:
    for pair in pairs:
        premise, hypothesis = pair.premise.split(), pair.hypothesis.split()
        assert max(Counter(premise).values()) == max(Counter(hypothesis).values()) == 1
        for (i, one), (j, other) in product(enumerate(premise), enumerate(hypothesis)):
            related = one == other or exclude(one, other) or {(one, other), (other, one)} & IS_A
            assert not related or (i, j) in pair.gold.sure, pair


def test_parts_of_a_negated_verb_do_not_differ(pairs: list[Pair]) -> None:
    negated = [pair for pair in pairs if " not " in pair.premise and " not " in pair.hypothesis]
    assert len(negated) > 30
    for pair in negated:
        premise, hypothesis = (text.partition(" not ")[2].partition(" and ")[0] for text in pair[:2])
        assert premise == hypothesis


def test_words_are_those_that_models_see(pairs: list[Pair]) -> None:
    for text in (text for pair in pairs for text in pair[:2]):
        assert words_of(text) == text.lower().split()
        assert " a a" not in text
        assert " a o" not in text
