"""Sizes that are not given: the table, and what a run makes of it."""

import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.automatic import AUTOMATIC, value_of
from nmt.config.check import check
from nmt.config.file import load_config
from nmt.config.schema import (
    BatchConfig,
    DataConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
)
from nmt.models.build import build_model, check_model
from nmt.models.decoder import DECODERS
from nmt.text.tokenizer import build_tokenizers
from nmt.training.defaults import TABLE, automatic_values, choose_automatic_values, count_characters, time_to_train
from nmt.training.distributed import SingleProcess
from nmt.training.prepare import prepare
from nmt.training.resuming import find_initial_checkpoint
from tests.composing import compose
from tests.runs import ROOT
from tests.template_pairs import write_template_corpus

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def corpus(pairs: int, source: str = "a", target: str = "b") -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": [source] * pairs, "target": [target] * pairs})


def automatic(**trainer: Any) -> TrainConfig:
    return TrainConfig(automatic=list(AUTOMATIC), trainer=TrainerConfig(**trainer))


@pytest.mark.parametrize(
    ("pairs", "minutes", "hidden", "batch", "dropout"),
    [
        (200, 1, 128, 250, 0.3),  # 100 readings
        (3_000, 1, 128, 250, 0.1),  # 6.7
        (3_000, 10, 256, 500, 0.3),
        (29_000, 5, 256, 500, 0.1),  # 3.4
        (29_000, 60, 512, 2_000, 0.3),  # 41
        (500_000, 30, 256, 500, 0.1),
        (500_000, 600, 1_024, 4_096, 0.2),  # 24
        (4_500_000, math.inf, 1_024, 4_096, 0.3),
    ],
)
def test_the_sizes_of_a_corpus(pairs: int, minutes: float, hidden: int, batch: int, dropout: float) -> None:
    values = automatic_values(TrainConfig(), pairs, minutes, num_characters=80)
    assert (values["model.hidden_size"], values["batch.size"], values["model.dropout"]) == (hidden, batch, dropout)


@pytest.mark.parametrize(
    ("given", "target", "expected"),
    [
        ({}, "我看见水，我喜欢猫！", "spaces"),
        ({}, "ทำงาน", "spaces"),
        ({}, "la maison …", "spaces"),
        ({}, "l’été, « il » a chanté !", "nmt_nfkc"),
        ({"kind": "whitespace"}, "水 ，", "nmt_nfkc"),
        ({"target_model": "F"}, "水，", "nmt_nfkc"),
    ],
)
def test_normalization_keeps_the_characters_of_the_target(given: dict[str, Any], target: str, expected: str) -> None:
    config = automatic(max_minutes=1)
    config.tokenizer = TokenizerConfig(**given)
    choose_automatic_values(config, corpus(50, target=target), on_gpu=False)
    assert config.tokenizer.normalization == expected


def test_normalization_that_is_given_stays() -> None:
    config = automatic(max_minutes=1)
    config.automatic.remove("tokenizer.normalization")
    choose_automatic_values(config, corpus(50, target="水，"), on_gpu=False)
    assert config.tokenizer.normalization == "nmt_nfkc"


def test_the_guide_has_the_table() -> None:
    section = GUIDE.partition("### Sizes that are not given")[2].partition("###")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| \d", line)]
    assert [[float(cell) for cell in row] for row in rows] == [list(map(float, row)) for row in TABLE]
    columns = re.findall(r"\| `(\S+)`", section)
    values = automatic_values(TrainConfig(), TABLE[-1].pairs, math.inf, num_characters=1)
    assert tuple(values[name] for name in columns) == TABLE[-1][2:]


