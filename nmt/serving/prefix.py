"""Translations that begin with a given prefix, and the words that may come next."""

import copy
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from nmt.data.batch import pad
from nmt.errors import UserError
from nmt.search.hypothesis import BOS, EOS, PAD, UNK, StepModel, StepOutput, forbidden_tokens
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import SPECIALS, WORD_MARK, Vocabulary
from nmt.translation import alignment_of_words, copy_unknown_words
from nmt.translator import MOST_WIDENING, Translation, Translator

MAX_PIECES = 12  # of a word that is completed


class NextWord(NamedTuple):
    """A word that may come next."""

    word: str  # empty for the end of the translation
    probability: float  # the product of those of its pieces, given the prefix
    pieces: list[str]  # the prefix and the word, by name; to be given as the next prefix
    joins: bool  # whether it continues the last word of the prefix


def prefix_ids(
    tokenizer: Tokenizer | Vocabulary, prefix: str | Sequence[str], *, allow_unknown: bool = False
) -> list[int]:
    """Return the subword ids of a prefix, given as text or by the names of subwords (`</s>` ends the translation), or
    raise UserError for a subword that is not one of the model's, or cannot be produced.

    If `allow_unknown`, a word may be unknown: a source word takes its place.
    """
    try:
        ids = tokenizer.encode([prefix])[0] if isinstance(prefix, str) else tokenizer.ids_of(prefix)
    except UserError as error:
        raise UserError(f"prefix: {error}; give the prefix as text") from None
    if ({PAD, BOS} if allow_unknown else {PAD, BOS, UNK}) & set(ids) or EOS in ids[:-1]:
        raise UserError("prefix: it has a subword that the model never produces, or goes on after the end mark")
    return ids


def translate_with(
    translator: Translator, model: StepModel[Any], sentence: str, prefix: Sequence[int], n: int
) -> list[Translation]:
    """Return the n best translations found with `model` in place of the translator's own model; fewer if fewer exist.

    The length limit counts from the end of the prefix. With a prefix a long sentence is not cut into parts: only the
    first of them could begin with it.
    """
    translator.model.eval()
    variant = copy.copy(translator)
    variant.model = cast(Any, model)
    variant.longest_source = None if prefix else translator.longest_source
    max_length_offset = translator.search.max_length_offset + len(prefix)
    variant.search = dataclasses.replace(translator.search, max_length_offset=max_length_offset)
    return variant.translate_n_best([sentence], n)[0]


@torch.inference_mode()
def next_words(translator: Translator, sentence: str, prefix: Sequence[int], count: int) -> list[NextWord]:
    """Return the most probable words after a prefix, best first.

    The most probable subwords are completed, each by its most probable continuation, until a word begins or the
    translation ends; a word mark that is a subword of its own stands for the most probable ones after it. A word found
    twice, in different pieces, counts once, with the sum of its probabilities. Where unknown words are replaced, the
    copy is among them. `count` subwords are completed, and where that gives fewer words twice as many, up to
    `MOST_WIDENING` times as many.
    """
    model, target = translator.model, translator.tokenizers.target
    ids = translator.tokenizers.source.encode([sentence])[0]
    if not ids or EOS in prefix:
        return []
    model.eval()
    source, source_mask, source_lengths = pad([np.asarray(ids, dtype=np.int32)])
    source, source_mask = source.to(translator.device), source_mask.to(translator.device)
    with translator.arithmetic():
        state: Any = model.start(source, source_mask, source_lengths)
        for token in (BOS, *prefix):
            step: Any = model.step(source.new_full((1, 1), token), state)
            state = step.state

        def words_after(pieces: list[int], log_prob: float, step: Any, width: int) -> Iterator[NextWord]:
            best, tokens = without_specials(translator, step.log_probs)[0, 0].topk(min(width, len(target) - 3))
            totals = (best + log_prob).tolist()
            words = complete_words(translator, pieces, tokens, totals, step.state, len(prefix))
            for token, total, word in zip(tokens.tolist(), totals, words, strict=True):
                if token == UNK:
                    yield word._replace(word=copied_word(translator, sentence, ids, step))
                elif len(pieces) == len(prefix) and target.pieces([token]) == [WORD_MARK]:
                    after = model.step(source.new_full((1, 1), token), state)
                    yield from words_after([*pieces, token], total, after, width)
                else:
                    yield word

        width, words = count, merge_equal_words(words_after([*prefix], 0.0, step, count))
        while len(words) < count and width < min(MOST_WIDENING * count, len(target)):
            width *= 2
            words = merge_equal_words(words_after([*prefix], 0.0, step, width))
    return words[:count]


