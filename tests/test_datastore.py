"""`python -m nmt.datastore`, and `search.neighbors` in every command that translates."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from nmt.errors import UserError
from nmt.evaluation.neighbors import neighbors_of, neighbors_text
from nmt.evaluation.saliency import Explainer
from nmt.serving.requests import TranslationRequest
from nmt.serving.served_run import ServedRun
from nmt.translator import Translator

LINES = ["The small cat sleeps.", "He sees my sister."]


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


def assert_told(done: Any, message: str) -> None:
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def write(folder: Path, *lines: str) -> tuple[str, ...]:
    """Write source and target lines to files, and return the options that name them."""
    for name, line in zip(("s.txt", "t.txt"), lines, strict=True):
        (folder / name).write_text(line * 30, encoding="utf-8")
    return "--source", "s.txt", "--target", "t.txt"


def test_from_the_training_text_to_a_translation(
    run: Path, command: Callable[..., Any], call: Callable[..., Any]
) -> None:
    done = call("datastore", "run")
    assert (done.returncode, done.stdout.splitlines()[0][:37]) == (0, "training text: kept 300 of 300 pairs;")
    folder = run / "datastore"
    assert f"written to {folder}" in done.stdout
    about = json.loads((folder / "datastore.json").read_text(encoding="utf-8"))
    assert about["pairs"] == 300
    assert len(np.load(folder / "places.npy")) == about["tokens"] > 1000
    lines = "\n".join(LINES).encode()
    alone, mixed, again = (
        start("translate", "--checkpoint", "run", "--neighbors", number, cwd=run.parent, stdin=lines)
        for start, number in ((call, "0"), (call, "8"), (command, "8"))
    )
    assert mixed.returncode == 0
    assert mixed.stdout == again.stdout != alone.stdout


def test_what_takes_long_is_told(run: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.tables.INTERVAL", 0.0)
    assert "reading: done, 300 pairs, " in call("datastore", "run").stderr


def test_pairs_that_training_leaves_out_are_not_read(run: Path, call: Callable[..., Any]) -> None:
    """A word of 2,000 letters would take the memory of 2,000 x 2,000 weights."""
    options = write(run.parent, "The small cat sleeps.\n", "Le petit chien mange.\n")
    for name, line in (("s.txt", "\u200b\nThe cat.\n" + "x" * 2_000), ("t.txt", "Le chien.\n\u200b\n" + "y" * 2_000)):
        with (run.parent / name).open("a", encoding="utf-8") as file:
            file.write(line)
    done = call("datastore", "run", *options)
    assert done.returncode == 0, done.stderr
    assert "left out 2 training pairs with a side without subwords" in done.stderr
    assert "left out 1 training pairs longer than 250 subwords" in done.stderr
    assert json.loads((run / "datastore" / "datastore.json").read_text(encoding="utf-8"))["pairs"] == 30
    assert set(np.load(run / "datastore" / "places.npy")[:, 1].tolist()) == set(range(30))


def test_a_model_learns_from_text_that_it_was_not_trained_on(run: Path, call: Callable[..., Any]) -> None:
    options = write(run.parent, "The small cat sleeps.\n", "Le petit chien mange.\n")
    assert call("datastore", "run", *options).returncode == 0
    settings: dict[str, Any] = {"device": "cpu", "neighbor_weight": 0.9, "neighbor_temperature": 0.1}
    assert Translator.load(run, **settings).translate(LINES[0]).text != "Le petit chien mange."
    mixed = Translator.load(run, neighbors=4, **settings)
    translation = mixed.translate(LINES[0])
    assert translation.text == "Le petit chien mange."
    pieces, neighbors = zip(*neighbors_of(mixed, translation), strict=True)
    assert pieces == (*translation.pieces, "</s>")
    words, word_of_piece = translation.words
    assert [{each.word for each in places} for places in neighbors] == [{word} for word in [*word_of_piece, 5]]
    for places in neighbors:
        assert all((each.source, each.words) == (LINES[0], words) for each in places)
        assert 0 < sum(each.weight for each in places) <= 1.0001
    assert "%  Le [petit] chien mange .  <-  The small cat sleeps.\n" in neighbors_text(
        neighbors_of(mixed, translation)
    )
    assert neighbors_of(mixed, mixed.translate("")) == []
    in_parts = mixed.translate(" ".join(LINES * 9))
    assert (in_parts.parts > 1, neighbors_of(mixed, in_parts)) == (True, [])
    with pytest.raises(UserError, match="neighbors are shown where one model uses them"):
        neighbors_of(Translator.load(run, device="cpu"), translation)
    with pytest.raises(UserError, match="saliency needs gradients"):
        Explainer(mixed)
    served = ServedRun.load(str(run), max_subwords=99, neighbors=4, **settings)
    assert not served.describe()["saliency"]
    assert served.translate(TranslationRequest(LINES[0]))["text"] == "Le petit chien mange."
    with pytest.raises(UserError, match="neighbors pass none on"):
        served.translate(TranslationRequest(LINES[0], saliency=True))
    (told,) = {json.dumps(place["words"]) for place in served.next(TranslationRequest(LINES[0]))["neighbors"]}
    assert json.loads(told) == words
    ask = TranslationRequest(LINES[0], prefix="Le petit")
    assert {words[place["word"]] for place in served.next(ask)["neighbors"]} == {"chien"}
    for ended in (TranslationRequest(""), TranslationRequest(LINES[0], prefix=["</s>"])):
        assert served.next(ended)["neighbors"] == []


def test_a_datastore_may_be_replaced_while_it_is_used(
    run: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one of another text, which a server that was started before does not show; nor is it read half and half."""
    first = write(run.parent, "The small cat sleeps.\n", "Le petit chien mange.\n")
    assert call("datastore", "run", *first).returncode == 0
    settings: dict[str, Any] = {"device": "cpu", "neighbors": 4, "neighbor_weight": 0.9}
    before = Translator.load(run, **settings)
    shutil.move(run / "datastore", run / "first")
    second = write(run.parent, "He sees my sister.\n", "Il voit ma sœur.\n")
    assert call("datastore", "run", *second).returncode == 0
    places = [place for _, found in neighbors_of(before, before.translate(LINES[0])) for place in found]
    assert {place.source for place in places} == {LINES[0]}
    shutil.move(run / "datastore", run / "second")
    shutil.move(run / "first", run / "datastore")
    read_index = faiss.read_index

    def replaced_meanwhile(path: str) -> Any:
        if (run / "second").exists():
            shutil.rmtree(run / "datastore")
            shutil.move(run / "second", run / "datastore")
        return read_index(path)

    monkeypatch.setattr(faiss, "read_index", replaced_meanwhile)
    datastore = Translator.load(run, **settings).datastore
    assert datastore is not None
    assert datastore.index.ntotal == len(datastore.tokens)
    assert datastore.sentence_pair(0) == ("He sees my sister.", "Il voit ma sœur.")


