"""Where a translation's words come from: the places of a datastore's text that are nearest to each of its subwords."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rich.cells import cell_len, set_cell_size

from nmt.data.batch import collate
from nmt.errors import UserError
from nmt.models.seq2seq import Seq2Seq
from nmt.text.vocabulary import EOS, SPECIALS
from nmt.translation import Translation
from nmt.translator import Translator
from nmt.view.text_heatmap import DIRECTION_MARKS, shorten

END = SPECIALS[EOS]
LONGEST_LINE = 1_000  # characters of a neighbor that are shown
NO_NEIGHBORS = "neighbors are shown where one model uses them: set search.neighbors (--neighbors), without an ensemble"


@dataclass(frozen=True)
class Neighbor:
    """A place in the datastore's text: a word of a target, or its end, and its share of p_neighbors."""

    weight: float
    source: str
    words: list[str]  # of the target
    word: int  # index in `words`; their number is the end


def neighbors_of(translator: Translator, translation: Translation, n: int = 3) -> list[tuple[str, list[Neighbor]]]:
    """Return each subword of a translation, the last one the end, and its n nearest places (`nearest_places`)."""
    # The model has never read the whole of a translation in parts.
    if not translation.pieces or translation.parts > 1:
        return []
    ids = translator.tokenizers.target.ids_of(translation.pieces)
    found = nearest_places(translator, translation.source, ids, n)
    return list(zip([*translation.pieces, END], found, strict=True))


@torch.inference_mode()
def nearest_places(translator: Translator, sentence: str, target_ids: Sequence[int], n: int) -> list[list[Neighbor]]:
    """Return the n nearest places, nearest first, of each target token, and last of what follows them; raise UserError
    if the translator uses no neighbors, or several models.

    The model reads the target after its source (forced decoding), and the features of each place are looked up as in a
    search (`nmt.models.neighbors`).
    """
    model, datastore = translator.model, translator.datastore
    if datastore is None:
        raise UserError(NO_NEIGHBORS)
    assert isinstance(model, Seq2Seq)
    target = translator.tokenizers.target
    sides = translator.tokenizers.source.encode([sentence]), [target_ids]
    sources, targets = ([np.asarray(ids, dtype=np.int32) for ids in side] for side in sides)
    batch = collate(sources, targets, np.zeros(1, dtype=np.int64))
    with translator.arithmetic():
        features = model.eval()(batch.to(translator.device)).features[0]
    weights, places = datastore.nearest(features, translator.search)

    def neighbor(weight: float, place: int) -> Neighbor:
        source_line, target_line = datastore.sentence_pair(place)
        words, word_of_piece = target.display_words(target.encode([target_line])[0], target_line)
        return Neighbor(weight, source_line, words, [*word_of_piece, len(words)][datastore.places[place, 2]])

    nearest = zip(weights[:, :n].tolist(), places[:, :n].tolist(), strict=True)
    return [[neighbor(*pair) for pair in zip(*row, strict=True) if pair[0]] for row in nearest]


def neighbors_text(found: Sequence[tuple[str, Sequence[Neighbor]]]) -> str:
    """Return a line for each neighbor of `neighbors_of`: subword, share, target with the word in brackets, source."""
    width = max((cell_len(shorten(piece)) for piece, _ in found), default=0)
    lines = []
    for piece, neighbors in found:
        for number, each in enumerate(neighbors):
            label = set_cell_size("" if number else shorten(piece), width)
            words = each.words if each.word < len(each.words) else [*each.words, END]
            target = " ".join(f"[{word}]" if index == each.word else word for index, word in enumerate(words))
            lines.append(f"{label} {each.weight:4.0%}  {shorten(f'{target}  <-  {each.source}', LONGEST_LINE)}")
    return "\n".join(lines).translate(DIRECTION_MARKS)
