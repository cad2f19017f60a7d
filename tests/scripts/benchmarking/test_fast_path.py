"""Both values of model.fast are measured in turn, on the same batches and with the same weights."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarking.fast_path import in_turn, measure_fast_path
from benchmarking.translation import timed_translation
from benchmarking.workload import random_sentences
from nmt.config.schema import BatchConfig, ModelConfig, SearchConfig, TrainConfig, TrainerConfig
from nmt.data.batch import Batch
from nmt.training.trainer import Trainer
from nmt.translator import Translator


def test_each_round_begins_with_the_other_after_one_to_warm_up() -> None:
    asked: list[str] = []

    def measure(fast: str) -> float:
        asked.append(fast)
        return float(len(asked))

    assert in_turn(measure, 2) == [{"auto": 3.0, "off": 4.0}, {"off": 5.0, "auto": 6.0}]
    assert asked == ["off", "auto", "auto", "off", "off", "auto"]


def test_both_see_the_same_batches_and_translate_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[list[int]]] = {}
    weights: dict[int, torch.Tensor] = {}
    update = Trainer.update

    def watched_update(trainer: Trainer, batches: list[Batch]) -> None:
        seen.setdefault(id(trainer), []).extend(batch.rows.tolist() for batch in batches)
        update(trainer, batches)

    def watched_translation(translator: Translator, sentences: list[str]) -> object:
        weights[id(translator)] = torch.cat([each.flatten() for each in translator.model.parameters()])
        return timed_translation(translator, sentences)

    monkeypatch.setattr(Trainer, "update", watched_update)
    monkeypatch.setattr("benchmarking.fast_path.timed_translation", watched_translation)
    config = TrainConfig(
        run_dir=str(tmp_path),
        batch=BatchConfig(unit="sentences", size=3, max_length=5),
        model=ModelConfig(embedding_size=4, hidden_size=6),
        search=SearchConfig(beam_size=2),
        trainer=TrainerConfig(device="cpu"),
    )
    configs = {fast: replace(config, model=replace(config.model, fast=fast)) for fast in ("auto", "off")}
    prepared = random_sentences(20, sentences=12, length=5)
    rows = list(measure_fast_path(configs, prepared, ["piece4 piece5"], updates=2, rounds=3))
    assert [set(row) for row in rows] == [{"training_auto", "training_off", "search_auto", "search_off"}] * 3
    assert all(rate > 0 for row in rows for rate in row.values())
    auto, off = seen.values()
    assert len(auto) == 2 * (1 + 3)
    assert auto == off
    one, other = weights.values()
    assert torch.equal(one, other)
