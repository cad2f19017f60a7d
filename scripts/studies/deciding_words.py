"""Sentences of the built-in grammar whose label one word decides, with clauses around it that mislead.

Each clause reads `DETERMINER (ADJECTIVES) SUBJECT ADVERB VERB ...`: a person or several, in the past or the future,
with determiners and verbs of the same form for both, and an adverb, `never` or one of frequency. The label is a
property of the main clause alone. Every other clause begins with a conjunction, has the property or not by chance, and
is placed before the main clause or after it:

    if the queens will never call the boy , my old *teacher* often saw the dogs because his sisters also bought a hat
"""

from collections.abc import Iterator
from typing import NamedTuple

from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.clauses import Clauses
from nmt.data.grammar.lexicon import FREQUENCY, NEVER, THE, Lexicon
from nmt.data.grammar.nouns import NounPhrases, adjective_phrase, determine
from nmt.data.grammar.phrase import Phrase, SourceWord, fit_articles, punctuation, unit
from nmt.data.grammar.verbs import conjugate
from nmt.data.grammar.words import Agreement, Kind, Tense

CONJUNCTIONS = (("because", "parce que"), ("when", "quand"), ("while", "pendant que"), ("if", "si"))
# The classes of each task. The subject's noun decides the first task, the adverb the second.
TASKS = {"number": ("one acts", "several act"), "negation": ("affirmed", "negated")}


class Decided(NamedTuple):
    """A sentence, with spaces around its commas, the number of its class, and the position of the deciding word."""

    text: str
    label: int
    position: int


class DecidedSentences:
    """Random sentences of a task, with 0 to `max_clauses` clauses that mislead."""

    def __init__(self, task: str, rng: Chooser, max_clauses: int) -> None:
        self._is_number = task == "number"
        self._rng = rng
        self._max_clauses = max_clauses
        lexicon = Lexicon()
        self._clauses = Clauses(lexicon, rng)
        self._nouns = NounPhrases(lexicon, rng)
        self._determiners = [THE, *(each for each in lexicon.determiners if each.singular == each.plural)]
        self._persons = [noun for noun in lexicon.nouns if noun.kind is Kind.PERSON]
        self._verbs = [verb for verb in lexicon.transitives if Kind.PERSON in verb.subjects]

    def __iter__(self) -> Iterator[Decided]:
        """Draw sentences without end; both classes are equally probable."""
        while True:
            yield self._sentence(self._rng.between(0, 1))

    def _sentence(self, label: int) -> Decided:
        num_misleading = self._rng.between(0, self._max_clauses)
        num_before = self._rng.between(0, num_misleading)
        phrase, deciding_word = self._clause(label)
        for _ in range(num_before):
            phrase = self._misleading_clause() + punctuation(",") + phrase
        for _ in range(num_misleading - num_before):
            phrase += self._misleading_clause()
        words = fit_articles([word.text for word in phrase.source])
        return Decided(" ".join(words), label, phrase.source.index(deciding_word))

    def _misleading_clause(self) -> Phrase:
        return unit(*self._rng.pick(CONJUNCTIONS)) + self._clause(self._rng.between(0, 1))[0]

    def _clause(self, label: int) -> tuple[Phrase, SourceWord]:
        """Return a clause with the property, label 1, or without it, and the word that decides it."""
        noun, verb = self._rng.pick(self._persons), self._rng.pick(self._verbs)
        irrelevant = self._rng.between(0, 1)
        plural, negated = (label, irrelevant) if self._is_number else (irrelevant, label)
        agreement = Agreement(noun.feminine, bool(plural))
        subject_noun = subject = unit(noun.english[plural], noun.french[plural])
        for adjective in {self._nouns.adjective(Kind.PERSON): None for _ in range(self._rng.between(0, 2))}:
            subject = adjective_phrase(adjective, agreement) + subject
        subject = determine(self._rng.pick(self._determiners), agreement, subject)
        adverb = NEVER if negated else self._rng.pick(FREQUENCY)
        tense = self._rng.pick((Tense.PAST, Tense.FUTURE))
        verb_group = conjugate(verb, tense, agreement, modifier=adverb)
        length = self._rng.between(2, 6)
        direct_object = self._clauses.noun_phrase(length, verb.objects, coordinate=True).phrase
        (modifier,) = (word for word in verb_group.source if word.text == adverb.english)
        return subject + verb_group + direct_object, subject_noun.source[-1] if self._is_number else modifier
