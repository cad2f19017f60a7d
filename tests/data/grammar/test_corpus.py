"""The built-in corpus: the same everywhere, French a function of English, links and spelling right."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import combinations, islice
from typing import TypeVar

import pytest

from nmt.config.schema import GrammarConfig
from nmt.data.grammar import lexicon
from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.clauses import Clauses, Context
from nmt.data.grammar.corpus import AlignedPair, generate, sentences
from nmt.data.grammar.nouns import NounPhrases
from nmt.data.grammar.phrase import Phrase, spell
from nmt.data.grammar.words import Agreement, Kind, Tense
from nmt.data.tables import SPLITS
from nmt.errors import UserError

T = TypeVar("T")

SMALL = GrammarConfig(train_size=1_500, validation_size=40, test_size=60, long_size=20)
VOWEL = "[aeiouyàâéèêëîïôœùûh]"
ASPIRATED = "(?!hibou|héros|huit)"


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[AlignedPair]]:
    return {split: generate(SMALL, split) for split in SPLITS}


@pytest.fixture(scope="module")
def pairs(corpus: dict[str, list[AlignedPair]]) -> list[AlignedPair]:
    return [pair for split in SPLITS for pair in corpus[split]]


def links(alignment: str) -> list[tuple[int, str, int]]:
    return [(int(i), mark, int(j)) for i, mark, j in re.findall(r"(\d+)([-?])(\d+)", alignment)]


# --- the corpus ---------------------------------------------------------------------------------------------


def test_sizes_and_bounds(corpus: dict[str, list[AlignedPair]]) -> None:
    assert [len(corpus[split]) for split in SPLITS] == [1_500, 40, 60, 20]
    for split in SPLITS:
        shortest = 40 if split == "test_long" else 3
        assert all(shortest <= len(pair.source.split()) <= 60 for pair in corpus[split])


def test_bounds_are_obeyed() -> None:
    config = GrammarConfig(train_size=50, long_size=50, min_length=5, max_length=12, long_length=10)
    assert {len(pair.source.split()) for pair in generate(config, "train")} <= set(range(5, 13))
    assert {len(pair.source.split()) for pair in generate(config, "test_long")} <= set(range(10, 13))


def test_lengths_are_mostly_short_with_a_long_tail(corpus: dict[str, list[AlignedPair]]) -> None:
    lengths = [len(pair.source.split()) for pair in corpus["train"]]
    assert 12 <= sum(lengths) / len(lengths) <= 15
    assert sum(length < 20 for length in lengths) > 0.7 * len(lengths)
    assert sum(length > 40 for length in lengths) > 0.01 * len(lengths)
    assert max(lengths) > 50


def test_splits_do_not_overlap(corpus: dict[str, list[AlignedPair]]) -> None:
    sources = {split: {pair.source for pair in corpus[split]} for split in SPLITS}
    assert all(len(sources[split]) == len(corpus[split]) for split in SPLITS)
    assert not any(sources[one] & sources[other] for one, other in combinations(SPLITS, 2))


def test_splits_of_short_sentences_do_not_overlap_either() -> None:
    """There are few sentences of 3 words, so only their dealing out by checksum keeps the splits apart."""
    config = GrammarConfig(train_size=250, validation_size=25, test_size=25, max_length=3)
    train, validation, test = ({pair.source for pair in generate(config, split)} for split in SPLITS[:3])
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_a_smaller_split_is_the_beginning_of_a_larger_one(corpus: dict[str, list[AlignedPair]]) -> None:
    assert generate(GrammarConfig(test_size=20), "test") == corpus["test"][:20]


def test_seeds_differ() -> None:
    assert generate(GrammarConfig(test_size=20, seed=2), "test") != generate(GrammarConfig(test_size=20), "test")


DIGEST = """
import hashlib
from nmt.config.schema import GrammarConfig
from nmt.data.grammar.corpus import SPLITS, generate
config = GrammarConfig(train_size=40, validation_size=40, test_size=40, long_size=5)
print(hashlib.sha256(repr([generate(config, split) for split in SPLITS]).encode()).hexdigest())
"""


def test_other_processes_generate_the_same() -> None:
    config = GrammarConfig(train_size=40, validation_size=40, test_size=40, long_size=5)
    here = hashlib.sha256(repr([generate(config, split) for split in SPLITS]).encode()).hexdigest()
    for hash_seed in ("0", "12345"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        line = [sys.executable, "-c", DIGEST]
        there = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
        assert there.stdout.strip() == here


RECORDED = [
    AlignedPair(
        "The sister sees me when she meets this aunt.",
        "La sœur me voit quand elle rencontre cette tante.",
        "0-0 1-1 2-3 3-2 4-4 5-5 6-6 7-7 8-8",
    ),
    AlignedPair(
        "Luc did not go to the park.",
        "Luc n'est pas allé au parc.",
        "0-0 1?1 1?2 1?3 2?1 2-2 3-1 3-3 4-4 5?4 6-5",
    ),
]


RECORDED_DIGEST = "f6ac686539b71378fb11bc86bb666ab09928ff7bb8a590856ae1bfc579425181"


def test_recorded_pairs(corpus: dict[str, list[AlignedPair]]) -> None:
    """Any change of words or rules changes the corpus, and with it every published figure: record it here."""
    assert corpus["validation"][:2] == RECORDED
    assert (
        hashlib.sha256(repr([list(map(tuple, corpus[split])) for split in SPLITS]).encode()).hexdigest()
        == RECORDED_DIGEST
    )


def test_long_random_sentences_are_distinct() -> None:
    drawn = [pair.source for pair in islice(sentences(Chooser("distinct"), 3, 60), 1_000)]
    long = [source for source in drawn if len(source.split()) > 8]
    assert len(long) > 400
    assert len(set(long)) > 0.99 * len(long)


# --- French is a function of English ------------------------------------------------------------------------


def first_of(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """The first item of each key."""
    found: dict[object, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return tuple(found.values())


def few_words() -> lexicon.Lexicon:
    """One noun a kind and gender and one verb a frame, so that random sentences often meet."""
    words = lexicon.Lexicon()
    return lexicon.Lexicon(
        nouns=first_of(words.nouns, lambda noun: (noun.kind, noun.feminine)),
        names=first_of(words.names, lambda name: (name.kind, name.feminine)),
        adjectives=first_of(words.adjectives, lambda word: (word.kinds, word.before_noun)),
        determiners=first_of(words.determiners, lambda word: (bool(word.singular), word.definite)),
        intransitives=first_of(words.intransitives, lambda verb: verb.etre),
        transitives=words.transitives[:3],
        datives=words.datives[:1],
        reporting=words.reporting[:1],
    )


@pytest.mark.parametrize("words", [few_words(), lexicon.Lexicon()], ids=["few words", "all words"])
def test_the_same_english_always_has_the_same_french(words: lexicon.Lexicon) -> None:
    seen: dict[str, AlignedPair] = {}
    for pair in islice(sentences(Chooser("function"), 3, 12, words), 4_000):
        assert seen.setdefault(pair.source, pair) == pair
    assert len(seen) < 4_000  # some did meet


class Recorder(Clauses):
    """Clauses that record every predicate they make."""

    made: list[tuple[Context, str]]

    def predicate(self, context: Context) -> Phrase:
        phrase = super().predicate(context)
        self.made.append((context, spell(phrase)[0].lower()))
        return phrase


def test_predicates_are_joined_only_where_the_subject_is_plain_to_see() -> None:
    """`They saw the women who slept and left`: who left? So neither half of it may be joined."""
    clauses = Recorder(few_words(), Chooser("joined"))
    plain = 0
    for _ in range(300):
        clauses.made = []
        clauses.clause(16, Tense.PAST)
        assert sum(context.joined for context, _ in clauses.made) <= 1  # that of the main clause, never a relative one
        for context, english in clauses.made:
            if context.simple:
                plain += 1
                assert not re.search(r"\b(who|that|not|never|can|cannot|must|want|wants)\b", english)
    assert plain > 20


def test_every_english_word_has_one_french_lemma() -> None:
    words = lexicon.Lexicon()
    forms = [form for noun in words.nouns for form in noun.english]
    assert len(set(forms)) == len(forms)
    verbs = [*words.intransitives, *words.transitives, *words.datives, *words.obliques, *words.reporting]
    assert all(verb.base != verb.english[Tense.PAST][0] for verb in verbs)  # `read` would hide its tense
    assert not set(forms) & {form for verb in verbs for tense in Tense for form in verb.english[tense]}


# --- links and spelling -------------------------------------------------------------------------------------


def test_links_are_inside_and_reach_every_target_word(pairs: list[AlignedPair]) -> None:
    for pair in pairs:
        found = links(pair.alignment)
        assert len(found) == len(pair.alignment.split())
        assert all(i < len(pair.source.split()) for i, _, _ in found)
        assert {j for _, _, j in found} == set(range(len(pair.target.split())))
        sure = [j for _, mark, j in found if mark == "-"]
        assert len(sure) == len(set(sure))  # one sure source word at most
        assert len({(i, j) for i, _, j in found}) == len(found)


@pytest.mark.parametrize(
    "mistake",
    [
        rf"\b(le|la|de|ne|que|me|ce|ma|sa) {ASPIRATED}{VOWEL}",
        r"\b(de|à) les? ",
        r"\bsi ils?\b",
        r"\b(vieux|beau|nouveau) (homme|hôtel|arbre|oiseau|oncle|œuf|outil)\b",
        r"l'(hibou|héros|huit)",
        r"\b(\w+) \1\b(?<!nous nous)",
        r" [,.]|  |\bNone\b|/|_",
    ],
)
def test_french_spelling(pairs: list[AlignedPair], mistake: str) -> None:
    found = [pair.target for pair in pairs if re.search(mistake, pair.target, re.IGNORECASE)]
    assert not found, found[:5]


@pytest.mark.parametrize("mistake", [r"\ba [aeiou]", r"\ban [^aeiou]", r" [,.]|  |\bNone\b|/", r"\bcan not\b"])
def test_english_spelling(pairs: list[AlignedPair], mistake: str) -> None:
    found = [pair.source for pair in pairs if re.search(mistake, pair.source, re.IGNORECASE)]
    assert not found, found[:5]


def test_sentences_look_like_sentences(pairs: list[AlignedPair]) -> None:
    for pair in pairs:
        for line in (pair.source, pair.target):
            assert line[0].isupper()
            assert line.endswith(".")
            assert line.count(".") == 1


def test_the_promised_constructions_occur(corpus: dict[str, list[AlignedPair]]) -> None:
    french = "\n".join(pair.target for pair in corpus["train"])
    for words in (
        *("du", "des", "au", "aux", "de la", r"de l'\w+", r"l'homme", r"d'Anne", r"qu'il", r"s'il", r"n'\w+ pas"),
        *(
            r"ne \w+ jamais",
            r"n'a jamais",
            r"ne l'a pas",
            "bel",
            "vieil",
            "nouvel",
            "vieille",
            "cet",
            r"(mon|son) (araignée|école|église|étagère|horloge|orange|infirmière|actrice)",
        ),
        *("qui", "que", "parce que", "quand", "pendant que", "si", r"dit que", "il y a", "le hibou", "pommes de terre"),
    ):
        assert re.search(rf"\b{words}\b", french), words


def test_coordination_is_feminine_only_if_both_are() -> None:
    nouns = NounPhrases(few_words(), Chooser("coordination"))
    for _ in range(200):
        both = nouns.coordinated(5, Kind.ANIMAL)
        genders = [word.text for word in both.phrase.target if word.text.startswith(("chien", "vache"))]
        assert both.agreement == Agreement(all(word.startswith("vache") for word in genders), plural=True)


# --- mistakes of the user -----------------------------------------------------------------------------------


def test_unknown_split() -> None:
    with pytest.raises(UserError, match=r"unknown split 'tests'.*did you mean 'test'\?"):
        generate(GrammarConfig(), "tests")


@pytest.mark.parametrize(
    ("config", "split", "message"),
    [
        (GrammarConfig(min_length=20, max_length=10), "train", "min_length=20 is above data.grammar.max_length=10"),
        (GrammarConfig(max_length=30), "test_long", "long_length=40 is above data.grammar.max_length=30"),
        (GrammarConfig(max_length=3), "test", r"only \d+ of 1000 test sentences of 3 to 3 words could be found"),
    ],
)
def test_impossible_bounds(config: GrammarConfig, split: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.grammar.corpus.MAX_REJECTED", 100)
    with pytest.raises(UserError, match=message):
        generate(config, split)
