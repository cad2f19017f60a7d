"""Runs of seconds: the overrides that make them, what they leave behind, and how a test waits for that."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

# Long enough to say something, much too short to translate.
TINY = (
    "data.grammar.train_size=300",
    "data.grammar.validation_size=12",
    "data.grammar.test_size=12",
    "data.grammar.long_size=3",
    "data.grammar.max_length=8",
    "data.grammar.long_length=6",
    "tokenizer.kind=unigram",
    "tokenizer.vocab_size=600",
    "batch.size=400",
    "model.embedding_size=32",
    "model.hidden_size=64",
    "model.dropout=0",
    "optimizer.learning_rate=0.01",
    "schedule=constant",
    "schedule.warmup_steps=5",
    "search.beam_size=2",
    "search.max_length_offset=5",
    "trainer.metric=loss",
    "trainer.max_epochs=null",
    "trainer.max_minutes=null",
    "trainer.log_every=20",
    "trainer.num_samples=2",
    "threads=1",
)
# Nothing but training, every update recorded.
QUIET = ("trainer.evaluate=false", "trainer.num_samples=0", "trainer.log_every=1")

Completed = subprocess.CompletedProcess[str]


def wait_for(condition: Callable[[], bool], *, seconds: float) -> None:
    """Wait until a condition holds; fail after some seconds."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"nothing happened in {seconds} s"
        time.sleep(0.05)


def records(run: Path, event: str) -> list[dict[str, Any]]:
    """Return what a run recorded of an event."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


def training_state(run: Path) -> dict[str, Any]:
    """Return the state that a run would continue from."""
    import torch  # when it is needed: the environment that torch reads is set first

    state: dict[str, Any] = torch.load(run / "checkpoints" / "last" / "training_state.pt", weights_only=True)
    return state
