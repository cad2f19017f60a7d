"""Worked examples of the grammar: phrases, agreement, inflection and what is aligned."""

from itertools import product

import pytest

from nmt.data.grammar import lexicon
from nmt.data.grammar.nouns import adjective_phrase, determine, introduce, possess
from nmt.data.grammar.phrase import Phrase, punctuation, spell, unit
from nmt.data.grammar.verbs import conjugate, infinitive
from nmt.data.grammar.words import Agreement, Preposition, Pronoun, Tense, Verb, add_s, inflect, plural

MAN, WOMEN = Agreement(), Agreement(feminine=True, plural=True)
HIM, HER = (pronoun for pronoun in lexicon.OBJECT_PRONOUNS if pronoun.english in ("him", "her"))


def find(english: str) -> Verb:
    words = lexicon.Lexicon()
    tables = (words.intransitives, words.transitives, words.datives, words.obliques, words.modals)
    return next(verb for table in tables for verb in table if f"{verb.base} {verb.particle}".strip() == english)


def the(english: str, french: str, agreement: Agreement = MAN) -> Phrase:
    return determine(lexicon.THE, agreement, unit(english, french))


def negated(english: str, tense: Tense, pronoun: Pronoun | None = None, subject: Agreement = MAN) -> Phrase:
    return conjugate(find(english), tense, subject, modifier=lexicon.NOT, pronoun=pronoun)


def not_seen() -> Phrase:
    return the("man", "homme") + negated("see", Tense.PAST, HER)


def never_loved() -> Phrase:
    return the("king", "roi") + conjugate(find("love"), Tense.PRESENT, MAN, modifier=lexicon.NEVER, pronoun=HIM)


def near_the_hotel() -> Phrase:
    near = next(word for word in lexicon.Lexicon().prepositions if word.english == "near")
    sleeps = unit("he", "il") + conjugate(find("sleep"), Tense.FUTURE, MAN)
    return sleeps + introduce(near, the("garden", "jardin")) + introduce(lexicon.OF, the("hotel", "hôtel"))


def seen_houses() -> Phrase:
    gap = conjugate(find("see"), Tense.PAST, MAN, gap=WOMEN)
    houses = the("houses", "maisons", WOMEN) + unit("that", "que") + unit("he", "il") + gap
    return houses + conjugate(lexicon.BE, Tense.PRESENT, WOMEN) + unit("old", "vieilles")


def cannot_speak() -> Phrase:
    can = negated("can", Tense.PRESENT, subject=WOMEN)
    king = introduce(Preposition("to", "à"), the("king", "roi"))
    return the("women", "femmes", WOMEN) + can + infinitive(find("speak")) + king


def wants_to_see() -> Phrase:
    if_he = unit("if", "si") + unit("he", "il")
    wants = if_he + negated("want to", Tense.PRESENT) + infinitive(find("look at"), pronoun=HIM)
    return wants + punctuation(",") + unit("she", "elle") + conjugate(find("leave"), Tense.PAST, Agreement(True))


def possessed_bird() -> Phrase:
    black, bird = unit("black", "noir"), unit("bird", "oiseau")
    black_bird = Phrase(black.source + bird.source, bird.target + black.target)
    return possess(unit("Anne", "Anne"), black_bird, MAN) + conjugate(find("sleep"), Tense.PRESENT, MAN)


@pytest.mark.parametrize(
    ("phrase", "source", "target", "alignment"),
    [
        (
            not_seen(),
            "The man did not see her.",
            "L'homme ne l'a pas vue.",
            "0?0 1-0 2?1 2?2 2?3 2?4 3-1 3-3 4-2 4-4 5?2",
        ),
        (never_loved(), "The king never loves him.", "Le roi ne l'aime jamais.", "0-0 1-1 2-2 2-4 3-3 4?3"),
        (
            near_the_hotel(),
            "He will sleep near the garden of the hotel.",
            "Il dormira près du jardin de l'hôtel.",
            "0-0 1?1 2-1 3-2 3-3 4?3 5-4 6-5 7?6 8-6",
        ),
        (
            seen_houses(),
            "The houses that he saw are old.",
            "Les maisons qu'il a vues sont vieilles.",
            "0-0 1-1 2?2 3-2 4-3 4-4 5-5 6-6",
        ),
        (
            cannot_speak(),
            "The women cannot speak to the king.",
            "Les femmes ne peuvent pas parler au roi.",
            "0-0 1-1 2-2 2-3 2-4 3-5 4-6 5?6 6-7",
        ),
        (
            wants_to_see(),
            "If he does not want to look at him, she left.",
            "S'il ne veut pas le regarder, elle est partie.",
            "0?0 1-0 2?1 2?2 2?3 3-1 3-3 4-2 5?2 6-5 7?5 8-4 9-6 10-7 10-8",
        ),
        (
            possessed_bird(),
            "Anne's black bird sleeps.",
            "L'oiseau noir d'Anne dort.",
            "0?0 0-2 1-1 2-0 3-3",
        ),
    ],
)
def test_worked_examples(phrase: Phrase, source: str, target: str, alignment: str) -> None:
    assert spell(phrase + punctuation(".")) == (source, target, alignment)


