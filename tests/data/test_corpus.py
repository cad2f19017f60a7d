from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from nmt.config.schema import DataConfig, GrammarConfig, HubConfig, SplitConfig
from nmt.data.corpus import CORPORA, load_split, open_corpus
from nmt.data.tables import Corpus
from tests.messages import error_message


def text_config(
    folder: Path, source: str = "a b\nc\n", target: str = "A B\nC\n", alignment: str | None = None
) -> DataConfig:
    files = {"source": source, "target": target, "alignment": alignment}
    for column, content in files.items():
        (folder / column).write_text(content or "")
    split = SplitConfig(**{column: str(folder / column) for column, content in files.items() if content is not None})
    return DataConfig(kind="text", train=split, cache_dir=str(folder / "cache"))


def complaint(config: DataConfig, split: str = "train") -> str:
    return error_message(load_split, config, split)


def test_text_becomes_a_mapped_table(tmp_path: Path) -> None:
    config = text_config(tmp_path)
    corpus = load_split(config, "train")
    assert corpus.column_names == ["source", "target"]
    assert corpus[:] == {"source": ["a b", "c"], "target": ["A B", "C"]}
    assert [Path(file["filename"]).parent for file in corpus.cache_files] == [tmp_path / "cache"]


def test_gold_alignment_becomes_a_column(tmp_path: Path) -> None:
    assert load_split(text_config(tmp_path, alignment="0-0 1-1\n0-0\n"), "train")["alignment"][:] == ["0-0 1-1", "0-0"]


def test_the_cache_follows_the_content(tmp_path: Path) -> None:
    for _ in range(2):
        load_split(text_config(tmp_path), "train")
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1
    assert load_split(text_config(tmp_path, target="A B\nD\n"), "train")[1]["target"] == "D"
    assert load_split(text_config(tmp_path, source="a\nb\n", target="c\nd\n"), "train")[1] == {
        "source": "b",
        "target": "d",
    }
    for source, target in [("a", "bc"), ("ab", "c")]:
        assert load_split(text_config(tmp_path, source, target), "train")[0] == {"source": source, "target": target}
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 5


def test_the_cache_follows_the_code_that_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "text.py"
    monkeypatch.setattr("nmt.data.text.__file__", str(code))
    for number, content in ((1, "old"), (1, "old"), (2, "new")):
        code.write_text(content)
        load_split(text_config(tmp_path), "train")
        assert len(list((tmp_path / "cache").glob("*.arrow"))) == number


def test_an_empty_corpus(tmp_path: Path) -> None:
    message = complaint(text_config(tmp_path, source="", target=""))
    assert message == f"the train split is empty: {tmp_path}/source and {tmp_path}/target hold no lines"


def test_an_unset_split(tmp_path: Path) -> None:
    config = text_config(tmp_path)
    assert open_corpus(config).has_split("train")
    assert not open_corpus(config).has_split("validation")
    assert not open_corpus(config).has_split("test_long")
    assert "no files for the test split: set data.test.source=FILE and data.test.target=FILE" in complaint(
        config, "test"
    )
    assert "only data=grammar has test_long" in complaint(config, "test_long")
    config.test.source = "half.en"
    assert open_corpus(config).has_split("test")
    assert "set data.test.target=FILE" in complaint(config, "test")


def test_an_unknown_split() -> None:
    assert complaint(DataConfig(), "valid") == (
        "unknown split 'valid': choose one of test, test_long, train, validation; did you mean 'validation'?"
    )


@pytest.mark.parametrize(
    ("kind", "split", "message"),
    [
        (
            "grammar",
            SplitConfig(source="x"),
            "data.train.source is set, but data=grammar does not use it: add data=text",
        ),
        ("hub", SplitConfig(alignment="x"), "data.train.alignment is set, but data=hub does not use it: add data=text"),
        ("text", SplitConfig(name="x"), "data.train.name is set, but data=text does not use it: add data=hub"),
    ],
)
def test_keys_of_another_kind(kind: str, split: SplitConfig, message: str) -> None:
    assert message in complaint(DataConfig(kind=kind, train=split))


def test_a_corpus_that_datasets_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text("en,fr\ncat,chat\n")
    hub = HubConfig(path="csv", data_files={"train": str(tmp_path / "x.csv")})
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")
    config = DataConfig(kind="hub", hub=hub)
    assert load_split(config, "train")[:] == {"source": ["cat"], "target": ["chat"]}
    assert open_corpus(config).has_split("train")
    assert not open_corpus(config).has_split("test")
    assert not open_corpus(config).has_split("test_long")


