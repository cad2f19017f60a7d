"""Tasks of one of several processes in test_distributed.py; the arguments: their names, joined by commas, a folder."""

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from nmt.attention.normalizers import SampledAttention
from nmt.config.schema import (
    AttentionConfig,
    BatchConfig,
    DataConfig,
    GuidedAlignmentConfig,
    MinimumRiskConfig,
    ModelConfig,
    ReinforceConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
)
from nmt.data import tables
from nmt.data.batch import Batch, TrainLoader, collate
from nmt.data.tables import EncodedCorpus, Ragged
from nmt.errors import UserError
from nmt.models.build import build_model
from nmt.models.decoder import Decoded
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.text.vocabulary import Vocabulary
from nmt.training import prepare
from nmt.training.distributed import ProcessGroup, no_sync, process_group, seed_rank
from nmt.training.minimum_risk import MinimumRisk
from nmt.training.optimizer import Schedule
from nmt.training.reinforce import Reinforce
from nmt.training.reporting import NullReporter
from nmt.training.torchrun_env import RankEnvironment
from nmt.training.trainer import Trainer
from nmt.training.validation import Validation

VOCAB = 12
LETTERS = Vocabulary("\n".join("abcdefgh").encode())
UPDATES = 3
RISK = MinimumRiskConfig(weight=0.5, candidates=3)
SIDES = Ragged.of([np.random.default_rng(row).integers(4, VOCAB, 2 + row % 7).tolist() for row in range(60)])
DRAWS = [
    (torch.tensor([[-1.0, -2.0], [-0.5, -3.0]]), torch.tensor([1.0, 2.0, 4.0]), [[True, True], [True, False]]),
    (torch.tensor([[-0.1, -0.7], [-2.5, -1.5]]), torch.tensor([8.0, 9.0]), [[True, False], [True, False]]),
]


def loader(rank: int, size: int) -> TrainLoader:
    lines = ["some words", "other words"]
    empty = datasets.Dataset.from_dict({"source": [""] * len(SIDES), "target": [""] * len(SIDES)})
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(vocab_size=271))  # not used: the toy has no subwords
    config = BatchConfig(unit="sentences", size=7)
    return TrainLoader(EncodedCorpus(empty, SIDES, SIDES), tokenizers, config, seed=5, rank=rank, world_size=size)


def batches_of_all(size: int, accumulate: int) -> Iterator[list[list[Batch]]]:
    """Yield, for each update and each of its batches, the batches of all ranks."""
    endless = (itertools.chain.from_iterable(itertools.repeat(loader(rank, size))) for rank in range(size))
    steps = zip(*endless, strict=True)
    while step := list(itertools.islice(steps, accumulate)):
        yield [list(batches) for batches in step]


def taught(*batches: Batch) -> Batch:
    """Join batches; the attention of the even sentences is taught: look where you copy from."""
    rows = np.concatenate([batch.rows for batch in batches])
    sides = [SIDES[row] for row in rows.tolist()]
    alignment = [np.eye(len(side), dtype=np.float32) * (row % 2 == 0) for row, side in zip(rows, sides, strict=True)]
    return collate(sides, sides, rows, alignment)


def trainer(
    processes: ProcessGroup,
    *,
    dropout: float = 0.0,
    locked: bool = False,
    attention: AttentionConfig | None = None,
    **settings: Any,
) -> Trainer:
    """A toy whose every setting that is divided by counts, or that keeps a state over updates, is on."""
    torch.manual_seed(processes.rank)  # the weights become those of rank 0
    shape = ModelConfig(
        embedding_size=8,
        hidden_size=8,
        dropout=dropout,
        locked_dropout=locked,
        word_dropout=dropout,
        readout="linear",
        attention=attention or AttentionConfig(),
    )
    model = build_model(shape, VOCAB, VOCAB, joint=True).double()
    seed_rank(1, processes)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    guided = GuidedAlignmentConfig(weight=0.5, decay=0.5)
    common = {"device": "cpu", "ema_decay": 0.9, "accumulate": 2, "guided_alignment": guided, "log_every": 1}
    config = TrainConfig(trainer=TrainerConfig(**{**common, **settings}), bleu_tokenize="none")
    return Trainer(
        model,
        loader(processes.rank, processes.world_size),
        optimizer,
        Schedule(optimizer, ScheduleConfig(kind="cosine", warmup_steps=0), 0.5),
        config.trainer,
        0.0,
        device=torch.device("cpu"),
        validate=lambda model: processes.on_rank_zero(validate, model),
        save=lambda *given, **options: processes.on_rank_zero(save, *given, **options),
        reporter=NullReporter(),
        risk=MinimumRisk(config, Tokenizers(LETTERS, LETTERS)) if config.trainer.minimum_risk.weight else None,
        processes=processes,
    )


