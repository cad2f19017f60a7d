import os
import signal
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import TokenizerConfig
from nmt.data import tables as encoded
from nmt.data.tables import EncodedCorpus, Ragged, encode, encode_part, encoded_path
from nmt.errors import UserError, WorkerError
from nmt.text.tokenizer import Tokenizers, build_tokenizers

SOURCES = [f"the dog number {i} runs" for i in range(2_500)] + [""]
TARGETS = [f"le chien {'très ' * (i % 3)}numéro {i}" for i in range(2_500)] + ["rien"]
TOKENIZERS = build_tokenizers(SOURCES[:300], TARGETS[:300], TokenizerConfig(joint=False, vocab_size=340))
CORPUS = datasets.Dataset.from_dict({"source": SOURCES, "target": TARGETS, "alignment": ["0-0"] * len(SOURCES)})


def encoded_in(
    folder: Path, corpus: datasets.Dataset = CORPUS, tokenizers: Tokenizers = TOKENIZERS, num_workers: int = 1
) -> EncodedCorpus:
    return encode(corpus, tokenizers, cache_dir=folder, num_workers=num_workers)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1))))
def test_ragged_is_a_list_of_lists(sequences: list[list[int]]) -> None:
    ragged = Ragged.of(sequences)
    assert [ragged[i].tolist() for i in range(len(ragged))] == sequences
    assert ragged.lengths.tolist() == [len(sequence) for sequence in sequences]
    assert ragged.ids.dtype == np.int32
    assert ragged.offsets.dtype == np.int64


@pytest.mark.parametrize("row", [-1, 2])
def test_ragged_has_no_other_rows(row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of 2"):
        Ragged.of([[1], [2, 3]])[row]


@pytest.mark.parametrize("in_parallel", [False, True])
def test_ids_are_those_of_the_tokenizers(in_parallel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "PARALLEL_FROM", 0 if in_parallel else 10**9)
    result = encoded_in(tmp_path, num_workers=2)
    assert len(result) == len(result.source) == len(result.target) == len(SOURCES)
    assert [ids.tolist() for ids in map(result.source.__getitem__, range(len(SOURCES)))] == TOKENIZERS.source.encode(
        SOURCES
    )
    assert [ids.tolist() for ids in map(result.target.__getitem__, range(len(TARGETS)))] == TOKENIZERS.target.encode(
        TARGETS
    )
    assert result.corpus is CORPUS
    assert len(list(tmp_path.glob("*.arrow"))) == 1


def test_a_process_that_is_killed_while_it_encodes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left, and the next start encodes all of it."""
    monkeypatch.setattr(encoded, "PARALLEL_FROM", 0)
    with monkeypatch.context() as killed:
        killed.setattr(encoded, "_encode_batch", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(WorkerError, match=r"^a process that encodes text was ended .*: lower data\.num_workers$"):
            encoded_in(tmp_path, num_workers=2)
    assert list(tmp_path.iterdir()) == []
    assert len(encoded_in(tmp_path, num_workers=2)) == len(SOURCES)


def test_ids_are_views_of_the_file(tmp_path: Path) -> None:
    result = encoded_in(tmp_path).target
    assert np.shares_memory(result[3], result.ids)
    assert not result.ids.flags.writeable
    assert result.ids.dtype == np.int32
    assert result.offsets.dtype == np.int64


def test_a_corpus_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = encoded_in(tmp_path)
    monkeypatch.setattr(encoded, "_one_table", None)
    for corpus in (
        CORPUS,
        CORPUS.select(range(len(CORPUS))),
        CORPUS.select(np.arange(len(CORPUS))),
        CORPUS.remove_columns("alignment"),
    ):
        assert (encoded_in(tmp_path, corpus).source.ids == first.source.ids).all()


def test_a_corpus_is_encoded_anew_by_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {encoded_path(CORPUS, TOKENIZERS, tmp_path)}
    for content in ("old", "new"):
        (tmp_path / "tokenizer.py").write_text(content)
        monkeypatch.setattr(encoded, "TOKENIZATION", tmp_path)
        names.add(encoded_path(CORPUS, TOKENIZERS, tmp_path))
    assert len(names) == 3


@given(count=st.integers(9, 30), number=st.integers(1, 9), stored=st.sets(st.integers(0, 8)))
def test_parts_that_were_stored_or_are_missing_make_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, count: int, number: int, stored: set[int]
) -> None:
    folder, corpus = tmp_path_factory.mktemp("parts"), CORPUS.select(range(count))
    whole, joined = encoded_path(corpus, TOKENIZERS, folder), encoded_path(corpus, TOKENIZERS, folder / "joined")
    encoded_in(folder, corpus)
    parts = [folder / f"{part}.arrow" for part in range(number)]
    for part in stored & set(range(number)):
        assert encode_part(corpus, TOKENIZERS, parts, part, num_workers=1) == parts[part]
    encode(corpus, TOKENIZERS, cache_dir=joined.parent, num_workers=1, parts=parts)
    assert whole.read_bytes() == joined.read_bytes()


def test_other_text_or_models_are_encoded_anew(tmp_path: Path) -> None:
    reordered = CORPUS.select(np.arange(len(CORPUS))[::-1])
    swapped = Tokenizers(TOKENIZERS.target, TOKENIZERS.source)
    results = [
        encoded_in(tmp_path, corpus, tokenizers)
        for corpus in (CORPUS, reordered)
        for tokenizers in (TOKENIZERS, swapped)
    ]
    assert len(list(tmp_path.glob("*.arrow"))) == 4
    assert results[2].target[1].tolist() == TOKENIZERS.target.encode([TARGETS[-2]])[0]
    assert results[1].source[0].tolist() == TOKENIZERS.target.encode([SOURCES[0]])[0]


def test_no_progress_bar_in_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    encoded_in(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("id", [-1, len(TOKENIZERS.target)])
def test_ids_that_no_subword_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id: int) -> None:
    columns = [pa.array([ids], type=pa.large_list(pa.int32())) for ids in ([4], [5, id])]
    table = pa.table(columns, names=["source", "target"])
    monkeypatch.setattr(encoded, "_one_table", lambda *given: iter([table]))
    with pytest.raises(
        UserError, match=rf"has ids of no target subword \(there are {len(TOKENIZERS.target)}\): delete it"
    ):
        encoded_in(tmp_path)
