"""Studies that train: their options, the configuration of their runs, and the check that all have the same settings."""

import argparse
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config.file import load_config
from nmt.config.schema import TrainConfig, changes
from nmt.errors import UserError, write_errors
from studies.options import configured, positive, positive_number, seed

QUICK_MINUTES = 3.0
START = 0.3  # minutes before the first update: importing PyTorch, making the corpus
OVERHEAD = 0.2  # minutes of a run besides training: learning subwords, evaluating the test split
SMALL = (  # a model that one core trains in half a minute
    *("model.embedding_size=48", "model.hidden_size=96", "model.dropout=0.0", "batch.size=350"),
    *("optimizer.learning_rate=8e-3", "schedule.warmup_steps=50", "data.grammar.validation_size=200"),
)
CONFIG = "config.yaml"

# Keys that change where a run is and how fast, but not its results.
PLACE_AND_SPEED = {"run_dir", "resume", "threads", "data.cache_dir", "data.num_workers"}
OPTION_OF_KEY = {"seed": "--seed", "run_dir": "--output"}  # keys that may not be overrides
TIME_LIMITS = ("trainer.max_minutes", "trainer.max_epochs")  # their effect is a column of the table: minutes


def build_parser(description: str, *, minutes: float) -> argparse.ArgumentParser:
    """Return a parser with the options of every study that trains; `minutes` is the default time of a full one."""
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
    """Add the option of studies that train runs in parallel."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument(
        "--workers",
        type=positive,
        default=cores,
        metavar="N",
        help="runs trained in parallel, each on one thread unless --threads is given (default: one a core)",
    )


def output_folder(options: argparse.Namespace, name: str) -> Path:
    """Return the folder of a study's results; --quick has its own, so that its runs are not taken for full ones."""
    folder: Path | None = options.output
    return folder or Path(f"outputs/study_{name}{'_quick' if options.quick else ''}")


def make_output_folder(options: argparse.Namespace, name: str) -> Path:
    """Make the output folder, before the work, and return it; raise UserError if it cannot be made."""
    folder = output_folder(options, name)
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Study:
    """A study that trains: its folder, and the options common to all of its runs."""

    output: Path
    minutes: float
    steps: int | None
    common: Sequence[str]
    overrides: Sequence[str]
    workers: int = 1

    @classmethod
    def from_options(
        cls, options: argparse.Namespace, name: str, option_of_key: Mapping[str, str] | None = None
    ) -> "Study":
        """Read the options of `build_parser`; `option_of_key` maps further keys to the options that set them.

        Raises:
            UserError: an override sets such a key, so that the table would mislabel the runs.
        """
        option_of_key = {**OPTION_OF_KEY, **(option_of_key or {})}
        for key in (override.partition("=")[0].lstrip("+") for override in options.overrides):
            if key in option_of_key:
                raise UserError(f"{key} is chosen by {option_of_key[key]} here: give that instead")
        # Greedy, as a beam improves little on the grammar; no samples, as each study draws its own figures.
        common = ["search.beam_size=1", "trainer.evaluate=false", "trainer.num_samples=0", f"seed={options.seed}"]
        workers: int = getattr(options, "workers", 1)
        threads = options.threads or (None if workers == 1 else 1)
        common += [] if threads is None else [f"threads={threads}"]
        return cls(
            output=output_folder(options, name),
            minutes=options.minutes or (QUICK_MINUTES if options.quick else options.full_minutes),
            steps=options.steps,
            common=common,
            overrides=options.overrides,
            workers=workers,
        )

    def configure(self, *defaults: str) -> TrainConfig:
        """Compose the configuration of a run from `defaults` and the overrides of the command line, which take
        precedence; raise UserError if an override does not fit.
        """
        return configured([*self.common, *defaults, *self.overrides])

    def limits(self, runs: int, *, overhead: float = OVERHEAD) -> list[str]:
        """Return the overrides that end each of `runs` runs, which take `overhead` minutes besides training."""
        if self.steps is not None:
            return [f"trainer.max_steps={self.steps}", "trainer.max_minutes=null"]
        return [f"trainer.max_minutes={self.training_minutes(runs, overhead=overhead):.4g}"]

    def training_minutes(self, runs: int, *, overhead: float = OVERHEAD) -> float:
        """Return the minutes of training of each run when all share the study's time and workers equally."""
        minutes = max(self.minutes - START, self.minutes / 2) / math.ceil(runs / self.workers)
        return max(minutes - overhead, minutes / 2)

    def run_dir(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.output / "runs" / name


def check_settings(configs: Iterable[TrainConfig], *, limits_may_differ: bool = False) -> None:
    """Compare configurations with `config.yaml` in their run folders, if these runs have been trained already.

    Args:
        configs: of all runs that the study shows.
        limits_may_differ: whether `TIME_LIMITS` may differ, as in a table made in several sessions; a note says so.

    Raises:
        UserError: naming a run and the first of its settings that differs.
    """
    differing_limits = set()
    for config in configs:
        file = Path(config.run_dir) / CONFIG
        differing = changes(load_config(file), config) if file.is_file() else {}
        for name in (key for key in differing if key not in PLACE_AND_SPEED):
            before, now = differing[name]
            if not (limits_may_differ and name in TIME_LIMITS):
                raise UserError(
                    f"{config.run_dir} was trained with {name}={before}, not {now}: give another --output for other "
                    "settings, or the same settings again, or remove the folder"
                )
            differing_limits.add(f"{name}={before}")
    if differing_limits:
        limits = ", ".join(sorted(differing_limits))
        log(f"note: runs here had another share of time ({limits}): compare their minutes")


def log(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)
