"""The study of quality by sentence length: its table, figure and summary."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts.running import COST, PNG, STEPS, study, table


def test_length(
    tmp_path: Path, tiny_options: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    lengths = ("data.grammar.max_length=14", "data.grammar.long_length=12")
    done = study("study_length", *tiny_options, *lengths, *STEPS, cwd=tmp_path)
    output = tmp_path / "outputs/study_length"
    rows = table(output)
    assert tuple(rows[0]) == ("model", "min_words", "max_words", "sentences", "bleu", *COST)
    assert [(row["model"], row["min_words"], row["max_words"]) for row in rows] == [
        (model, *span) for model in ("fixed_context", "additive", "local_p") for span in (("1", "10"), ("11", "20"))
    ]
    # Both test splits, each sentence in one bucket.
    assert [sum(int(row["sentences"]) for row in rows[i : i + 2]) for i in (0, 2, 4)] == [15, 15, 15]
    assert (output / "figure.png").read_bytes().startswith(PNG)
    assert "kept" in done.stdout
    assert not (tmp_path / "outputs/latest").is_symlink()
    assert call("study_length", *tiny_options, *lengths, "--steps", "7", "--seed", "3") == 2
    assert "runs/fixed_context was trained with trainer.max_steps=6, not 7" in capfd.readouterr().err
