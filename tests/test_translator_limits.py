"""Batches and memory of a translator, and lines too long for either."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt import translation
from nmt.config.file import load_config
from nmt.data.grammar.corpus import generate
from nmt.errors import UserError
from nmt.models.checkpoint import find_checkpoint
from nmt.search.beam import beam_search
from nmt.search.threads import map_in_threads
from nmt.text.long_lines import split_line
from nmt.translator import Translator
from tests.sentences import SENTENCES


def count_subwords(translator: Translator, line: str) -> int:
    return len(translator.tokenizers.source.encode([line])[0])


def test_a_translation_does_not_depend_on_its_batch(tiny_run: Path) -> None:
    lines = [line for line in SENTENCES for _ in range(3)]
    alone, *others = (
        Translator.load(tiny_run, device="cpu", batch_unit=unit, batch_size=size, beam_size=3).translate(lines)
        for unit, size in (("sentences", 1), ("sentences", 64), ("tokens", 50))
    )
    for together in others:
        assert [each.text for each in alone] == [each.text for each in together]
        for one, other in zip(alone, together, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_a_translation_does_not_depend_on_batches_beside_it(tiny_run: Path, precision: str) -> None:
    translator = Translator.load(tiny_run, precision=precision, batch_size=2)
    sentences = [" ".join(["my", "sister", "sees", "Luc"][: 1 + number % 4]) for number in range(24)]
    before = torch.get_num_threads()
    translator.map_batches = map
    torch.set_num_threads(1)
    try:
        expected = translator.translate(sentences)
        translator.map_batches = map_in_threads
        torch.set_num_threads(4)
        for _ in range(2):
            assert [each.text for each in translator.translate(sentences)] == [each.text for each in expected]
    finally:
        torch.set_num_threads(before)


def test_batches_by_tokens_hold_no_more(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def note(model: Any, source: torch.Tensor, *arguments: Any, **settings: Any) -> Any:
        shapes.append(source.shape)
        return beam_search(model, source, *arguments, **settings)

    monkeypatch.setattr("nmt.search.search.beam_search", note)
    translator = Translator.load(tiny_run, device="cpu", batch_unit="tokens", batch_size=40, beam_size=2)
    lines = ["", *SENTENCES, *SENTENCES[:2] * 7]
    assert [bool(each.text) for each in translator.translate(lines)] == list(map(bool, lines))
    assert sum(rows for rows, _ in shapes) == len(lines) - 1
    assert all(rows * width <= 40 or rows == 1 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) > 1
    # A batch is as large as it can be: with the first sentence of the next it would be too large.
    assert all((rows + 1) * width > 40 for rows, width in shapes[:-1])


def test_a_line_far_too_long_is_translated_in_parts(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu", beam_size=2)
    sources = load_config(find_checkpoint(tiny_run) / "config.yaml").data
    encoded = translator.tokenizers.source.encode([pair.source for pair in generate(sources.grammar, "train")])
    assert translator.longest_source == max(map(len, encoded))  # 300 pairs are too few for outliers
    line = " ".join(SENTENCES[:5])
    translator.longest_source = 250
    (whole,) = translator.translate([line])
    assert whole.parts == 1
    translator.longest_source = 24
    before, found, after = translator.translate([SENTENCES[0], line, "He sleeps."])
    assert found.parts >= 3
    assert (before.parts, after.parts) == (1, 1)
    assert (found.source, found.source_words) == (line, whole.source_words)
    assert found.weights.shape == (len(found.target_words), len(found.source_words))
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, atol=1e-6)
    translator.longest_source = None
    parts = translator.translate(split_line(line, partial(count_subwords, translator), 24))
    assert found.text == " ".join(each.text for each in parts)
    assert found.pieces == [piece for each in parts for piece in each.pieces]
    assert found.log_prob == pytest.approx(sum(each.log_prob for each in parts), abs=1e-4)
    assert found.score == pytest.approx(sum(each.score for each in parts) / len(parts), abs=1e-4)


def test_a_line_in_parts_has_several_translations(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    translator.longest_source = 24
    first, second = translator.translate_n_best([" ".join(SENTENCES[:5])], 2)[0]
    assert first.text != second.text
    assert first.log_prob != second.log_prob
    assert first.parts == second.parts > 1


def test_a_translation_that_is_cut_says_so(tiny_run: Path) -> None:
    short = Translator.load(tiny_run, device="cpu", max_length_ratio=1e-9, max_length_offset=2)
    long = Translator.load(tiny_run, device="cpu", max_length_ratio=5.0, max_length_offset=40)
    assert [each.cut for each in short.translate([SENTENCES[2], ""])] == [True, False]
    for each in long.translate(SENTENCES[:3]):
        assert each.cut == (len(each.pieces) == 5 * (count_subwords(short, each.source) + 1) + 40)
    assert not all(each.cut for each in long.translate(SENTENCES[:3]))


def test_the_longest_length_is_that_of_an_export(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """90 x 1.3 + 10 is 127, but less in 32 bits."""
    limits: list[list[int]] = []

    def search(*arguments: Any, **settings: Any) -> Any:
        limits.append(settings["max_lengths"].tolist())
        return beam_search(*arguments, **settings)

    monkeypatch.setattr("nmt.search.search.beam_search", search)
    short = Translator.load(tiny_run, device="cpu", beam_size=2, max_length_ratio=1.3, max_length_offset=10)
    short.longest_source = None
    lines = ["." * count for count in range(180)]
    short.translate(next(line for line in lines if count_subwords(short, line) == 89))
    assert limits == [[127]]


def test_a_translator_tells_how_far_it_is(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(translator, "progress", counts.append)
    translator.translate([*SENTENCES, ""])
    assert sum(counts) == len(SENTENCES)
    translator.align(SENTENCES, SENTENCES)
    assert sum(counts) == 2 * len(SENTENCES)


def test_where_memory_runs_out_a_batch_is_halved(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(tiny_run, device="cpu", beam_size=2)
    expected = translator.translate(SENTENCES), translator.align(SENTENCES, SENTENCES)
    search, attend, tried = translator._search_batch, translator.model.attend, []

    def limited(call: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        def limited(argument: Any, *others: Any) -> Any:
            tried.append(size(argument))
            if tried[-1] > 2:
                raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB")
            return call(argument, *others)

        return limited

    monkeypatch.setattr(translator, "_search_batch", limited(search, len))
    monkeypatch.setattr(translator.model, "attend", limited(attend, len), raising=False)
    found = translator.translate(SENTENCES), translator.align(SENTENCES, SENTENCES)
    assert {size > 2 for size in tried} == {True, False}
    for one, other in zip(expected[0], found[0], strict=True):
        assert one.text == other.text
    for pair, same in zip(expected[1], found[1], strict=True):
        np.testing.assert_allclose(pair.weights, same.weights, atol=1e-5)
    monkeypatch.setattr(translator, "_search_batch", limited(search, lambda rows: 3))
    with pytest.raises(UserError, match=r"memory does not suffice for one sentence: lower search\.beam_size"):
        translator.translate("He sleeps.")


def test_a_batch_of_long_sentences_or_wide_beams_is_small(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(tiny_run, device="cpu", beam_size=2)
    expected = [each.text for each in translator.translate(SENTENCES * 4)]
    search, sizes = translator._search_batch, []

    def counted(ids: list[list[int]], *others: Any) -> Any:
        sizes.append(len(ids))
        return search(ids, *others)

    monkeypatch.setattr(translator, "_search_batch", counted)
    for memory in (2**30, 2**19, 1):
        monkeypatch.setattr("nmt.translator.MEMORY_CPU", memory)
        assert [each.text for each in translator.translate(SENTENCES * 4)] == expected
        sizes.append(0)
    whole, few, one = (list(group) for is_end, group in itertools.groupby(sizes, lambda size: size == 0) if not is_end)
    assert max(one) == 1 < max(few) < max(whole)


def test_batches_at_once_share_the_memory(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(tiny_run, device="cpu", beam_size=2)
    monkeypatch.setattr("nmt.translator.MEMORY_CPU", 2**21)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    ids = translator.tokenizers.source.encode(SENTENCES * 50)
    costs = translator._search_costs(ids, 1, None)
    largest = []
    for map_batches in (map, map_in_threads):
        translator.map_batches = map_batches
        largest.append(max(int(costs[rows].sum()) for rows in translator._map_batches(lambda rows: [rows], ids, costs)))
    assert largest[1] <= 2**19 < largest[0] <= 2**21


def test_a_translation_too_long_for_its_weights_has_its_text(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator.load(tiny_run, device="cpu", beam_size=2)
    translator.longest_source = 12
    line = " ".join(SENTENCES)
    expected = translator.translate(line)
    monkeypatch.setattr(translation, "MAX_WEIGHTS", expected.weights.size)
    assert translator.translate(line) == expected
    assert not expected.is_unaligned
    monkeypatch.setattr(translation, "MAX_WEIGHTS", expected.weights.size - 1)
    found = translator.translate(line)
    assert found.is_unaligned
    assert (found.text, found.parts, found.weights.size) == (expected.text, expected.parts, 0)