def merge_equal_words(words: Iterable[NextWord]) -> list[NextWord]:
    """Return each word once, with its first pieces and the sum of its probabilities, best first."""
    merged: dict[tuple[str, bool], NextWord] = {}
    for word in words:
        first = merged.get((word.word, word.joins))
        total = word.probability + (first.probability if first else 0.0)
        merged[word.word, word.joins] = (first or word)._replace(probability=total)
    return sorted(merged.values(), key=lambda word: -word.probability)


def copied_word(translator: Translator, sentence: str, ids: list[int], step: StepOutput[Any]) -> str:
    """Return the source word that takes the place of an unknown word at this step."""
    source_words = translator.words_of(translator.tokenizers.source, ids, sentence)
    weights = step.weights[0].float().cpu().numpy()
    return copy_unknown_words(alignment_of_words(source_words, ([SPECIALS[UNK]], [0]), weights), [0]).target_words[0]


def complete_words(
    translator: Translator, pieces: list[int], tokens: Tensor, log_probs: list[float], state: Any, start: int
) -> list[NextWord]:
    """Complete words whose pieces begin at `start`, by the most probable continuation.

    Each is read as `pieces`, after which the model is in `state`, and one of `tokens`, with a log-probability for both.
    """
    tokenizer = translator.tokenizers.target
    ids, log_probs = [[*pieces, token] for token in tokens.tolist()], [*log_probs]
    tokens = tokens[None]
    state = state.select(torch.zeros_like(tokens))
    is_open = [each[-1] != EOS for each in ids]
    for _ in range(MAX_PIECES):
        step: Any = translator.model.step(tokens, state)
        best, tokens = without_specials(translator, step.log_probs).max(dim=2)
        state = step.state
        for row, token in enumerate(tokens[0].tolist()):
            is_open[row] = is_open[row] and token != EOS and same_word(tokenizer, [*ids[row], token], start)
            if is_open[row]:
                ids[row].append(token)
                log_probs[row] += float(best[0, row])
        if not any(is_open):
            break
    return [next_word(tokenizer, each, start, total) for each, total in zip(ids, log_probs, strict=True)]


def same_word(tokenizer: Tokenizer | Vocabulary, ids: list[int], start: int) -> bool:
    """Return whether the last piece belongs to the word of the piece at `start`."""
    word_of_piece = tokenizer.display_words(ids)[1]
    return word_of_piece[-1] == word_of_piece[start]


def without_specials(translator: Translator, log_probs: Tensor) -> Tensor:
    """Return log-probabilities without the tokens that search never produces."""
    forbidden = forbidden_tokens(None if translator.replaces_unknown else UNK, log_probs.device)
    return log_probs.index_fill(2, forbidden, -torch.inf)


def next_word(tokenizer: Tokenizer | Vocabulary, ids: list[int], start: int, log_prob: float) -> NextWord:
    """Return the word whose pieces begin at `start`."""
    probability, pieces = math.exp(log_prob), tokenizer.pieces(ids)
    if ids[-1] == EOS:
        return NextWord("", probability, pieces, False)
    words, word_of_piece = tokenizer.display_words(ids)
    joins = start > 0 and word_of_piece[start] == word_of_piece[start - 1]
    return NextWord(words[word_of_piece[start]], probability, pieces, joins)