@given(
    pairs=st.integers(1, 10**7),
    minutes=st.one_of(st.none(), st.floats(1e-3, 1e5)),
    epochs=st.one_of(st.none(), st.integers(1, 1_000)),
    steps=st.one_of(st.none(), st.integers(1, 10**6)),
    num_characters=st.integers(1, 20_000),
    unit=st.sampled_from(["tokens", "sentences"]),
    on_gpu=st.booleans(),
)
def test_whatever_the_corpus_and_the_limits_the_values_are_allowed(
    pairs: int, minutes: Any, epochs: Any, steps: Any, num_characters: int, unit: str, on_gpu: bool
) -> None:
    config = automatic(max_minutes=minutes, max_epochs=epochs, max_steps=steps)
    config.batch.unit = unit
    time = time_to_train(config.trainer, pairs, on_gpu=on_gpu)
    values = automatic_values(config, pairs, time, num_characters=num_characters)
    assert set(values) == set(AUTOMATIC)
    for name, value in values.items():
        group, _, last = name.rpartition(".")
        if value is not None:
            setattr(value_of(config, group), last, value)
    check(config)
    check_model(config.model)
    assert values["schedule.warmup_steps"] <= (steps or math.inf) / 10
    assert values["tokenizer.vocab_size"] >= 2 * num_characters + 256


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_can_have_the_values(decoder: str) -> None:
    config = compose("train", "data=text", f"model={decoder}", "trainer.max_minutes=1")
    choose_automatic_values(config, corpus(20), on_gpu=False)
    assert config.model.tied_embeddings == "target"
    model = build_model(config.model, 350, 350, joint=True)
    assert model.output.weight is model.decoder.embedding.weight


@given(pairs=st.integers(1, 10**7), few=st.floats(0, 1e4), more=st.floats(0, 1e4))
def test_more_time_never_makes_a_smaller_model(pairs: int, few: float, more: float) -> None:
    less, greater = (
        automatic_values(TrainConfig(), pairs, minutes, num_characters=80) for minutes in sorted((few, more))
    )
    assert all(less[name] <= greater[name] for name in ("model.hidden_size", "tokenizer.vocab_size", "batch.size"))


def test_the_nearest_limit_is_the_time() -> None:
    assert time_to_train(TrainerConfig(), 100, on_gpu=False) == math.inf
    assert time_to_train(TrainerConfig(max_minutes=5), 100, on_gpu=False) == 5
    assert time_to_train(TrainerConfig(max_minutes=5), 100, on_gpu=True) == 100
    assert time_to_train(TrainerConfig(max_epochs=4), 10_000, on_gpu=False) == 2
    assert time_to_train(TrainerConfig(max_minutes=5, max_steps=1_500), 10**9, on_gpu=True) == 3


def test_only_keys_that_are_automatic_change(caplog: pytest.LogCaptureFixture) -> None:
    config = TrainConfig(automatic=["model.hidden_size"], trainer=TrainerConfig(max_minutes=1))
    with caplog.at_level(logging.INFO, logger="nmt"):
        choose_automatic_values(config, corpus(50), on_gpu=False)
    expected = TrainConfig(trainer=TrainerConfig(max_minutes=1))
    expected.model.hidden_size = 128
    assert config == expected
    assert caplog.messages[-1].endswith("for 50 pairs in 1 minutes on two cores (see the guide): model.hidden_size=128")


def test_nothing_changes_and_nothing_is_said_where_all_is_given(caplog: pytest.LogCaptureFixture) -> None:
    config = TrainConfig()
    with caplog.at_level(logging.INFO, logger="nmt"):
        choose_automatic_values(config, corpus(50), on_gpu=False)
    assert (config, caplog.messages) == (TrainConfig(), [])
    config = TrainConfig(automatic=["trainer.validate_every_minutes"], trainer=TrainerConfig(max_steps=9))
    with caplog.at_level(logging.INFO, logger="nmt"):
        choose_automatic_values(config, corpus(50), on_gpu=False)
    assert caplog.messages == []


def test_validations_that_are_asked_for_are_not_added_to() -> None:
    for trainer, expected in [
        (TrainerConfig(max_minutes=4), 0.5),
        (TrainerConfig(max_minutes=1 / 3), 0.0417),
        (TrainerConfig(max_minutes=4, validate_every_epochs=1), None),
        (TrainerConfig(max_minutes=4, validate_every_steps=9), None),
        (TrainerConfig(max_epochs=4), None),
    ]:
        values = automatic_values(TrainConfig(trainer=trainer), 100, 4, num_characters=9)
        assert values["trainer.validate_every_minutes"] == expected


def test_batches_of_sentences_and_text_that_is_segmented() -> None:
    config = TrainConfig(batch=BatchConfig(unit="sentences"), tokenizer=TokenizerConfig(kind="whitespace"))
    values = automatic_values(config, 29_000, 5, num_characters=80)
    assert (values["batch.size"], values["tokenizer.vocab_size"]) == (25, None)