def test_an_evaluation_with_neighbors_against_one_without(run: Path, call: Callable[..., Any]) -> None:
    options = write(run.parent, "The small cat sleeps.\n", "Le petit chien mange.\n")
    assert call("datastore", "run", *options).returncode == 0
    text = ("data.test.source=s.txt", "data.test.target=t.txt", "baseline=run", "output=scores", "num_heatmaps=0")
    settings = ("search.neighbors=4", "search.neighbor_weight=0.9", "search.neighbor_temperature=0.1")
    done = call("evaluate", "checkpoint=run", *text, *settings)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((run.parent / "scores" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["bleu"] == pytest.approx(100.0)
    told = call("evaluate", "checkpoint=run", *text, *settings, "saliency=true")
    assert_told(told, "saliency needs gradients, and neighbors pass none on")


def test_mistakes_have_a_message(run: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ("translate", "--checkpoint", "run", "--neighbors", "8", LINES[0])
    assert_told(call(*ask), f"search.neighbors needs a datastore, and there is no {run / 'datastore'}")
    assert_told(call("train", "search.neighbors=8"), "search.neighbors needs the datastore of a trained model")
    assert_told(call("datastore", "run", "--source", "s.txt"), "--source and --target belong together")
    assert_told(call("datastore", "run", "--source", "absent", "--target", "absent"), "absent")
    assert_told(call("datastore", "nothing"), "no checkpoint at nothing")
    (run / "datastore").mkdir()
    (run / "datastore" / "mine").touch()
    assert_told(call("datastore", "run"), f"{run / 'datastore'} is not a datastore, and would be replaced by one")
    shutil.rmtree(run / "datastore")
    (run / "datastore").touch()
    assert_told(call("datastore", "run"), f"{run / 'datastore'} is not a datastore, and would be replaced by one")
    (run / "datastore").unlink()
    empty = write(run.parent, "\n", "\n")
    assert_told(call("datastore", "run", *empty), "cleaning leaves nothing of the corpus")
    options = write(run.parent, "The small cat sleeps.\n", "Le petit chien mange.\n")
    assert call("datastore", "run", *options).returncode == 0
    about = run / "datastore" / "datastore.json"
    content = json.loads(about.read_text(encoding="utf-8"))
    about.write_text(json.dumps({**content, "model": "0"}), encoding="utf-8")
    assert_told(call(*ask), "is of other weights than")
    about.write_text(json.dumps(content), encoding="utf-8")
    shown = call(*ask, "--show-neighbors")
    assert (shown.returncode, shown.stderr.count("[petit]") > 0) == (0, True)
    as_json = call(*ask, "--show-neighbors", "--json")
    assert as_json.stderr == ""
    neighbors = json.loads(as_json.stdout)["neighbors"]
    assert neighbors[-1]["piece"] == "</s>"
    places = [place for each in neighbors for place in each["places"]]
    assert {(place["source"], place["words"][1]) for place in places} == {(LINES[0], "petit")}
    lines = [line.split("%")[0].split()[-1] for line in shown.stderr.splitlines()]
    assert lines == [f"{100 * place['weight']:.0f}" for place in places]
    assert_told(call(*ask[:3], "--show-neighbors", LINES[0]), "set search.neighbors (--neighbors)")
    for name, damaged in (
        ("places.npy", b""),
        ("pairs.jsonl", b""),
        ("index.faiss", b"IwFl"),
        ("datastore.json", b"{}"),
    ):
        path = run / "datastore" / name
        whole = path.read_bytes()
        path.write_bytes(damaged)
        assert_told(call(*ask), "is damaged: make it anew with python -m nmt.datastore run")
        path.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert_told(call(*ask), "need faiss: pip install -e '.[neighbors]'")