def validate(model: Seq2Seq) -> Validation:
    return Validation(
        {"loss": 0.0, "bleu": float(sum(parameter.detach().sum() for parameter in model.parameters()))}, []
    )


def save(name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None:
    if training_state is not None:
        torch.save({"model": model.state_dict(), **training_state}, Path(sys.argv[2]) / f"{name}-{step}.pt")


def found(trained: Trainer) -> dict[str, Any]:
    return {
        "step": trained.progress.step,
        "epochs": trained.progress.epochs,
        "best": trained.progress.best,
        "weights": trained.model.state_dict(),
        "average": trained.averaged().state_dict(),
    }


class Partial(torch.nn.Module):
    """Uses its first parameter on rank 0 alone, its second nowhere, and its third everywhere."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.first, self.second, self.third = (torch.nn.Parameter(torch.full((2,), float(rank))) for _ in range(3))

    def forward(self) -> torch.Tensor:
        loss = self.third @ torch.tensor([3.0, 4.0])
        return loss + self.first @ torch.tensor([1.0, 2.0]) if self.rank == 0 else loss


def gradients(processes: ProcessGroup) -> tuple[list[Any], list[Any]]:
    """Parameters as `data_parallel` makes them, and gradients after a local backward pass and a synchronized one."""
    partial = Partial(processes.rank)
    parallel = processes.data_parallel(partial)
    weights = [parameter.detach().clone() for parameter in partial.parameters()]
    with no_sync(parallel):
        parallel().backward()
    found = [None if each.grad is None else each.grad.tolist() for each in partial.parameters()]
    parallel().backward()
    return weights, [found, [None if each.grad is None else each.grad.tolist() for each in partial.parameters()]]


def primitives(processes: ProcessGroup) -> dict[str, Any]:
    """Everything that a process group offers."""
    rank = processes.rank
    tensors = [torch.full((2, 3), rank + 1.0), torch.arange(5) * (rank + 1), torch.tensor(rank + 0.5)]
    tensors = [processes.all_reduce_(tensor) for tensor in tensors]
    weights, (local, averaged) = gradients(processes)
    total = processes.sum_over_ranks(rank + 1.25)
    clock = processes.clock()
    time.sleep(0.01)
    seed_rank(1, processes)
    return {
        "sum": total,
        "clocks": (clock, processes.clock()),
        "tensors": tensors,
        "weights": weights,
        "local gradients": local,
        "averaged gradients": averaged,
        "gathered": processes.all_gather({"rank": rank}),
        "on_rank_zero": processes.on_rank_zero(lambda: f"rank {rank}"),
        "on_all_ranks": processes.on_all_ranks(lambda: rank),
        "rank_zero_first": rank_zero_first(processes),
        "spread": list(processes.distributed_map(lambda number: (rank, number**2), range(5))),
        "error in a share": caught(lambda: list(processes.distributed_map(divide, [2, 1, 4, 0]))),
        "error of rank 0": caught(processes.on_rank_zero, fail, rank, on=0),
        "error of rank 1": caught(processes.on_all_ranks, fail, rank, on=1),
        "defect of rank 0": caught(processes.on_rank_zero, divide, 0),
        "random": torch.rand(3),
    }


def rank_zero_first(processes: ProcessGroup) -> list[int]:
    """The numbers in a file that each rank adds its own to, as each finds them; rank 0 takes longer."""
    path = Path(sys.argv[2]) / "numbers"

    def add() -> list[int]:
        time.sleep(0.1 * (processes.rank == 0))
        with path.open("a") as file:
            file.write(f"{processes.rank}\n")
        return list(map(int, path.read_text().split()))

    return processes.rank_zero_first(add)


def encoded(processes: ProcessGroup) -> dict[str, Any]:
    """A corpus that is encoded together, twice; its text, its ids, and how much of it this rank has encoded."""
    corpus = long_corpus()
    lines = [*corpus["source"][:99], *corpus["target"][:99]]
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(vocab_size=300))
    config = DataConfig(cache_dir=str(Path(sys.argv[2]) / "cache"), num_workers=1)
    done = []
    encode_batch = tables._encode_batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tables, "_encode_batch", lambda sides, *given: done.append(len(sides[0])) or encode_batch(sides, *given)
        )
        patch.setattr(prepare, "PARALLEL_FROM", 100)
        whole = [prepare.encode_together(corpus, tokenizers, config, processes) for _ in range(2)]
    return {
        "encoded here": sum(done),
        "files": sorted(path.suffix for path in Path(config.cache_dir).iterdir()),
        "source": [ids.tolist() for ids in map(whole[0].source.__getitem__, range(len(corpus)))],
        "target": [ids.tolist() for ids in map(whole[1].target.__getitem__, range(len(corpus)))],
        "expected": [tokenizers.source.encode(corpus["source"]), tokenizers.target.encode(corpus["target"])],
    }


def long_corpus() -> datasets.Dataset:
    sides = {
        "source": [f"pair {row} of many" for row in range(2_501)],
        "target": [f"{row} is it" for row in range(2_501)],
    }
    return datasets.Dataset.from_dict(sides)


def fail(rank: int, on: int) -> None:
    if rank == on:
        raise UserError(f"process {rank} misses a file")


def divide(number: int) -> float:
    return 1 / number


def caught(function: Any, *arguments: Any, **options: Any) -> str:
    try:
        return str(function(*arguments, **options))
    except (UserError, ZeroDivisionError, SystemExit) as error:
        return f"{type(error).__name__}: {error}"


def updates(processes: ProcessGroup) -> dict[str, Any]:
    """Updates on batches of its own, then the term of sampled attention."""
    toy = trainer(processes, max_steps=10, minimum_risk=RISK)
    for batches in itertools.islice(toy.updates(), UPDATES):
        toy.update([taught(batch) for batch in batches])
    report = {name: value for name, value in toy.meter.read().items() if name != "tokens_per_second"}
    return {**found(toy), "report": report, **reinforced(processes, [DRAWS[processes.rank]])}


def consistent(processes: ProcessGroup) -> dict[str, Any]:
    """Updates on two passes of batches of its own."""
    toy = trainer(processes, max_steps=10, consistency=3.0)
    toy.model.register_forward_hook(unlike)
    for batches in itertools.islice(toy.updates(), UPDATES):
        toy.update([taught(batch) for batch in batches])
    report = {name: value for name, value in toy.meter.read().items() if name != "tokens_per_second"}
    return {**found(toy), "report": report}


def unlike(model: Seq2Seq, batch: Any, decoded: Decoded) -> Decoded:
    """Drop every other feature of the second pass: a mask that does not depend on how sentences are batched."""
    first, second = decoded.features.chunk(2)
    mask = 2.0 * (torch.arange(second.shape[2]) % 2)
    return decoded._replace(features=torch.cat((first, second * mask)))


def reinforced(processes: ProcessGroup, draws: list[Any]) -> dict[str, Any]:
    """The baseline after two batches, and the gradient with respect to the log-probabilities of the second."""
    term = Reinforce(ReinforceConfig(baseline_decay=0.5), processes)
    log_prob = torch.cat([each for each, _, _ in draws]).requires_grad_()
    losses, mask = torch.cat([each for _, each, _ in draws]), torch.cat([torch.tensor(each) for _, _, each in draws])
    for _ in range(2):
        loss = term(SampledAttention(log_prob, torch.zeros_like(log_prob)), losses, mask)
    return {"baseline": term.baseline, "by log_prob": torch.autograd.grad(loss, log_prob)[0]}


def sampled(processes: ProcessGroup) -> dict[str, Any]:
    """Updates whose forward pass sums rewards over ranks."""
    toy = trainer(processes, attention=AttentionConfig(normalizer="hard"), max_steps=10)
    for batches in itertools.islice(toy.updates(), UPDATES):
        toy.update(batches)
    return {**found(toy), "baseline": toy.reinforce.baseline}


def unused(processes: ProcessGroup) -> dict[str, Any]:
    """Updates of a model with a parameter, the projection of keys, that has no gradient."""
    toy = trainer(processes, attention=AttentionConfig(score="location", projection="learned"), max_steps=10)
    before = {name: weight.clone() for name, weight in toy.model.state_dict().items()}
    for batches in itertools.islice(toy.updates(), UPDATES):
        toy.update(batches)
    return {**found(toy), "before": before}


def skipped(processes: ProcessGroup) -> dict[str, Any]:
    """An update, and one whose gradient is NaN on rank 1 alone."""
    toy = trainer(processes, max_steps=10)
    updates = toy.updates()
    toy.update(next(updates))
    before = {name: weight.clone() for name, weight in toy.model.state_dict().items()}
    toy.model.output.weight.register_hook(lambda gradient: gradient * (float("nan") if processes.rank == 1 else 1.0))
    toy.update(next(updates))
    return {**found(toy), "before": before, "in a row": toy.meter.skipped_in_a_row}


def clocks(processes: ProcessGroup) -> dict[str, Any]:
    """Train for some seconds on ranks of different speed; the schedule follows the clock too."""
    toy = trainer(processes, max_minutes=0.01, validate_every_steps=3)
    toy.model.register_forward_hook(lambda *_: time.sleep(0.02 * processes.rank))
    toy.fit()
    return found(toy)


RANDOM: dict[str, Any] = {"dropout": 0.3, "locked": True, "consistency": 1.0}


def interrupted(processes: ProcessGroup) -> dict[str, Any]:
    """The second process alone gets a signal, twice."""
    toy = trainer(processes, **RANDOM, max_steps=8, validate_every_steps=100)

    def interrupt(*_: Any) -> None:
        if toy.progress.step == 3 and processes.rank == 1:
            signal.raise_signal(signal.SIGTERM)

    toy.model.register_forward_hook(interrupt)
    try:
        toy.fit()
    except KeyboardInterrupt:
        return found(toy)
    raise AssertionError("not interrupted")


def resumed(processes: ProcessGroup) -> dict[str, Any]:
    """Resume from the third update."""
    toy = trainer(processes, **RANDOM, max_steps=8, validate_every_steps=100)
    state = torch.load(Path(sys.argv[2]) / "last-3.pt", weights_only=True)
    toy.model.load_state_dict(state["model"])
    toy.load_state_dict(state)
    toy.fit()
    return found(toy)


def straight(processes: ProcessGroup) -> dict[str, Any]:
    """Train without an interrupt."""
    toy = trainer(processes, **RANDOM, max_steps=8, validate_every_steps=100)
    toy.fit()
    return found(toy)


def broken(processes: ProcessGroup) -> dict[str, Any]:
    """The second process has a defect in the middle of training."""
    toy = trainer(processes, max_steps=1000, validate_every_steps=100)
    toy.model.register_forward_hook(lambda *_: (divide(processes.rank == 0 or toy.progress.step < 3), None)[1])
    toy.fit()
    raise AssertionError("no defect")


TASKS = (
    primitives,
    encoded,
    updates,
    consistent,
    sampled,
    unused,
    skipped,
    clocks,
    interrupted,
    resumed,
    straight,
    broken,
)


def main() -> None:
    tasks = {task.__name__: task for task in TASKS}
    torch.set_num_threads(1)
    environment = RankEnvironment.of(os.environ)
    with process_group(environment, "cpu") as processes:
        results: dict[str, Any] = {}
        for name in sys.argv[1].split(","):
            results[name] = tasks[name](processes)
            torch.save(results, Path(sys.argv[2]) / f"rank-{environment.rank}.pt")
