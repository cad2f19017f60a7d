"""The tree of a search, against the hypotheses that the search returns and the model's own probabilities."""

import copy
import dataclasses

import pytest
import torch

from nmt.search.beam import beam_search
from nmt.search.hypothesis import BOS, EOS, PAD, UNK
from nmt.serving.forced_search import ForcedSearch
from nmt.serving.served_run import ServedRun
from tests.search.toy import ToyModel, make_inputs

SOURCE = [5, 4, 6]


def search(beam_size, length=4, seed=0, prefix=()):
    """The record of a search, what it found, and the model."""
    toy = ToyModel(seed)
    recorder = ForcedSearch(toy, prefix, records=True)
    inputs, lengths = make_inputs([SOURCE], [length])
    sizes = {"beam_size": beam_size, "n_best": beam_size}
    found = beam_search(recorder, *inputs, **sizes, max_lengths=lengths, length_penalty=1.0)
    return recorder, found[0], toy


def path(recorder: ForcedSearch, node: int) -> list[int]:
    tokens: list[int] = []
    while node >= 0:
        tokens.insert(0, recorder.nodes[node].token)
        node = recorder.nodes[node].parent
    return tokens


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_are_hypotheses_with_their_probabilities(beam_size: int, seed: int) -> None:
    recorder, found, toy = search(beam_size, seed=seed)
    paths = [tuple(path(recorder, index)) for index in range(len(recorder.nodes))]
    assert len(set(paths)) == len(paths)
    for node, tokens in zip(recorder.nodes, paths, strict=True):
        assert node.step == len(tokens)
        assert not {PAD, BOS, UNK, EOS} & set(tokens)
        assert node.log_prob == pytest.approx(toy.score(tuple(SOURCE), tokens, 1.0, False)[0])
    steps = [node.step for node in recorder.nodes]
    assert max(map(steps.count, steps), default=0) <= beam_size
    for hypothesis in found:
        # One that was cut at its maximal length was never extended.
        end = path(recorder, recorder.end_of(hypothesis.tokens))
        assert end == hypothesis.tokens[: len(end)]
        assert len(hypothesis.tokens) - len(end) <= 1


def test_a_forced_beginning_has_one_path() -> None:
    recorder, found, _ = search(3, prefix=(5, 6))
    assert [path(recorder, index) for index in range(2)] == [[5], [5, 6]]
    assert all(each.tokens[:2] == [5, 6] for each in found)
    assert [node.step for node in recorder.nodes][:2] == [1, 2]
    assert all(node.step > 2 for node in recorder.nodes[2:])


def test_a_full_beam_finds_all() -> None:
    recorder, found, toy = search(100, length=3)
    words = [token for token in range(toy.vocab) if token not in (PAD, BOS, UNK, EOS)]
    assert {tuple(path(recorder, index)) for index in range(len(recorder.nodes))} == {
        *((a,) for a in words), *((a, b) for a in words for b in words)
    }  # fmt: skip
    assert found


def test_a_tree_of_the_api_holds_the_translations(run: ServedRun) -> None:
    from nmt.serving.requests import TranslationRequest

    with torch.inference_mode():
        answer = run.translate(TranslationRequest("She helps her brother.", n_best=3, tree=True))
    tree = answer["tree"]
    assert len(tree["ends"]) == len(answer["n_best"])
    for end, translation in zip(tree["ends"], answer["n_best"], strict=True):
        pieces: list[str] = []
        node = end["node"]
        while node >= 0:
            pieces.insert(0, tree["nodes"][node]["piece"])
            node = tree["nodes"][node]["parent"]
        assert pieces == translation["pieces"][: len(pieces)]
        assert end["score"] == translation["score"]


def test_a_text_in_parts_is_translated_in_threads(run: ServedRun) -> None:
    """Several searches at a time, of which no record is kept: a record is of one."""
    from nmt.serving.requests import TranslationRequest

    translator = copy.copy(run.translator)
    translator.longest_source, translator.search = 3, dataclasses.replace(translator.search, batch_size=1)
    served = ServedRun("run", translator, ("en", "fr"), 1_000)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        for _ in range(3):
            answer = served.translate(TranslationRequest("He sleeps. " * 16))
            assert answer["parts"] == 16
    finally:
        torch.set_num_threads(before)
