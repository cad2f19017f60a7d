"""What the studies share: their options, runs of `nmt.train` that go on where they stopped, tables.

A run is configured and trained as `python -m nmt.train` does it, and leaves the same folder behind.
"""

import argparse
import csv
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nmt.config.file import load_config
from nmt.config.schema import TrainConfig, changes
from nmt.errors import UserError
from studies.options import configured, positive, positive_number, seed

QUICK_MINUTES = 3.0
START = 0.3  # minutes before the first update: PyTorch's import, the corpus
OVERHEAD = 0.2  # minutes that a run takes beside training: subwords, the test split
SMALL = (  # a model that a core teaches in half a minute
    *("model.embedding_size=48", "model.hidden_size=96", "model.dropout=0.0", "batch.size=350"),
    *("optimizer.learning_rate=8e-3", "schedule.warmup_steps=50", "data.grammar.validation_size=200"),
)
WIDTH = 170  # columns of a table that no terminal shows
TABLE, PICTURE, CONFIG = "table.csv", "figure.png", "config.yaml"

# Where a run is, and how fast: no reason for other figures.
PLACE_AND_SPEED = {"run_dir", "resume", "threads", "data.cache_dir", "data.num_workers"}
SHARES = ("trainer.max_minutes", "trainer.max_epochs")  # of the time, which a table shows

Row = Mapping[str, Any]


