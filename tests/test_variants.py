"""Every decoder that attends learns the grammar with every cell: a few minutes each, so only when asked for.

python -m pytest -m slow tests/test_variants.py
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What is asked of each, and the settings that make it a matter of minutes.
BLEU = 80.0
OPTIONS = {
    "data": "grammar",
    "trainer.max_epochs": "5",
    "trainer.max_minutes": "4.2",
    "trainer.evaluate": "false",
    "trainer.num_samples": "0",
}
# The first layer of gnmt queries for the others, so it has two, and needs twice the time.
OWN = {"gnmt": {"model.num_layers": "2", "trainer.max_minutes": "8.4"}}
VARIANTS = list(itertools.product(("bahdanau", "luong", "conditional", "gnmt"), ("gru", "lstm")))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cell"), VARIANTS)
def test_a_variant_learns_the_grammar(model: str, cell: str, command: Callable[..., Any], tmp_path: Path) -> None:
    options = [f"{key}={value}" for key, value in {**OPTIONS, **OWN.get(model, {})}.items()]
    done = command(
        "train", f"model={model}", f"model.cell={cell}", "run_dir=run", *options, cwd=tmp_path, timeout=1_800
    )
    assert done.returncode == 0, done.stderr
    records = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines())
    best = max(record["bleu"] for record in records if record["event"] == "validation")
    print(f"{model} {cell}: validation BLEU {best:.2f}")
    assert best >= BLEU
