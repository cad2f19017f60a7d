"""Verb groups: `do not see him` -> `ne le voient pas`, `never saw her` -> `ne l'a jamais vue`."""

from nmt.data.grammar.phrase import Phrase, SourceWord, TargetWord
from nmt.data.grammar.words import Adverb, Agreement, Pronoun, Tense, Verb, inflect


def conjugate(
    verb: Verb,
    tense: Tense,
    subject: Agreement,
    *,
    modifier: Adverb | None = None,
    pronoun: Pronoun | None = None,
    gap: Agreement | None = None,
) -> Phrase:
    """Return the finite verb with its auxiliaries, negation or adverb, and pronoun.

    English: (will | does | did) + not or adverb + verb + particle + object pronoun.
    French: (ne) + object pronoun + verb or auxiliary + (pas, jamais or adverb) + participle.

    `modifier` is `not`, `never` or an adverb such as `often`; `pronoun` the object, if that is a pronoun; `gap` the
    agreement of the object, if that is the noun of a relative clause, since the participle agrees with it.
    """
    helpers, middle, main = _english_verb(verb, tense, subject, modifier)
    particle = tuple(SourceWord(text) for text in verb.particle.split())
    objects = () if pronoun is None else (SourceWord(pronoun.english),)
    aside = helpers + particle

    target: list[TargetWord] = []
    if modifier and modifier.negative:
        target.append(TargetWord("ne", middle, helpers))
    if pronoun:
        target.append(TargetWord(pronoun.french, objects))
    target.append(TargetWord(verb.french[tense][subject.plural], (main,), aside))
    if modifier:
        target.append(TargetWord(modifier.french, middle, helpers))
    if verb.participle and tense is Tense.PAST:
        preceding = pronoun.agreement if pronoun else gap or Agreement()
        target.append(TargetWord(inflect(verb.participle, subject if verb.etre else preceding), (main,), aside))

    words = (*helpers, main, *middle) if verb.copular and not helpers else (*helpers, *middle, main)
    source = tuple(dict.fromkeys(words)) + particle + objects  # `cannot` is verb and `not` in one word
    return Phrase(source, tuple(target))


def infinitive(verb: Verb, *, pronoun: Pronoun | None = None) -> Phrase:
    """The infinitive, with an object pronoun before it in French: `see him` -> `le voir`."""
    main = SourceWord(verb.base)
    particle = tuple(SourceWord(text) for text in verb.particle.split())
    group = Phrase((main, *particle), (TargetWord(verb.infinitive, (main,), particle),))
    if pronoun is None:
        return group
    word = SourceWord(pronoun.english)
    return Phrase((*group.source, word), (TargetWord(pronoun.french, (word,)), *group.target))


def _english_verb(
    verb: Verb, tense: Tense, subject: Agreement, modifier: Adverb | None
) -> tuple[tuple[SourceWord, ...], tuple[SourceWord, ...], SourceWord]:
    """Return the auxiliary (or nothing), the modifier (or nothing) and the verb."""
    main = SourceWord(verb.english[tense][subject.plural])
    middle = () if modifier is None else (SourceWord(modifier.english),)
    negated = modifier is not None and modifier.english == "not"
    if tense is Tense.FUTURE:
        return (SourceWord("will"),), middle, main
    if negated and main.text == "can":
        cannot = SourceWord("cannot")
        return (), (cannot,), cannot
    if negated and not verb.copular:
        do = "did" if tense is Tense.PAST else "do" if subject.plural else "does"
        return (SourceWord(do),), middle, SourceWord(verb.base)
    return (), middle, main
