"""Sentences: clauses joined by `, and`, `because`, `when`, `if` and `says that`, nested as the budget allows."""

from collections.abc import Callable

from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.clauses import Clauses
from nmt.data.grammar.lexicon import Lexicon
from nmt.data.grammar.phrase import Phrase, punctuation, unit
from nmt.data.grammar.verbs import conjugate
from nmt.data.grammar.words import Kind, Tense

Tenses = tuple[Tense, ...]
TENSES: Tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE)
# By the tense of the main clause: conjunctions, and the tenses after them that are correct in both languages.
SUBORDINATES: dict[Tense, tuple[tuple[str, str, Tenses], ...]] = {
    Tense.PRESENT: (
        ("because", "parce que", (Tense.PRESENT, Tense.PAST)),
        ("when", "quand", (Tense.PRESENT,)),
        ("while", "pendant que", (Tense.PRESENT,)),
        ("if", "si", (Tense.PRESENT,)),
    ),
    Tense.PAST: (("because", "parce que", (Tense.PAST,)), ("when", "quand", (Tense.PAST,))),
    Tense.FUTURE: (("because", "parce que", TENSES), ("if", "si", (Tense.PRESENT,))),
}
ONE_CLAUSE = 9  # words: a longer sentence may be made of several clauses
LONGEST_CLAUSE = 20  # words: a longer sentence must be


class Sentences:
    """Random sentences; a `budget` is the approximate number of English words."""

    def __init__(self, lexicon: Lexicon, choose: Chooser) -> None:
        self._lexicon = lexicon
        self._choose = choose
        self._clauses = Clauses(lexicon, choose)

    def sentence(self, budget: int, tenses: Tenses = TENSES, banned: frozenset[str] = frozenset()) -> Phrase:
        """Return one clause or several; the main verb is in one of `tenses`; `banned` constructions do not occur."""
        options: list[tuple[float, Callable[..., Phrase]]] = []
        if budget <= LONGEST_CLAUSE:
            options.append((6 if budget <= ONE_CLAUSE else 2, self._single))
        if budget >= 8 and "report" not in banned:
            options.append((1, self._report))
        if budget >= ONE_CLAUSE and "subordinate" not in banned:
            options.append((1.5, self._subordinate))
        if budget >= ONE_CLAUSE:
            options.append((0.7 if budget <= LONGEST_CLAUSE else 3, self._coordinate))
        return self._choose.weighted(options)(budget, tenses, banned)

    def _single(self, budget: int, tenses: Tenses, banned: frozenset[str]) -> Phrase:
        return self._clauses.clause(budget, self._choose.pick(tenses))

    def _report(self, budget: int, tenses: Tenses, banned: frozenset[str]) -> Phrase:
        """`he says that ...`; after a past verb the other is past too (sequence of tenses)."""
        tense = self._choose.pick(tenses)
        subject = self._clauses.subject(self._choose.between(1, min(budget // 3, 8)), Kind.PERSON)
        verb = conjugate(self._choose.pick(self._lexicon.reporting), tense, subject.agreement)
        rest = budget - len(subject.phrase) - len(verb) - 1
        said = self.sentence(rest, (Tense.PAST,) if tense is Tense.PAST else TENSES, banned | {"report"})
        return subject.phrase + verb + unit("that", "que") + said

    def _coordinate(self, budget: int, tenses: Tenses, banned: frozenset[str]) -> Phrase:
        left = self._choose.between(4, budget - 5) if budget <= LONGEST_CLAUSE else budget // 2
        conjunction = self._choose.pick((("and", "et"), ("but", "mais")))
        first = self.sentence(left, tenses, banned) + punctuation(",")
        return first + unit(*conjunction) + self.sentence(budget - len(first) - 1, tenses, banned)

    def _subordinate(self, budget: int, tenses: Tenses, banned: frozenset[str]) -> Phrase:
        """`S because S`, `S when S`, `If S, S`."""
        tense = self._choose.pick(tenses)
        english, french, other = self._choose.pick(SUBORDINATES[tense])
        shorter = self._choose.between(4, min(budget - 5, 14))
        banned |= {"subordinate"}
        if english != "because" and self._choose.chance(0.5):
            first = unit(english, french) + self.sentence(shorter, other, banned | {"report"}) + punctuation(",")
            return first + self.sentence(budget - len(first), (tense,), banned)
        first = self._clauses.clause(shorter, tense) + unit(english, french)
        return first + self.sentence(budget - len(first), other, banned)