def test_the_grammar(tmp_path: Path) -> None:
    sizes = {"train_size": 30, "validation_size": 4, "test_size": 5, "long_size": 3}
    config = DataConfig(grammar=GrammarConfig(**sizes), cache_dir=str(tmp_path))
    for split, size in zip(("train", "validation", "test", "test_long"), sizes.values(), strict=True):
        corpus = load_split(config, split)
        assert open_corpus(config).has_split(split)
        assert len(corpus) == size
        for pair in corpus:
            links = [tuple(map(int, link.replace("?", "-").split("-"))) for link in pair["alignment"].split()]
            assert links
            assert all(i < len(pair["source"].split()) and j < len(pair["target"].split()) for i, j in links)
    assert len(list(tmp_path.glob("*.arrow"))) == 4


def test_the_grammars_cache_follows_its_words_and_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(grammar=GrammarConfig(test_size=3), cache_dir=str(tmp_path / "cache"))
    (tmp_path / "grammar").mkdir()
    monkeypatch.setattr("nmt.data.grammar.corpus.__file__", str(tmp_path / "grammar" / "corpus.py"))
    for files, name in ((1, "lexicon.toml"), (2, "lexicon.toml"), (3, "verbs.py")):
        (tmp_path / "grammar" / name).write_text(str(files))
        for _ in range(2):
            load_split(config, "test")
            assert len(list((tmp_path / "cache").glob("*.arrow"))) == files


class Counting(Corpus):
    """Numbers after some letters, with the two sides in opposite order."""

    def load(self, split: str) -> datasets.Dataset:
        first = {"train": 0, "validation": 200, "test": 220}[split]
        numbers = range(first, first + (200 if split == "train" else 20))
        rows = [[*"abcdefghij"[: 1 + n % 10], *str(n)] for n in numbers]
        links = [" ".join(f"{i}-{len(row) - 1 - i}" for i in range(len(row))) for row in rows]
        sides = {"source": [" ".join(row) for row in rows], "target": [" ".join(row[::-1]) for row in rows]}
        return datasets.Dataset.from_dict(sides | {"alignment": links})

    def has_split(self, split: str) -> bool:
        return split in ("train", "validation", "test")

    def has_gold(self, split: str) -> bool:
        return self.has_split(split)


def test_a_kind_is_a_class_and_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_options: list[str], call: Callable[..., Any]
) -> None:
    """One trained end to end: loaded, cleaned, encoded, guided by its gold, judged by it and scored."""
    monkeypatch.setitem(CORPORA, "counting", Counting)
    options = ("tokenizer.vocab_size=300", "trainer.metric=aer", "trainer.guided_alignment.weight=1")
    limits = ("trainer.max_steps=2", "trainer.num_samples=0")
    done = call("train", *tiny_options, *options, "data.kind=counting", *limits, "run_dir=run")
    assert done.returncode == 0, done.stderr
    assert "train: kept 200 of 200 pairs" in (tmp_path / "run/train.log").read_text(encoding="utf-8")
    assert (tmp_path / "run/evaluation/test/metrics.json").is_file()
    assert not (tmp_path / "run/evaluation/test_long").exists()


def test_a_kind_that_lacks_a_split_or_gold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_options: list[str], call: Callable[..., Any]
) -> None:
    monkeypatch.setitem(CORPORA, "counting", Counting)
    options = (*tiny_options, "data.kind=counting", "trainer.max_steps=2", "run_dir=run")
    config = DataConfig(kind="counting", train=SplitConfig(source="x"))
    assert "data.train.source is set, but data=counting does not use it: add data=text" in complaint(config)
    monkeypatch.setattr(Counting, "has_gold", lambda corpus, split: False)
    done = call("train", *options, "trainer.guided_alignment.weight=1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "gold alignments, which data=counting lacks: use data=text" in done.stderr
    monkeypatch.setattr(Counting, "has_split", lambda corpus, split: split == "train")
    done = call("train", *options)
    assert (done.returncode, done.stderr) == (2, "error: data=counting has no validation split\n")
    assert not (tmp_path / "run").exists()


def test_an_unknown_kind(call: Callable[..., Any], tmp_path: Path) -> None:
    done = call("train", "data.kind=grammr", "run_dir=run")
    choices = f"choose one of {', '.join(sorted(CORPORA))}; did you mean 'grammar'?"
    assert (done.returncode, done.stderr) == (2, f"error: unknown data.kind 'grammr': {choices}\n")
    assert not list(tmp_path.iterdir())
