"""Parts of speech with their inflected forms, and the regular inflection of English and French."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nmt.data.grammar.phrase import begins_with_vowel


class Kind(Enum):
    """The semantic class of a noun, which verbs, adjectives and prepositions select for."""

    PERSON = "person"
    ANIMAL = "animal"
    THING = "thing"
    SURFACE = "surface"
    FOOD = "food"
    PLACE = "place"
    CITY = "city"


Kinds = tuple[Kind, ...]
LIVING = (Kind.PERSON, Kind.ANIMAL)
GOODS = (Kind.THING, Kind.SURFACE)
OBJECTS = (*GOODS, Kind.FOOD)
SOLID = (*GOODS, Kind.PLACE, Kind.ANIMAL)
ALL = (*LIVING, *OBJECTS, Kind.PLACE)
GROUPS = {"living": LIVING, "goods": GOODS, "objects": OBJECTS, "solid": SOLID, "all": ALL}


class Tense(Enum):
    """English present, simple past and future; in French present, passé composé and future."""

    PRESENT = "present"
    PAST = "past"
    FUTURE = "future"


class Agreement(NamedTuple):
    """Gender and number, which French determiners, adjectives, participles and verbs agree in."""

    feminine: bool = False
    plural: bool = False


@dataclass(frozen=True)
class Noun:
    """A noun; each pair of forms is (singular, plural)."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    kind: Kind


@dataclass(frozen=True)
class Name:
    """A proper name."""

    english: str
    french: str
    feminine: bool
    kind: Kind


@dataclass(frozen=True)
class Adjective:
    """An adjective: French forms by gender (`beau/bel`: the second before a vowel), and where it stands."""

    english: str
    masculine: str
    feminine: str
    kinds: Kinds
    before_noun: bool
    gradable: bool

    def form(self, agreement: Agreement, following: str = "") -> str:
        """The French form; `following` is the next word where the adjective stands before its noun."""
        singular = self.feminine if agreement.feminine else self.masculine
        return plural(singular.partition("/")[0]) if agreement.plural else fit(singular, following)


@dataclass(frozen=True)
class Determiner:
    """A determiner; an empty English form means that it has no such number.

    `definite` ones, in a wide sense, are possible in a negated object, but not after `there is`.
    """

    singular: str
    plural: str
    masculine_form: str
    feminine_form: str
    plural_form: str
    definite: bool = False

    def english(self, agreement: Agreement) -> str:
        return self.plural if agreement.plural else self.singular

    def french(self, agreement: Agreement, following: str) -> str:
        singular = self.feminine_form if agreement.feminine else self.masculine_form
        return self.plural_form if agreement.plural else fit(singular, following)


@dataclass(frozen=True)
class Preposition:
    """A preposition with the kinds of nouns it takes; `head` is the English word with the sure link."""

    english: str
    french: str
    kinds: Kinds = ()
    head: int = 0


@dataclass(frozen=True)
class Adverb:
    """An adverb; a `negative` one also puts `ne` before the verb."""

    english: str
    french: str
    negative: bool = False


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun: a subject, or an object that stands before the French verb."""

    english: str
    french: str
    agreement: Agreement


@dataclass(frozen=True)
class Verb:
    """A verb; each pair of forms is (singular, plural) of the third person.

    `particle` is the `at` of `look at`, which French omits; `preposition` introduces the object in both languages.
    `copular` verbs (be, can, must) need no `do` and stand before `not`. The participle is empty where the
    French past is one word; with `etre` it agrees with the subject, else with an object that stands before it.
    """

    base: str
    english: dict[Tense, tuple[str, str]]
    infinitive: str
    french: dict[Tense, tuple[str, str]]
    participle: str = ""
    particle: str = ""
    etre: bool = False
    copular: bool = False
    subjects: Kinds = ()
    objects: Kinds = ()
    preposition: Preposition | None = None


def fit(form: str, following: str) -> str:
    """Of `beau/bel`, the form that stands before `following`: the second before a vowel."""
    plain, _, liaison = form.partition("/")
    return liaison if liaison and following and begins_with_vowel(following) else plain


def inflect(masculine: str, agreement: Agreement) -> str:
    """The regular French participle or adjective: vu, vue, vus, vues."""
    singular = masculine if not agreement.feminine or masculine.endswith("e") else f"{masculine}e"
    return plural(singular) if agreement.plural else singular


def plural(french: str) -> str:
    """The regular French plural of a noun or adjective."""
    if french.endswith(("s", "x", "z")):
        return french
    if french.endswith("al"):
        return f"{french[:-1]}ux"
    return f"{french}x" if french.endswith("eau") else f"{french}s"


def add_s(english: str) -> str:
    """The regular English plural, or the third person of the present."""
    if english.endswith("y") and english[-2] not in "aeiou":
        return f"{english[:-1]}ies"
    return f"{english}es" if english.endswith(("s", "x", "ch", "sh", "o")) else f"{english}s"
