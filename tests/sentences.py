"""Sentences of the built-in grammar, and one that is not, for tests of the translator."""

SENTENCE = "She helps her brother."
SENTENCES = [
    SENTENCE,
    "He sleeps.",
    "The sister of Luc sees me when she meets this aunt.",
    "My aunts will love us, and Oscar explained that Anne protected my aunts who will love us.",
    "They will help her brothers and will cry.",
    "Où est-il ? 東京 \U0001f600",
]
