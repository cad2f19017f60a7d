"""Clauses: subject, predicate and relative clauses.

French is a function of the English, so no ambiguous English is generated:

- a relative clause directly follows its noun, which has no `of` phrase and is not coordinated;
- predicates are coordinated only where the first contains no clause, negation or modal verb, so the second has the
  subject of the nearest clause;
- a verb is either always transitive or never, so the gap in `that she sees` is unambiguous;
- clauses are joined by `, and` (sentences.py), noun phrases and predicates by `and` without a comma.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.lexicon import (
    BE,
    DEGREES,
    EXIST,
    FREQUENCY,
    MANNER,
    NEVER,
    NOT,
    OBJECT_PRONOUNS,
    OF,
    THEM,
    TIME,
    Lexicon,
)
from nmt.data.grammar.nouns import NounPhrase, NounPhrases, adjective_phrase, introduce
from nmt.data.grammar.phrase import Phrase, unit
from nmt.data.grammar.verbs import conjugate, infinitive
from nmt.data.grammar.words import ALL, LIVING, Adverb, Kind, Kinds, Pronoun, Tense, Verb

OWNED = (*LIVING, Kind.THING, Kind.PLACE)  # `Marie's ...` reads well with nouns of these kinds
SUBJECT_KINDS = ((6, Kind.PERSON), (2, Kind.ANIMAL), (0.7, Kind.THING), (0.3, Kind.PLACE))


@dataclass(frozen=True)
class Context:
    """The conditions for a predicate; `simple` excludes clauses, negation and modals, `joined` allows coordination."""

    subject: NounPhrase
    tense: Tense
    budget: int
    modifier: Adverb | None = None
    simple: bool = False
    joined: bool = False


class Clauses:
    """Random clauses; a `budget` is the approximate number of English words."""

    def __init__(self, lexicon: Lexicon, choose: Chooser) -> None:
        self._lexicon = lexicon
        self._choose = choose
        self._nouns = NounPhrases(lexicon, choose)

    def clause(self, budget: int, tense: Tense) -> Phrase:
        if budget >= 5 and self._choose.chance(0.05):
            return self._existential(budget, tense)
        kind = self._choose.weighted(SUBJECT_KINDS)
        subject = self.subject(self._choose.between(1, budget // 2), kind)
        spare = budget - len(subject.phrase)
        if spare >= 3 and self._choose.chance(0.1):
            time = self._choose.pick(TIME[tense])
            context = Context(subject, tense, spare - 1, simple=True)
            return subject.phrase + self.predicate(context) + unit(time.english, time.french)
        return subject.phrase + self.predicate(Context(subject, tense, spare, joined=True))

    def subject(self, budget: int, kind: Kind) -> NounPhrase:
        if kind is Kind.PERSON and self._choose.chance(0.5 if budget <= 2 else 0.15):
            return self._nouns.pronoun()
        return self.noun_phrase(min(budget, 10), (kind,), coordinate=True)

    def predicate(self, context: Context) -> Phrase:
        """The verb with its objects and complements."""
        context = replace(context, modifier=self._modifier(context))
        living = context.subject.kind in LIVING
        person = context.subject.kind is Kind.PERSON
        budget, simple = context.budget, context.simple
        options: list[tuple[float, Callable[[Context], Phrase]]] = [(1.2 if budget <= 8 else 0.1, self._adjective)]
        if budget >= 4 and context.subject.kind is not Kind.PLACE:
            options.append((0.6, self._location))
        if living:
            options += [(2 if budget <= 3 else 1, self._intransitive), (5, self._transitive)]
        if living and budget >= 3:
            options.append((1, self._oblique))
        if person and budget >= 5:
            options.append((1, self._dative))
        if living and budget >= 3 and context.tense is Tense.PRESENT and not simple:
            options.append((1.3, self._modal))
        if living and budget >= 5 and context.joined and not simple:
            options.append((0.8, self._joined))
        return self._choose.weighted(options)(context)

    def noun_phrase(
        self,
        budget: int,
        kinds: Kinds,
        *,
        definite: bool | None = None,
        coordinate: bool = False,
        relative: bool = True,
    ) -> NounPhrase:
        """Return any noun phrase but a pronoun; `coordinate` and `relative` allow coordination and relative clauses."""
        nouns, kind = self._nouns, self._choose.pick(kinds)
        options: list[tuple[float, Callable[[], NounPhrase]]] = [
            (5 if budget <= 5 else 1, lambda: nouns.simple(budget, kind, definite))
        ]
        if budget >= 2 and definite is not False and kind in OWNED:
            options.append((0.6, lambda: nouns.possessed(budget, kind)))
        if budget >= 5 and kind is not Kind.CITY:
            options.append((0.6, lambda: self._complemented(budget, kind, definite, relative)))
        if budget >= 5 and coordinate and kind is not Kind.CITY:
            options.append((1, lambda: nouns.coordinated(budget, kind, definite)))
        if budget >= 5 and relative and kind is not Kind.CITY:
            options.append((1.5 if budget <= 7 else 5, lambda: self._relative(budget, kind, definite)))
        return self._choose.weighted(options)()

    # --- predicates -----------------------------------------------------------------------------------------

    def _joined(self, context: Context) -> Phrase:
        """`sees the dog and sleeps`."""
        left = self._choose.between(1, context.budget - 2)
        first = self.predicate(replace(context, budget=left, simple=True, joined=False))
        second = self.predicate(replace(context, budget=context.budget - 1 - left, joined=False))
        return first + unit("and", "et") + second

    def _intransitive(self, context: Context) -> Phrase:
        verb = self._verb(self._lexicon.intransitives, context)
        phrase = self._finite(verb, context)
        if context.budget >= 2 and self._choose.chance(0.25):
            manner = self._choose.pick(MANNER)
            phrase += unit(manner.english, manner.french)
        return phrase + self._place(context.budget - len(phrase), context, chance=0.8)

    def _transitive(self, context: Context) -> Phrase:
        verb = self._verb(self._lexicon.transitives, context)
        if context.budget <= 2 or self._choose.chance(0.25):
            phrase = self._finite(verb, context, self._object_pronoun(verb))
        else:
            phrase = self._finite(verb, context)
            phrase += self._object(verb, context, context.budget - len(phrase))
        return phrase + self._place(context.budget - len(phrase), context, chance=0.6)

    def _dative(self, context: Context) -> Phrase:
        """`gives the book to the man`, `gives them to the man`."""
        verb = self._verb(self._lexicon.datives, context)
        assert verb.preposition
        if self._choose.chance(0.3):
            phrase = self._finite(verb, context, THEM)
        else:
            simple = replace(context, simple=True)
            phrase = self._finite(verb, context) + self._object(verb, simple, self._choose.between(2, 4))
        spare = context.budget - len(phrase) - 1
        receiver = self.noun_phrase(spare, (Kind.PERSON,), relative=not context.simple)
        return phrase + introduce(verb.preposition, receiver.phrase)

    def _oblique(self, context: Context) -> Phrase:
        """`speaks to the man`, `goes to the market`."""
        verb = self._verb(self._lexicon.obliques, context)
        assert verb.preposition
        phrase = self._finite(verb, context)
        spare = context.budget - len(phrase) - 1
        complement = self.noun_phrase(spare, verb.objects, relative=not context.simple)
        return phrase + introduce(verb.preposition, complement.phrase)

    def _adjective(self, context: Context) -> Phrase:
        """`is very tired`, `is tired and happy`."""
        agreement, kind = context.subject.agreement, context.subject.kind
        phrase, adjective = self._finite(BE, context), self._nouns.adjective(kind)
        spare = context.budget - len(phrase)
        graded = spare >= 2 and adjective.gradable and self._choose.chance(0.4)
        phrase += adjective_phrase(adjective, agreement, degree=self._choose.pick(DEGREES) if graded else None)
        other = self._nouns.adjective(kind)
        if spare >= 3 and other != adjective and self._choose.chance(0.4):
            phrase += unit("and", "et") + adjective_phrase(other, agreement)
        return phrase

    def _location(self, context: Context) -> Phrase:
        phrase = self._finite(BE, context)
        return phrase + self._prepositional(context.budget - len(phrase), relative=not context.simple)

    def _modal(self, context: Context) -> Phrase:
        """`wants to see him`, `cannot sleep`."""
        phrase = self._finite(self._verb(self._lexicon.modals, context), context)
        spare = context.budget - len(phrase)
        if self._choose.chance(0.3):
            phrase += infinitive(self._verb(self._lexicon.intransitives, context))
            return phrase + self._place(context.budget - len(phrase), context, chance=0.8)
        verb = self._verb(self._lexicon.transitives, context)
        if spare <= 2 or self._choose.chance(0.4):
            return phrase + infinitive(verb, pronoun=self._object_pronoun(verb))
        return phrase + infinitive(verb) + self._object(verb, context, spare - 1)

    def _existential(self, budget: int, tense: Tense) -> Phrase:
        """`there is a dog in the garden` -> `il y a un chien dans le jardin`."""
        there = self.noun_phrase(max(2, budget - 5), ALL, definite=False)
        verb = conjugate(EXIST, tense, there.agreement)
        return unit("there", "il y") + verb + there.phrase + self._prepositional(3)

    # --- parts ----------------------------------------------------------------------------------------------

    def _object(self, verb: Verb, context: Context, budget: int) -> Phrase:
        """A direct object; definite under negation, since `not a` has another form in French (`pas de`)."""
        definite = True if context.modifier and context.modifier.negative else None
        relative = not context.simple
        return self.noun_phrase(budget, verb.objects, definite=definite, coordinate=True, relative=relative).phrase

    def _complemented(self, budget: int, kind: Kind, definite: bool | None, relative: bool) -> NounPhrase:
        """`the door of the house`."""
        head = self._nouns.described(self._choose.between(2, 3), kind, definite)
        spare = budget - len(head.phrase) - 1
        owner = self.noun_phrase(spare, (Kind.PERSON, Kind.PLACE), relative=relative)
        return NounPhrase(head.phrase + introduce(OF, owner.phrase), head.agreement, kind)

    def _relative(self, budget: int, kind: Kind, definite: bool | None) -> NounPhrase:
        """`the man who sees the dog`, `the dog that the man sees`."""
        head = self._nouns.described(self._choose.between(2, 3), kind, definite)
        spare = budget - len(head.phrase) - 1
        tense = self._choose.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PAST, Tense.FUTURE))
        if self._choose.chance(0.6 if kind in LIVING else 0.2):
            who = unit("who" if kind is Kind.PERSON else "that", "qui")
            phrase = head.phrase + who + self.predicate(Context(head, tense, spare))
        else:
            phrase = head.phrase + unit("that", "que") + self._gapped(head, spare, tense)
        return NounPhrase(phrase, head.agreement, kind)

    def _gapped(self, head: NounPhrase, budget: int, tense: Tense) -> Phrase:
        """A clause whose object is `head`: `(the dog that) the man saw`; a French participle agrees with it."""
        subject = self._nouns.pronoun()
        if budget >= 3 and self._choose.chance(0.6):
            subject = self._nouns.simple(self._choose.between(2, 3), Kind.PERSON)
        context = Context(subject, tense, budget - len(subject.phrase))
        modifier = self._modifier(context)
        verb = self._choose.pick([verb for verb in self._lexicon.transitives if head.kind in verb.objects])
        phrase = subject.phrase + conjugate(verb, tense, subject.agreement, modifier=modifier, gap=head.agreement)
        return phrase + self._place(budget - len(phrase), context, chance=0.7)

    def _finite(self, verb: Verb, context: Context, pronoun: Pronoun | None = None) -> Phrase:
        agreement = context.subject.agreement
        return conjugate(verb, context.tense, agreement, modifier=context.modifier, pronoun=pronoun)

    def _verb(self, verbs: tuple[Verb, ...], context: Context) -> Verb:
        return self._choose.pick([verb for verb in verbs if context.subject.kind in verb.subjects])

    def _object_pronoun(self, verb: Verb) -> Pronoun:
        return self._choose.pick(OBJECT_PRONOUNS) if Kind.PERSON in verb.objects else THEM

    def _modifier(self, context: Context) -> Adverb | None:
        """`not`, `never`, an adverb of frequency, or, mostly, None."""
        if context.budget < 3 or context.simple or self._choose.chance(0.6):
            return None
        return self._choose.weighted(((2, NOT), (1, NEVER), (1.5, self._choose.pick(FREQUENCY))))

    def _place(self, budget: int, context: Context, *, chance: float) -> Phrase:
        """A phrase of place if the budget allows it, else an empty phrase."""
        if budget < 3 or not self._choose.chance(chance):
            return Phrase()
        return self._prepositional(budget, relative=not context.simple)

    def _prepositional(self, budget: int, *, relative: bool = True) -> Phrase:
        preposition = self._choose.pick(self._lexicon.prepositions)
        spare = budget - len(preposition.english.split())
        complement = self.noun_phrase(spare, preposition.kinds, relative=relative)
        return introduce(preposition, complement.phrase)