def build_parser(description: str, *, minutes: float) -> argparse.ArgumentParser:
    """Return a parser with the options of every study that trains; `minutes` is how long a full one may take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training configuration, for all runs")
    parser.add_argument("--quick", action="store_true", help=f"a small version, in about {QUICK_MINUTES:g} minutes")
    parser.add_argument(
        "--minutes",
        type=positive_number,
        metavar="M",
        help=f"for all runs together on two cores; each gets an equal share (default: {minutes:g}, "
        f"with --quick {QUICK_MINUTES:g})",
    )
    parser.add_argument("--steps", type=positive, metavar="N", help="updates of each run, instead of a share of time")
    parser.add_argument("--seed", type=seed, default=1, help="of all runs (default: 1)")
    add_output(parser)
    parser.set_defaults(full_minutes=minutes)
    return parser


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of every study, whether it trains or not."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="default: outputs/study_NAME, with --quick outputs/study_NAME_quick"
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="CPU threads of a run (default: torch's own choice)"
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the option of studies whose runs are many."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument(
        "--workers",
        type=positive,
        default=cores,
        metavar="N",
        help="runs trained side by side, each on one thread unless --threads is given (default: one a core)",
    )


def output_folder(options: argparse.Namespace, name: str) -> Path:
    """Return the folder that a study writes to; a quick one has its own, or its runs would pass for full ones."""
    given: Path | None = options.output
    return given or Path(f"outputs/study_{name}{'_quick' if options.quick else ''}")


@dataclass(frozen=True)
class Study:
    """A study that trains: where it writes, and what all of its runs have in common."""

    output: Path
    quick: bool
    minutes: float
    steps: int | None
    common: Sequence[str]
    overrides: Sequence[str]
    workers: int = 1

    @classmethod
    def of(cls, options: argparse.Namespace, name: str) -> "Study":
        """Read the options of `build_parser`."""
        # Greedy, as the grammar leaves a beam little to find; no pictures, as the study draws its own.
        common = ["search.beam_size=1", "trainer.evaluate=false", "trainer.num_samples=0", f"seed={options.seed}"]
        workers: int = getattr(options, "workers", 1)
        threads = options.threads or (None if workers == 1 else 1)
        common += [] if threads is None else [f"threads={threads}"]
        return cls(
            output=output_folder(options, name),
            quick=options.quick,
            minutes=options.minutes or (QUICK_MINUTES if options.quick else options.full_minutes),
            steps=options.steps,
            common=common,
            overrides=options.overrides,
            workers=workers,
        )

    def configure(self, *own: str) -> TrainConfig:
        """Compose the configuration of a run; `own` overrides give way to those of the command line.

        Raises:
            UserError: an override does not fit.
        """
        return configured([*self.common, *own, *self.overrides], None)

    def limits(self, runs: int, *, overhead: float = OVERHEAD) -> list[str]:
        """Return the overrides that end each of so many runs, which take `overhead` minutes beside training."""
        if self.steps is not None:
            return [f"trainer.max_steps={self.steps}", "trainer.max_minutes=null"]
        return [f"trainer.max_minutes={self.training_minutes(runs, overhead=overhead):.4g}"]

    def training_minutes(self, runs: int, *, overhead: float = OVERHEAD) -> float:
        """Return the minutes of training in an equal share of the study's time, and of the workers'."""
        share = max(self.minutes - START, self.minutes / 2) / math.ceil(runs / self.workers)
        return max(share - overhead, share / 2)

    def run_dir(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.output / "runs" / name


def check_settings(configs: Iterable[TrainConfig], *, shares_may_differ: bool = False) -> None:
    """Refuse to go on with runs, or to show their figures, that have other settings than the configurations.

    Args:
        configs: of the runs that the study shows, trained already or not; compared with `config.yaml` in their folders.
        shares_may_differ: whether minutes and epochs may differ, as where a table is made in pieces; it is said.

    Raises:
        UserError: naming a run and the first of its settings that differs.
    """
    shares = set()
    for config in configs:
        file = Path(config.run_dir) / CONFIG
        found = changes(load_config(file), config) if file.is_file() else {}
        for name in (each for each in found if each not in PLACE_AND_SPEED):
            before, now = found[name]
            if not (shares_may_differ and name in SHARES):
                raise UserError(
                    f"{config.run_dir} was trained with {name}={before}, not {now}: give another --output for other "
                    "settings, or the same settings again, or remove the folder"
                )
            shares.add(f"{name}={before}")
    if shares:
        tell(f"note: runs here had another share of time ({', '.join(sorted(shares))}): compare their minutes")


def train_run(config: TrainConfig) -> Path:
    """Train a run, or what is left of it; return its folder.

    Raises:
        UserError: as `nmt.training.run.train`.
    """
    from nmt.training.run import train

    Path(config.run_dir).mkdir(parents=True, exist_ok=True)
    return train(config)


def train_and_evaluate(config: TrainConfig, *, splits: Sequence[str] = ("test",)) -> Path:
    """Train a run, or what is left of it, and score its best checkpoint on the splits; return its folder."""
    from nmt.data.corpus import load_split
    from nmt.evaluation.evaluator import evaluate_split
    from nmt.evaluation.metrics import bleu_tokenizer
    from nmt.translator import Translator

    run = train_run(config)
    translator = Translator.load(run, device=config.trainer.device)
    for split in splits:
        corpus, folder = load_split(config.data, split), run / "evaluation" / split
        scoring: dict[str, Any] = {"bleu_tokenize": bleu_tokenizer(config), "lowercase": config.lowercase}
        evaluate_split(translator, corpus, folder, split=split, num_heatmaps=0, **scoring)
    return run


def remembered(file: Path, make: Callable[[], Any]) -> Any:
    """Return what the file holds, or make it and write it there: what was measured once is not measured again.

    That it was measured with the same settings is for `check_settings` to see to, before.
    """
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    made = make()
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    return made


def scores_of(run: Path, split: str = "test") -> dict[str, Any]:
    """Return the metrics.json of a split."""
    scores: dict[str, Any] = json.loads((run / "evaluation" / split / "metrics.json").read_text(encoding="utf-8"))
    return scores


def records_of(run: Path, event: str) -> list[dict[str, Any]]:
    """Return the records of an event, `train` or `validation`, of a run's metrics.jsonl."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return [record for record in map(json.loads, lines) if record["event"] == event]


def effort_of(run: Path) -> dict[str, Any]:
    """Return what a run cost: median target tokens a second, parameters, updates, and minutes of training."""
    from nmt.models.checkpoint import load_checkpoint, training_state
    from nmt.models.summary import count_parameters

    speeds = [record["tokens_per_second"] for record in records_of(run, "train")]
    with training_state(run / "checkpoints" / "last") as state:
        progress = state["progress"]
    return {
        "tokens_per_second": statistics.median(speeds) if speeds else None,
        "parameters": count_parameters(load_checkpoint(run).model),
        "updates": progress["step"],
        "minutes": progress["seconds"] / 60,
    }


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write rows of the same columns as CSV; what is not known is left empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()})


def print_table(rows: Sequence[Row], title: str) -> None:
    """Print rows of the same columns."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*map(shown, row.values()))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def shown(value: Any) -> str:
    """Return a cell of a table."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def tell(text: str) -> None:
    """Say how far the study is, on standard error."""
    print(text, file=sys.stderr, flush=True)
