"""Noun phrases without a relative clause: pronouns, names, determiner and adjectives, possessors, coordination."""

from dataclasses import dataclass

from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.lexicon import NUMERALS, SUBJECT_PRONOUNS, THE, VERY, Lexicon
from nmt.data.grammar.phrase import Phrase, SourceWord, TargetWord, unit
from nmt.data.grammar.words import Adjective, Adverb, Agreement, Determiner, Kind, Noun, Preposition


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase with the agreement and kind that verbs and adjectives need."""

    phrase: Phrase
    agreement: Agreement
    kind: Kind


def adjective_phrase(
    adjective: Adjective, agreement: Agreement, *, degree: Adverb | None = None, following: str = ""
) -> Phrase:
    """`very old` -> `très vieilles`; `following` is the French word after it where it stands before its noun."""
    word = unit(adjective.english, adjective.form(agreement, following))
    return unit(degree.english, degree.french) + word if degree else word


def determine(determiner: Determiner, agreement: Agreement, nominal: Phrase) -> Phrase:
    """Put a determiner before a noun (with its adjectives): `this` + `owl` -> `ce` + `hibou`."""
    french = determiner.french(agreement, nominal.target[0].text)
    return unit(determiner.english(agreement), french) + nominal


def introduce(preposition: Preposition, complement: Phrase) -> Phrase:
    """Put a preposition before a noun phrase."""
    return unit(preposition.english, preposition.french, preposition.head) + complement


def possess(possessor: Phrase, nominal: Phrase, agreement: Agreement) -> Phrase:
    """`Marie's` + `black dog` -> `le chien noir de Marie`; the last word of the possessor gets the `'s`."""
    *before, last = possessor.source
    owner = SourceWord(f"{last.text}'s")
    renamed = tuple(
        TargetWord(
            word.text, *(tuple(owner if x is last else x for x in links) for links in (word.sure, word.possible))
        )
        for word in possessor.target
    )
    article = TargetWord(THE.french(agreement, nominal.target[0].text), possible=(owner,))
    de = TargetWord("de", sure=(owner,))
    return Phrase((*before, owner, *nominal.source), (article, *nominal.target, de, *renamed))


class NounPhrases:
    """Random noun phrases; a `budget` is the approximate number of English words."""

    def __init__(self, lexicon: Lexicon, choose: Chooser) -> None:
        self._lexicon = lexicon
        self._choose = choose
        self._nouns = {kind: [noun for noun in lexicon.nouns if noun.kind is kind] for kind in Kind}
        self._adjectives = {kind: [word for word in lexicon.adjectives if kind in word.kinds] for kind in Kind}

    def pronoun(self) -> NounPhrase:
        pronoun = self._choose.pick(SUBJECT_PRONOUNS)
        return NounPhrase(unit(pronoun.english, pronoun.french), pronoun.agreement, Kind.PERSON)

    def name(self, kind: Kind) -> NounPhrase:
        name = self._choose.pick([name for name in self._lexicon.names if name.kind is kind])
        return NounPhrase(unit(name.english, name.french), Agreement(name.feminine), kind)

    def simple(self, budget: int, kind: Kind, definite: bool | None = None) -> NounPhrase:
        """A name, or determiner, adjectives and noun; `definite` restricts the determiner."""
        if kind is Kind.CITY or (kind is Kind.PERSON and definite is not False and self._choose.chance(0.15)):
            return self.name(kind)
        return self.described(budget, kind, definite)

    def described(self, budget: int, kind: Kind, definite: bool | None = None) -> NounPhrase:
        """Determiner, adjectives and noun."""
        noun = self._choose.pick(self._nouns[kind])
        agreement = Agreement(noun.feminine, self._choose.chance(0.35))
        numbered = agreement.plural and budget >= 3 and self._choose.chance(0.25)
        nominal = self._nominal(noun, agreement, budget - 2 - numbered)
        if numbered:
            nominal = unit(*self._choose.pick(NUMERALS)) + nominal
            if definite is False or (definite is None and self._choose.chance(0.6)):
                return NounPhrase(nominal, agreement, kind)
            definite = True
        determiner = self._determiner(agreement, definite)
        return NounPhrase(determine(determiner, agreement, nominal), agreement, kind)

    def possessed(self, budget: int, kind: Kind) -> NounPhrase:
        """`Marie's dog`, `the king's dog`."""
        noun = self._choose.pick(self._nouns[kind])
        agreement = Agreement(noun.feminine, self._choose.chance(0.35))
        nominal = self._nominal(noun, agreement, budget - 2)
        if budget < 3 or self._choose.chance(0.6):
            possessor = self.name(Kind.PERSON).phrase
        else:
            owner = self._choose.pick(self._nouns[Kind.PERSON])
            singular = Agreement(owner.feminine)
            possessor = determine(THE, singular, self._nominal(owner, singular, 0))
        return NounPhrase(possess(possessor, nominal, agreement), agreement, kind)

    def coordinated(self, budget: int, kind: Kind, definite: bool | None = None) -> NounPhrase:
        """`the dog and the cat`: plural, and feminine if both are."""
        left = self.simple(budget // 2, kind, definite)
        right = self.simple(budget - 1 - budget // 2, kind, definite)
        agreement = Agreement(left.agreement.feminine and right.agreement.feminine, plural=True)
        return NounPhrase(left.phrase + unit("and", "et") + right.phrase, agreement, kind)

    def adjective(self, kind: Kind) -> Adjective:
        return self._choose.pick(self._adjectives[kind])

    def _determiner(self, agreement: Agreement, definite: bool | None) -> Determiner:
        if definite is not False and self._choose.chance(0.5):
            return THE
        allowed = [
            determiner
            for determiner in self._lexicon.determiners
            if determiner.english(agreement) and definite in (None, determiner.definite)
        ]
        return self._choose.pick(allowed) if allowed else THE

    def _nominal(self, noun: Noun, agreement: Agreement, spare: int) -> Phrase:
        """The noun with as many adjectives as `spare` English words allow, none to two."""
        english, french = noun.english[agreement.plural], noun.french[agreement.plural]
        word = unit(english, french, head=len(english.split()) - 1)
        adjectives = [self.adjective(noun.kind)] if spare >= 1 and self._choose.chance(0.55) else []
        if adjectives and spare >= 2 and self._choose.chance(0.3):
            second = self.adjective(noun.kind)
            if second.before_noun is not adjectives[0].before_noun:
                adjectives.append(second)
        very = spare >= 2 and len(adjectives) == 1 and adjectives[0].gradable and self._choose.chance(0.3)
        before = after = Phrase()
        for adjective in adjectives:
            degree = VERY if very else None
            if adjective.before_noun:
                before = adjective_phrase(adjective, agreement, degree=degree, following=french)
            else:
                after = adjective_phrase(adjective, agreement, degree=degree)
        return Phrase(before.source + after.source + word.source, before.target + word.target + after.target)
