"""The words of the built-in corpus: the word lists of lexicon.toml, and the function words that the rules name."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nmt.data.grammar.words import (
    GROUPS,
    Adjective,
    Adverb,
    Agreement,
    Determiner,
    Kind,
    Kinds,
    Name,
    Noun,
    Preposition,
    Pronoun,
    Tense,
    Verb,
    add_s,
    inflect,
    plural,
)

THE = Determiner("the", "the", "le", "la", "les", definite=True)
THEM = Pronoun("them", "les", Agreement(plural=True))
SUBJECT_PRONOUNS = (
    Pronoun("he", "il", Agreement()),
    Pronoun("she", "elle", Agreement(feminine=True)),
    Pronoun("they", "ils", Agreement(plural=True)),
)
OBJECT_PRONOUNS = (
    Pronoun("him", "le", Agreement()),
    Pronoun("her", "la", Agreement(feminine=True)),
    THEM,
    Pronoun("me", "me", Agreement()),
    Pronoun("us", "nous", Agreement(plural=True)),
)
OF = Preposition("of", "de")
NOT = Adverb("not", "pas", negative=True)
NEVER = Adverb("never", "jamais", negative=True)
VERY = Adverb("very", "très")
DEGREES = (VERY, Adverb("too", "trop"))
BE = Verb(
    base="be",
    english={Tense.PRESENT: ("is", "are"), Tense.PAST: ("was", "were"), Tense.FUTURE: ("be", "be")},
    infinitive="être",
    french={Tense.PRESENT: ("est", "sont"), Tense.PAST: ("était", "étaient"), Tense.FUTURE: ("sera", "seront")},
    copular=True,
)
EXIST = replace(
    BE,
    infinitive="avoir",
    french={Tense.PRESENT: ("a", "a"), Tense.PAST: ("avait", "avait"), Tense.FUTURE: ("aura", "aura")},
)


def _noun(english: str, french: str, feminine: bool, kind: Kind) -> Noun:
    one, _, many = english.partition("/")
    un, _, plusieurs = french.partition("/")
    return Noun((one, many or add_s(one)), (un, plusieurs or plural(un)), feminine, kind)


def _adjective(english: str, french: str, kinds: str, before_noun: bool = False, gradable: bool = True) -> Adjective:
    masculine, _, feminine = french.partition(" ")
    feminine = feminine or inflect(masculine, Agreement(feminine=True))
    return Adjective(english, masculine, feminine, _kinds(kinds), before_noun, gradable)


def _verb(
    english: str,
    past: str,
    french: str,
    subjects: str = "person",
    objects: str = "",
    preposition: list[str] | None = None,
    **flags: bool,
) -> Verb:
    base, _, particle = english.partition(" ")
    forms = french.split()
    if len(forms) == 1:  # regular, in -er
        stem = french.removesuffix("er")
        forms = [french, f"{stem}e", f"{stem}ent", f"{french}a", f"{stem}é"]
    infinitive, one, many, future, participle = forms
    present = (base, base) if flags.get("copular") else (add_s(base), base)
    compound = ("est", "sont") if flags.get("etre") else ("a", "ont")
    return Verb(
        base=base,
        particle=particle,
        english={Tense.PRESENT: present, Tense.PAST: (past, past), Tense.FUTURE: (base, base)},
        infinitive=infinitive,
        french={Tense.PRESENT: (one, many), Tense.PAST: compound, Tense.FUTURE: (future, f"{future[:-1]}ont")},
        participle=participle,
        subjects=_kinds(subjects),
        objects=_kinds(objects),
        preposition=Preposition(preposition[0], preposition[1]) if preposition else None,
        **flags,
    )


def _determiner(english: str, french: list[str], definite: bool = False) -> Determiner:
    (one, many), (masculine, feminine, both) = english.split("/"), french
    return Determiner(one, many, masculine, feminine, both, definite)


def _preposition(french: str, english: str, kinds: str, head: int = 0) -> Preposition:
    return Preposition(english, french, _kinds(kinds), head)


def _kinds(names: str) -> Kinds:
    return tuple(kind for name in names.split() for kind in GROUPS.get(name) or (Kind(name),))


def _gendered(table: dict[str, Any]) -> Iterator[tuple[str, str, bool, Kind]]:
    """Yield (English, French, whether feminine, kind) of `[<table>.<kind>.<gender>]`."""
    for kind, genders in table.items():
        for gender, words in genders.items():
            yield from ((english, french, gender == "feminine", Kind(kind)) for english, french in words.items())


def _adverbs(table: dict[str, str]) -> tuple[Adverb, ...]:
    return tuple(Adverb(english, french) for english, french in table.items())


_WORDS = tomllib.loads(Path(__file__).with_name("lexicon.toml").read_text(encoding="utf-8"))
_VERBS = {name: tuple(_verb(english, **row) for english, row in rows.items()) for name, rows in _WORDS["verbs"].items()}

NUMERALS: tuple[tuple[str, str], ...] = tuple(_WORDS["numerals"].items())
FREQUENCY, MANNER = (_adverbs(_WORDS["adverbs"][name]) for name in ("frequency", "manner"))
TIME = {tense: _adverbs(_WORDS["adverbs"]["time"][tense.value]) for tense in Tense}


@dataclass(frozen=True)
class Lexicon:
    """The open word classes; tests substitute smaller ones."""

    nouns: tuple[Noun, ...] = tuple(_noun(*row) for row in _gendered(_WORDS["nouns"]))
    names: tuple[Name, ...] = tuple(Name(*row) for row in _gendered(_WORDS["names"]))
    adjectives: tuple[Adjective, ...] = tuple(_adjective(word, **row) for word, row in _WORDS["adjectives"].items())
    determiners: tuple[Determiner, ...] = tuple(
        _determiner(english, **row) for english, row in _WORDS["determiners"].items()
    )
    prepositions: tuple[Preposition, ...] = tuple(
        _preposition(french, **row) for french, row in _WORDS["prepositions"].items()
    )
    intransitives: tuple[Verb, ...] = _VERBS["intransitive"]
    transitives: tuple[Verb, ...] = _VERBS["transitive"]
    datives: tuple[Verb, ...] = _VERBS["dative"]
    obliques: tuple[Verb, ...] = _VERBS["oblique"]
    reporting: tuple[Verb, ...] = _VERBS["reporting"]
    modals: tuple[Verb, ...] = _VERBS["modal"]