def test_a_script_of_thousands_of_characters_fits_the_vocabulary() -> None:
    """With the table's 1,000 pieces, sentencepiece refuses 2,500 characters."""
    lines = ["".join(map(chr, range(0x4E00 + start, 0x4E00 + start + 50))) for start in range(0, 2_500, 50)]
    text = datasets.Dataset.from_dict({"source": [f"Привет {row}" for row in range(50)], "target": lines})
    config = automatic(max_minutes=1)
    assert count_characters(text) == 2_500 + len(set("Привет 0123456789"))
    choose_automatic_values(config, text, on_gpu=False)
    tokenizers = build_tokenizers(text["source"], text["target"], config.tokenizer)
    assert tokenizers.target.decode(tokenizers.target.encode(lines[:1])) == lines[:1]


@pytest.fixture(scope="module")
def text_options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("toy")
    options = write_template_corpus(folder, train=200, validation=10, test=10)
    return [*options, f"data.cache_dir={folder}/cache", "trainer.num_samples=0", "threads=1"]


def test_a_newcomers_command(text_options: list[str], call: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing but files, languages and an end; then the same again, to go on, and on from its weights."""
    done = call("train", "run_dir=run", *text_options, "model.dropout=0", "trainer.max_steps=20")
    assert done.returncode == 0, done.stderr
    config = load_config(tmp_path / "run/config.yaml")
    chosen = {name: value_of(config, name) for name in AUTOMATIC}
    assert config.automatic == []
    assert (chosen["model.hidden_size"], chosen["batch.size"]) == (128, 250)
    assert (chosen["model.dropout"], chosen["schedule.warmup_steps"]) == (0.0, 2)
    assert "model.hidden_size=128" in done.stderr
    assert "model.dropout=" not in done.stderr
    assert load_config(tmp_path / "run/checkpoints/best/config.yaml") == config
    assert "note: only 20 updates: train longer (trainer.max_steps)" in done.stderr
    again = call("train", "run_dir=run", *text_options, "trainer.max_minutes=0.001", "trainer.evaluate=false")
    assert again.returncode == 0, again.stderr
    assert "continuing from run/checkpoints/last at update 20" in again.stderr
    resumed = load_config(tmp_path / "run/config.yaml")
    assert {name: value_of(resumed, name) for name in AUTOMATIC} == chosen
    other = call("train", "run_dir=run", *text_options, "model.hidden_size=64", "trainer.max_steps=30")
    assert "cannot continue from run/checkpoints/last with model.hidden_size=64" in other.stderr
    tuned = automatic(initialize_from=str(tmp_path / "run"))
    assert find_initial_checkpoint(tuned) == tmp_path / "run/checkpoints/best"
    assert (tuned.model.hidden_size, tuned.tokenizer.vocab_size) == (128, 1_000)
    assert {"optimizer.learning_rate", "batch.size", "model.dropout"} < set(tuned.automatic)


def test_all_ranks_have_the_values_of_rank_zero(tmp_path: Path) -> None:
    """Also those that rank 0 alone has from a checkpoint."""
    folder = tmp_path / "toy"
    folder.mkdir()
    write_template_corpus(folder, train=20, validation=5, test=5)
    splits: dict[str, Any] = {
        split: SplitConfig(source=f"{folder}/{split}.en", target=f"{folder}/{split}.zh")
        for split in ("train", "validation", "test")
    }
    configs = [automatic(max_steps=50) for _ in range(2)]
    configs[0].automatic.remove("model.hidden_size")
    configs[0].model.hidden_size = 64
    sent: list[Any] = []

    class First(SingleProcess):  # type: ignore[misc]
        def on_rank_zero(self, function: Any, *arguments: Any) -> Any:  # type: ignore[override]
            sent.append(function(*arguments))
            return sent[-1]

    class Second(SingleProcess):  # type: ignore[misc]
        def on_rank_zero(self, function: Any, *arguments: Any) -> Any:  # type: ignore[override]
            return sent.pop(0)

    for config, processes in zip(configs, (First(), Second()), strict=True):
        config.data = DataConfig(kind="text", target_language="zh", cache_dir=str(tmp_path / "cache"), **splits)
        prepare(config, None, processes)
    assert configs[0] == configs[1]
    assert (configs[1].model.hidden_size, configs[1].model.embedding_size) == (64, 64)
