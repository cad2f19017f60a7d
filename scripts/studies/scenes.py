"""Scenes: sentences of many slots, some of which may be left out, from the words and rules of the grammar."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.clauses import Clauses, Context
from nmt.data.grammar.lexicon import FREQUENCY, MANNER, NOT, NUMERALS, TIME, Lexicon
from nmt.data.grammar.nouns import NounPhrase
from nmt.data.grammar.phrase import Phrase
from nmt.data.grammar.verbs import conjugate
from nmt.data.grammar.words import OBJECTS, Agreement, Kind, Kinds, Tense, Verb

NUMBERS = tuple(english for english, _ in NUMERALS)
OPPOSITES = (
    NUMBERS,
    ("small", "big"),
    ("old", "young", "new"),
    ("good", "bad"),
    ("happy", "sad"),
    ("red", "green", "yellow", "black", "white", "gray", "blue"),
)
GENERAL: dict[Kind, tuple[str, str]] = {
    Kind.PERSON: ("person", "people"),
    Kind.ANIMAL: ("animal", "animals"),
    Kind.PLACE: ("place", "places"),
    **dict.fromkeys(OBJECTS, ("thing", "things")),
}
EXCLUDED = ("every", "many")  # what is true of every old man need not be true of every man
ADVERBS = tuple(adverb.english for adverb in FREQUENCY if adverb.english != "rarely")  # which is almost a negation
BEFORE_VERB = ("will", "do", "does", "did", "not")
SUBJECTS = (Kind.PERSON, Kind.PERSON, Kind.ANIMAL)
MAX_ADJECTIVES = 2  # of a noun phrase
CLAUSE_LENGTH = 5  # words of a relative clause, or of the other clause, about


class Scene(NamedTuple):
    """A sentence of many slots.

    Attributes:
        slots: the words of every slot, in the order of the sentence.
        untold: for each slot that need not be told, the words in its place: none, or a more general noun.
        negation: the slots of the verb as they are when it is negated.
        opposites: for slots of an adjective, a number or a noun, the words that exclude it.
    """

    slots: dict[str, str]
    untold: dict[str, str]
    negation: dict[str, str]
    opposites: dict[str, list[str]]


class Scenes:
    """Random scenes."""

    def __init__(self, rng: Chooser) -> None:
        lexicon = Lexicon()
        determiners = [each for each in lexicon.determiners if not {each.singular, each.plural} & {*EXCLUDED}]
        self._lexicon = replace(lexicon, determiners=tuple(determiners))
        self._rng = rng
        self._clauses = Clauses(self._lexicon, rng)
        self._kinds = {form: GENERAL[noun.kind] for noun in lexicon.nouns for form in noun.english}
        self._kinds |= {name.english: GENERAL[Kind.PERSON] for name in lexicon.names if name.kind is Kind.PERSON}
        self._lemmas = dict(lemmas(lexicon))

    def scene(self) -> Scene:
        """Return a scene in which no word is twice, nor beside its opposite."""
        while True:
            scene = self._draw()
            words = [word.removesuffix("'s") for text in scene.slots.values() for word in text.split()]
            counts = Counter(self._lemmas.get(word, word) for word in words)
            if max(counts.values()) == 1 and not {"not", "never", "cannot"} & {*counts}:
                self._remove_ambiguous(scene, Counter(self._kinds.get(word) for word in words))
                return scene

    def _remove_ambiguous(self, scene: Scene, kinds: Counter[tuple[str, str] | None]) -> None:
        """Keep only replacements of nouns whose kind occurs once: otherwise "person" could be either of two."""
        for slot in [slot for slot in scene.slots if slot.endswith("noun")]:
            opposites = scene.opposites.pop(slot)
            if kinds[self._kinds[scene.slots[slot]]] > 1:
                del scene.untold[slot]
            elif unambiguous := [noun for noun in opposites if not kinds[self._kinds[noun]]]:
                scene.opposites[slot] = unambiguous

    def _draw(self) -> Scene:
        scene, pick = Scene({}, {}, {}, {}), self._rng.pick
        tense, kind = pick(tuple(Tense)), pick(SUBJECTS)
        verbs = self._lexicon.transitives + self._lexicon.intransitives
        verb = pick([verb for verb in verbs if kind in verb.subjects])
        agreement = self._describe(scene, "subject", kind, verb.subjects)
        subject = NounPhrase(Phrase(), agreement, kind)
        relative = self._clauses.predicate(Context(subject, pick(tuple(Tense)), CLAUSE_LENGTH - 1, simple=True))
        self._add(scene, "subject relative", f"that {english(relative)}")
        self._conjugate(scene, verb, tense, agreement)
        if verb.objects:
            self._describe(scene, "object", pick(verb.objects), verb.objects)
        self._add(scene, "manner", pick(MANNER).english)
        preposition = pick([each for each in self._lexicon.prepositions if Kind.PLACE in each.kinds])
        place = self._clauses.noun_phrase(2, (Kind.PLACE,), relative=False)
        self._add(scene, "place", f"{preposition.english} {english(place.phrase)}")
        self._add(scene, "time", pick(TIME[tense]).english)
        self._add(scene, "clause", f"and {english(self._clauses.clause(CLAUSE_LENGTH - 1, pick(tuple(Tense))))}")
        return scene

    def _describe(self, scene: Scene, name: str, kind: Kind, kinds: Kinds) -> Agreement:
        """Add the slots of a noun phrase: a determiner or number, adjectives, and a noun of one of possible kinds."""
        pick, plural = self._rng.pick, self._rng.chance(0.4)
        noun = pick([noun for noun in self._lexicon.nouns if noun.kind is kind])
        agreement = Agreement(noun.feminine, plural=plural)
        determiners = [text for each in self._lexicon.determiners if (text := each.english(agreement))]
        numbered = agreement.plural and self._rng.chance(0.5)
        scene.slots[f"{name} determiner"] = pick(NUMBERS if numbered else [*determiners, "the", "the"])
        fitting = [each.english for each in self._lexicon.adjectives if kind in each.kinds]
        adjectives = sorted({pick(fitting) for _ in range(MAX_ADJECTIVES)}, key=fitting.index)
        for adjective in adjectives:
            self._add(scene, f"{name} {adjective}", adjective)
        self._add(scene, f"{name} noun", noun.english[agreement.plural], GENERAL[kind][agreement.plural])
        scene.opposites[f"{name} noun"] = [
            other.english[agreement.plural]
            for other in self._lexicon.nouns
            if other.kind in kinds and GENERAL[other.kind] != GENERAL[kind]
        ]
        for slot in (f"{name} determiner", *(f"{name} {adjective}" for adjective in adjectives)):
            word = scene.slots[slot]
            group = next((group for group in OPPOSITES if word in group), ())
            if opposites := [other for other in group if other != word and (other in fitting or other in NUMBERS)]:
                scene.opposites[slot] = opposites
        return agreement

    def _conjugate(self, scene: Scene, verb: Verb, tense: Tense, agreement: Agreement) -> None:
        """Add the slots of the verb: auxiliary and negation, an adverb that need not be told, and the rest."""
        for negated, slots in ((False, scene.slots), (True, scene.negation)):
            words = [word.text for word in conjugate(verb, tense, agreement, modifier=NOT if negated else None).source]
            slots["verb auxiliary"] = " ".join(word for word in words if word in BEFORE_VERB)
            if not negated:
                self._add(scene, "verb adverb", self._rng.pick(ADVERBS))
            slots["verb"] = " ".join(word for word in words if word not in BEFORE_VERB)

    def _add(self, scene: Scene, slot: str, text: str, untold: str = "") -> None:
        scene.slots[slot], scene.untold[slot] = text, untold


def english(phrase: Phrase) -> str:
    """Return the English words of a phrase."""
    return " ".join(word.text for word in phrase.source)


def lemmas(lexicon: Lexicon) -> Iterator[tuple[str, str]]:
    """Yield each word that has several forms or opposites with the one that stands for all of them."""
    for noun in lexicon.nouns:
        yield noun.english[1], noun.english[0]
    for verb in lexicon.transitives + lexicon.intransitives:
        yield from ((form, verb.base) for forms in verb.english.values() for form in forms)
    for group in OPPOSITES:
        yield from ((word, group[0]) for word in group)
