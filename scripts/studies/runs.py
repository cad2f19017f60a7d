"""Runs of `nmt.train`, which continue where they stopped, and the measurements in their folders."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nmt.config.schema import TrainConfig
from nmt.evaluation import records


def train_run(config: TrainConfig) -> Path:
    """Train a run, or its rest, as `python -m nmt.train` does; return its folder or raise UserError as `train` does."""
    from nmt.training.run import train

    Path(config.run_dir).mkdir(parents=True, exist_ok=True)
    return train(config)


def train_and_evaluate(config: TrainConfig, *, splits: Sequence[str] = ("test",)) -> Path:
    """Train a run, or what is left of it, and evaluate its best checkpoint on the splits; return its folder."""
    from nmt.data.corpus import load_split
    from nmt.evaluation.evaluator import evaluate_split
    from nmt.evaluation.metrics import bleu_tokenizer
    from nmt.translator import Translator

    run = train_run(config)
    translator = Translator.load(run, device=config.trainer.device)
    scoring: dict[str, Any] = {"bleu_tokenize": bleu_tokenizer(config), "lowercase": config.lowercase}
    for split in splits:
        corpus, folder = load_split(config.data, split), run / "evaluation" / split
        evaluate_split(translator, corpus, folder, split=split, num_heatmaps=0, **scoring)
    return run


def cached(file: Path, measure: Callable[[], Any]) -> Any:
    """Return the JSON value of a file; if there is none, measure it and write the file.

    `check_settings` makes sure beforehand that it was measured with the same settings.
    """
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    value = measure()
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    return value


def read_metrics(run: Path) -> dict[str, Any]:
    """Return the metrics.json of the test split."""
    metrics: dict[str, Any] = json.loads((run / "evaluation" / "test" / "metrics.json").read_text(encoding="utf-8"))
    return metrics


def read_records(run: Path, event: str) -> list[dict[str, Any]]:
    """Return the records of an event, `train` or `validation`, from a run's metrics.jsonl."""
    return [record for record in records.read_records(run / records.RECORDS) if record.get("event") == event]


def training_cost(run: Path) -> dict[str, Any]:
    """Return the cost of a run: median target tokens/s, number of parameters, updates, and minutes of training."""
    from nmt.models.checkpoint import load_checkpoint, training_state
    from nmt.models.summary import count_parameters

    speeds = [record["tokens_per_second"] for record in read_records(run, "train")]
    with training_state(run / "checkpoints" / "last") as state:
        progress = state["progress"]
    return {
        "tokens_per_second": statistics.median(speeds) if speeds else None,
        "parameters": count_parameters(load_checkpoint(run).model),
        "updates": progress["step"],
        "minutes": progress["seconds"] / 60,
    }
