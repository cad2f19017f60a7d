"""The study of alignment: its table, its sentence, the limits of its moments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.schema import DataConfig, GrammarConfig, TrainConfig, TrainerConfig
from nmt.errors import UserError
from tests.scripts.running import PNG, SENTENCES, study, table


def test_alignment(
    tmp_path: Path, tiny_options: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    line = ("study_alignment", *tiny_options, *SENTENCES, "--output", "out")
    study(*line, "--steps", "20", cwd=tmp_path)
    rows = table(tmp_path / "out")
    figures = ("bleu", "aer", "attention_entropy", "adjective_weight", "noun_weight")
    assert tuple(rows[0]) == ("updates", "minutes", *figures)
    assert [int(row["updates"]) for row in rows] == [1, 2, 4, 9, 20]
    assert (tmp_path / "out/figure.png").read_bytes().startswith(PNG)
    assert all(0.0 < float(row["adjective_weight"]) < 1.0 for row in rows)
    minutes = [float(row["minutes"]) for row in rows]
    assert minutes == sorted(minutes)
    (tmp_path / "out/moment5.json").unlink()  # half-done
    for other, told in ((("--seed", "2"), "seed=1, not 2"), (("--steps", "40"), "trainer.max_steps=20, not 40")):
        assert call(*line, "--steps", "20", *other) == 2
        assert f"error: out was trained with {told}" in capfd.readouterr().err
    assert not (tmp_path / "out/moment5.json").exists()


def test_the_sentence_has_an_adjective_behind_its_noun(script: Callable[[str], Any], tmp_path: Path) -> None:
    module = script("study_alignment")
    data = DataConfig(cache_dir=str(tmp_path), grammar=GrammarConfig(validation_size=200, max_length=12))
    pair = module.find_crossing(data)
    (adjective, after), (noun, before) = pair.crossing_links
    source, target = pair.source.split(), pair.target.split()
    assert (noun, after) == (adjective + 1, before + 1)
    assert source[adjective] not in {"small", "big", "old", "beautiful", "new", "good", "young", "bad"}
    assert 5 <= len(source) <= 10
    assert max(after, before) < len(target)
    data.grammar.max_length = 3
    data.grammar.validation_size = 5
    with pytest.raises(UserError, match=r"data\.grammar\.validation_size=500"):
        module.find_crossing(data)


@pytest.mark.parametrize(("steps", "minutes"), [(None, 10.0), (1_000, None), (5, None), (7, 1.0)])
def test_moments_divide_the_training(script: Callable[[str], Any], steps: int | None, minutes: float | None) -> None:
    config = TrainConfig(trainer=TrainerConfig(max_steps=steps, max_minutes=minutes))
    trainers = [part.trainer for part in script("study_alignment").configs_of_moments(config)]
    for limits, whole in (
        ([trainer.max_steps for trainer in trainers], steps),
        ([trainer.max_minutes for trainer in trainers], minutes),
    ):
        if whole is None:
            assert limits == [None] * 5
        else:
            assert limits == sorted(set(limits))
            assert limits[-1] == whole