@pytest.mark.parametrize(
    ("english", "following", "agreement", "french"),
    [
        ("old", "homme", (False, False), "vieil"),
        ("old", "hibou", (False, False), "vieux"),
        ("old", "hommes", (False, True), "vieux"),
        ("old", "horloge", (True, False), "vieille"),
        ("beautiful", "oiseau", (False, False), "bel"),
        ("beautiful", "oiseaux", (False, True), "beaux"),
        ("beautiful", "", (False, False), "beau"),
        ("new", "écoles", (True, True), "nouvelles"),
        ("white", "", (True, True), "blanches"),
        ("gray", "", (False, True), "gris"),
        ("happy", "", (True, False), "heureuse"),
        ("red", "", (True, True), "rouges"),
    ],
)
def test_adjectives_agree(english: str, following: str, agreement: tuple[bool, bool], french: str) -> None:
    adjective = next(word for word in lexicon.Lexicon().adjectives if word.english == english)
    phrase = adjective_phrase(adjective, Agreement(*agreement), degree=lexicon.VERY, following=following)
    assert [word.text for word in phrase.target] == ["très", french]


@pytest.mark.parametrize(
    ("determiner", "agreement", "noun", "french"),
    [
        ("this", (False, False), "arbre", "cet arbre"),
        ("this", (False, False), "héros", "ce héros"),
        ("my", (True, False), "horloge", "mon horloge"),
        ("my", (True, False), "clé", "ma clé"),
        ("their", (True, True), "clés", "leurs clés"),
        ("many", (False, True), "œufs", "beaucoup d'œufs"),
    ],
)
def test_determiners_agree(determiner: str, agreement: tuple[bool, bool], noun: str, french: str) -> None:
    found = next(word for word in lexicon.Lexicon().determiners if determiner in (word.singular, word.plural))
    phrase = determine(found, Agreement(*agreement), unit("x", noun))
    assert spell(phrase)[1].lower() == french


@pytest.mark.parametrize(
    ("english", "tense", "subject", "source", "target"),
    [
        ("go", Tense.PRESENT, WOMEN, "go", "vont"),
        ("go", Tense.PAST, WOMEN, "went", "sont allées"),
        ("go", Tense.FUTURE, MAN, "will go", "ira"),
        ("send", Tense.FUTURE, WOMEN, "will send", "enverront"),
        ("cry", Tense.PRESENT, MAN, "cries", "pleure"),
        ("look for", Tense.PAST, MAN, "looked for", "a cherché"),
        ("must", Tense.PRESENT, WOMEN, "must", "doivent"),
    ],
)
def test_verbs_agree(english: str, tense: Tense, subject: Agreement, source: str, target: str) -> None:
    spelled = spell(conjugate(find(english), tense, subject))
    assert (spelled[0].lower(), spelled[1].lower()) == (source, target)


def test_inflection() -> None:
    assert [plural(word) for word in ("roi", "cheval", "bateau", "souris")] == ["rois", "chevaux", "bateaux", "souris"]
    assert [add_s(word) for word in ("cry", "boy", "box", "go", "church")] == [
        "cries",
        "boys",
        "boxes",
        "goes",
        "churches",
    ]
    assert [inflect("vu", Agreement(*flags)) for flags in product((False, True), repeat=2)] == [
        "vu",
        "vus",
        "vue",
        "vues",
    ]
