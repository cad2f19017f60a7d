"""Sentence pairs that entail, contradict or do neither, with gold links: the built-in data of study_entailment.py.

A hypothesis tells some of the slots of a scene. Its premises are other sentences of the same scene:

- entailment: tells all that the hypothesis tells, and one to three slots more;
- neutral: the same, but does not tell one of the slots that the hypothesis tells;
- contradiction: the same as entailment, but says the opposite in one slot: an adjective that excludes the other,
  another number, a noun of another kind, or a negation where the hypothesis has none, or the reverse.

Gold links join the words of a slot that occurs in both sentences. Both describe the same scene, as in SNLI (Bowman et
al., 2015): two dogs contradict three dogs, and a dog contradicts a man. *Not sleeping in the garden* does not exclude
sleeping elsewhere; so if a sentence of a pair is negated, the two differ only in their subject and in the other clause.

Each hypothesis has a premise of every class, so the hypothesis alone carries no information. No word occurs twice in a
scene, or together with its opposite: a model without word order cannot tell which noun an adjective belongs to.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import islice
from typing import NamedTuple

from nmt.alignment.pharaoh import Links
from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.phrase import fit_articles
from studies.scenes import NUMBERS, Scene, Scenes

CLASSES = ("entailment", "neutral", "contradiction")

P_NEGATED = 0.3  # probability that a hypothesis is negated
P_OPPOSITE_BY_VERB = 0.2  # probability that the opposite is the negation, if it could be another
P_TOLD = 0.4  # probability that a hypothesis tells a slot that need not be told
MAX_EXTRA = 3  # slots that a premise tells besides

SlotWords = dict[tuple[str, int], str]  # by slot and number within it, in the order of the sentence


class Pair(NamedTuple):
    """A premise, a hypothesis, their class, and the gold links of their words, (premise, hypothesis)."""

    premise: str
    hypothesis: str
    label: str
    gold: Links


def generate(sizes: Sequence[int], seed: int) -> list[list[Pair]]:
    """Return parts of so many hypotheses each, none of them in two parts, with a pair of each class."""
    rng = Chooser(f"entailment {seed}")
    scenes = Scenes(rng)
    pairs_by_hypothesis: dict[str, list[Pair]] = {}
    while len(pairs_by_hypothesis) < sum(sizes):
        if pairs := pairs_of(scenes.scene(), rng):
            pairs_by_hypothesis.setdefault(pairs[0].hypothesis, pairs)
    triples = iter(pairs_by_hypothesis.values())
    return [[pair for triple in islice(triples, size) for pair in triple] for size in sizes]


def pairs_of(scene: Scene, rng: Chooser) -> list[Pair]:
    """Return a hypothesis of a scene with a premise of each class; nothing if the scene leaves no choice."""
    negated = rng.chance(P_NEGATED)
    verb = scene.negation if negated else {}
    told = {slot for slot in scene.slots if slot not in scene.untold or rng.chance(P_TOLD)}
    removable = changeable(told & scene.untold.keys(), negated)
    addable = changeable(scene.slots.keys() - told, negated)
    if not removable or not addable:
        return []
    told_without_one = told - {rng.pick(removable)}
    opposite, opposite_negated = opposed(scene, told, negated, rng)
    premises = (
        sentence(scene, told | random_slots(addable, rng), verb),
        sentence(scene, told_without_one | random_slots(addable, rng) | {rng.pick(addable)}, verb),
        sentence(scene, told | opposite.keys() | random_slots(changeable(addable, opposite_negated), rng), opposite),
    )
    hypothesis = sentence(scene, told, verb)
    return [link(premise, hypothesis, label) for premise, label in zip(premises, CLASSES, strict=True)]


def changeable(slots: Set[str] | Sequence[str], negated: bool) -> list[str]:
    """Return the slots in which sentences may differ: if one is negated, those of the subject and the other clause."""
    return sorted(slot for slot in slots if not negated or slot.startswith(("subject", "clause")))


def opposed(scene: Scene, told: Set[str], negated: bool, rng: Chooser) -> tuple[dict[str, str], bool]:
    """Return the changed slots of a premise that says the opposite of one told slot, noun or verb; is it negated?"""
    slots_of_kind: dict[str, list[str]] = {}
    for slot in changeable(scene.opposites.keys(), negated):
        is_noun = slot.endswith("noun")
        if is_noun or slot in told:
            kind = "noun" if is_noun else "number" if scene.slots[slot] in NUMBERS else "adjective"
            slots_of_kind.setdefault(kind, []).append(slot)
    by_verb = not slots_of_kind or rng.chance(P_OPPOSITE_BY_VERB)
    slot = "verb" if by_verb else rng.pick(rng.pick(list(slots_of_kind.values())))
    changes = {} if by_verb else {slot: rng.pick(scene.opposites[slot])}
    premise_negated = negated != by_verb
    return {**changes, **(scene.negation if premise_negated else {})}, premise_negated


def random_slots(slots: Sequence[str], rng: Chooser) -> set[str]:
    """Return one to `MAX_EXTRA` of the slots; none if there are none."""
    return {rng.pick(slots) for _ in range(rng.between(1, MAX_EXTRA))} if slots else set()


def sentence(scene: Scene, told: Set[str], changes: Mapping[str, str]) -> SlotWords:
    """Return the sentence that tells these slots, with other words in those that are changed."""
    texts = {
        slot: changes.get(slot, text) if slot in told else scene.untold[slot] for slot, text in scene.slots.items()
    }
    words = {(slot, number): word for slot, text in texts.items() for number, word in enumerate(text.split())}
    return dict(zip(words, fit_articles([*words.values()]), strict=True))


def link(premise: SlotWords, hypothesis: SlotWords, label: str) -> Pair:
    """Return the pair with the links of its slots."""
    position = {key: number for number, key in enumerate(premise)}
    links = frozenset((position[key], number) for number, key in enumerate(hypothesis) if key in position)
    return Pair(" ".join(premise.values()), " ".join(hypothesis.values()), label, Links(links, links))
