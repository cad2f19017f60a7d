"""A training run, from configuration to evaluated checkpoint."""

import contextlib
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch

from nmt.config.schema import TrainConfig
from nmt.data.batch import TrainLoader
from nmt.data.tables import EncodedCorpus
from nmt.errors import writing
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.evaluation.records import ALIGNMENTS, RECORDS
from nmt.fast.accelerate import accelerate
from nmt.fast.heap import keep_freed_memory
from nmt.fast.objective import token_loss as chunked_loss
from nmt.models.build import build_model
from nmt.models.checkpoint import load_checkpoint, run_of, save_checkpoint, training_state
from nmt.models.manifest import MANIFEST
from nmt.models.seq2seq import Seq2Seq
from nmt.models.summary import summarize
from nmt.training.advice import advise
from nmt.training.console import Phase, unreported
from nmt.training.determinism import be_deterministic
from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup, process_group, seed_rank
from nmt.training.kernel_caches import keep_few_kernels
from nmt.training.lock import locked
from nmt.training.objective import token_loss
from nmt.training.optimizer import Schedule, build_optimizer
from nmt.training.prepare import Prepared, check_files, check_run, prepare
from nmt.training.reporting import NullReporter, Reporter
from nmt.training.resuming import initial_checkpoint, previous_checkpoint, scores_are_comparable
from nmt.training.torchrun_env import RankEnvironment
from nmt.training.trainer import Trainer
from nmt.training.validation import Validator
from nmt.translator import Translator

logger = logging.getLogger(__name__)

LATEST = Path("outputs/latest")
COMMON = 0.999  # quantile of the lengths of training sources; longer ones count as outliers


def train(config: TrainConfig, *, latest: bool = False) -> Path:
    """Train as configured, with the other processes that torchrun has started, and evaluate the best checkpoint.

    With `latest`, outputs/latest points to the run once training has started. Returns the run's folder.

    Raises:
        UserError: the configuration or the corpus cannot be trained on.
    """
    environment = RankEnvironment.of(os.environ)
    run_dir = run_of(Path(config.run_dir))
    config.run_dir = str(run_dir)
    with (
        locked(run_dir) if environment.is_rank_zero else contextlib.nullcontext(),
        Reporter(run_dir, config=config) if environment.is_rank_zero else NullReporter() as reporter,
    ):
        with process_group(environment, config.trainer.device) as processes:
            run_dir = Path(processes.on_rank_zero(lambda: config.run_dir))  # the others were given none
            trainer, prepared = start(config, reporter, processes)
            if latest:
                processes.on_rank_zero(point_to, run_dir)
            trainer.fit()
            reporter.end_progress()
            final = evaluate_best(config, run_dir, prepared.tests, reporter.phase, processes)
        if isinstance(reporter, Reporter):
            from nmt.evaluation.model_card import write_card  # late: only the process that reports needs it

            write_card(run_dir / "checkpoints" / "best", run_dir, prepared.cleaning)
            vocab_size = len(prepared.tokenizers.target)
            notes = advise(config, trainer.progress.step, vocab_size, final, prepared.train.corpus, prepared.tests)
            reporter.finish(final, notes)
            logs = shlex.quote(str(run_dir / "tensorboard"))
            logger.info("run folder %s; heatmaps: tensorboard --logdir %s", run_dir, logs)
    return run_dir


def start(config: TrainConfig, reporter: Reporter | NullReporter, processes: ProcessGroup) -> tuple[Trainer, Prepared]:
    """Return a trainer that is ready to fit, and its text; collective.

    It is at update 0, or where the run's last checkpoint was saved.
    """
    processes.on_rank_zero(check_files, config)
    last = processes.on_rank_zero(previous_checkpoint, config)
    device = processes.on_all_ranks(processes.device, config.trainer.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if config.deterministic:
        processes.on_all_ranks(be_deterministic, config)
    torch.manual_seed(config.seed)
    origin = last or processes.on_rank_zero(initial_checkpoint, config)
    processes.on_rank_zero(check_run, config)  # with the values that these checkpoints give to keys that were not given
    prepared = prepare(config, origin, processes)
    vocabularies = prepared.tokenizers
    model = build_model(config.model, len(vocabularies.source), len(vocabularies.target), joint=vocabularies.joint)
    longest = longest_source(prepared.train, config.batch.max_length)
    if origin is not None:
        before = processes.on_all_ranks(load_checkpoint, origin)
        model.load_state_dict(before.model.state_dict())
        longest = max(longest, before.longest_source)
    model.to(device)
    if config.model.fast == "auto":
        accelerate(model)
        keep_freed_memory()
    seed_rank(config.seed, processes)
    trainer = build_trainer(config, model, prepared, device, reporter, processes, longest=longest)
    if last is not None:
        processes.on_all_ranks(resume, trainer, config, last)
    processes.on_rank_zero(reporter.start, summarize(model), trainer.progress.step)
    if origin is not None:
        how = "continuing from" if last is not None else "beginning with the weights and subwords of"
        logger.info("%s %s at update %d", how, origin, trainer.progress.step)
    return trainer, prepared


def longest_source(train: EncodedCorpus, max_length: int) -> int:
    """Return the number of subwords of the longest sources that are trained on, without outliers."""
    lengths = train.source.lengths
    return int(np.quantile(lengths[lengths <= max_length], COMMON, method="higher"))


def resume(trainer: Trainer, config: TrainConfig, last: Path) -> None:
    """Restore the training state of a checkpoint; forget its best score where later ones cannot be compared to it."""
    with training_state(last) as state:
        trainer.load_state_dict(state)
    if not scores_are_comparable(config, last):
        trainer.progress.best, trainer.progress.stale = None, 0


def build_trainer(
    config: TrainConfig,
    model: Seq2Seq,
    prepared: Prepared,
    device: torch.device,
    reporter: Reporter | NullReporter,
    processes: ProcessGroup = SINGLE_PROCESS,
    *,
    longest: int | None = None,
) -> Trainer:
    """Assemble the trainer from its parts, and from now on keep few kernels in this process; collective.

    `longest` is the number of subwords of the longest sources that the model has been trained on, if it is known.
    """
    keep_few_kernels(bf16=config.trainer.precision != "fp32")

    def save(name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None:
        processes.on_rank_zero(
            save_checkpoint,
            Path(config.run_dir) / "checkpoints" / name,
            model,
            config,
            prepared.tokenizers,
            step=step,
            longest_source=longest,
            training_state=training_state,
        )

    loader = TrainLoader(
        prepared.train,
        prepared.tokenizers,
        config.batch,
        sampling=config.tokenizer.sampling,
        guide=prepared.guide,
        seed=config.seed,
        rank=processes.rank,
        world_size=processes.world_size,
        pin_memory=device.type == "cuda",
    )
    validator = Validator(
        prepared.validation, prepared.tokenizers, config, device, reporter.phase, processes, longest=longest
    )
    optimizer = build_optimizer(model, config.optimizer)
    return Trainer(
        model,
        loader,
        optimizer,
        Schedule(optimizer, config.schedule, config.optimizer.learning_rate),
        config.trainer,
        config.optimizer.clip_norm,
        device=device,
        validate=validator,
        sample=validator.samples if config.trainer.num_samples else None,
        save=save,
        reporter=reporter,
        objective=chunked_loss if config.model.fast == "auto" else token_loss,
        processes=processes,
    )


def evaluate_best(
    config: TrainConfig,
    run_dir: Path,
    tests: Mapping[str, datasets.Dataset],
    phase: Phase = unreported,
    processes: ProcessGroup = SINGLE_PROCESS,
) -> dict[str, Any]:
    """Evaluate the best checkpoint on test splits, if there are any; return the scores of the first; collective.

    Rank 0 evaluates alone if other ranks cannot see the checkpoint, as on machines without a shared file system.
    """
    if not tests:
        return {}
    manifest = run_dir / "checkpoints" / "best" / MANIFEST
    seen = processes.all_gather(manifest.read_bytes() if manifest.exists() else None)
    if len(set(seen)) > 1:
        return processes.on_rank_zero(evaluate_best, config, run_dir, tests, phase)
    # Imported late: training itself needs none of it.
    from nmt.evaluation.evaluator import evaluate_split
    from nmt.evaluation.output import prepare_folder
    from nmt.evaluation.report import print_table

    scores: dict[str, Any] = {}
    translator = processes.on_all_ranks(Translator.load, run_dir, config.trainer.device, **vars(config.search))
    translator.map_batches = processes.distributed_map
    for split, corpus in tests.items():
        folder = run_dir / "evaluation" / split
        processes.on_rank_zero(prepare_folder, folder)
        scoring: dict[str, Any] = {"bleu_tokenize": bleu_tokenizer(config), "lowercase": config.lowercase}
        # Sentences are translated, greedily too where there is a beam, scored, and aligned where there is gold.
        passes = 2 + (config.search.beam_size > 1) + ("alignment" in corpus.column_names)
        with phase(f"testing on {split}", len(corpus) * passes) as advance:
            translator.progress = advance
            place = folder if processes.rank == 0 else None
            metrics = processes.on_all_ranks(evaluate_split, translator, corpus, place, split=split, **scoring)
        if processes.rank == 0:
            print_table(metrics)
            print(f"report: {folder / 'report.html'}   heatmaps: {folder / 'heatmaps'}")
        scores = scores or metrics
    return scores


def point_to(run_dir: Path) -> None:
    """Make outputs/latest a folder of links to a run's files, unless it holds anything but links.

    It is not a link to the run itself and does not include `tensorboard`: TensorBoard would show the run twice.

    Raises:
        UserError: it, or the run's folder of evaluations, cannot be created.
    """
    run = run_of(run_dir).resolve()
    with writing(f"{LATEST} or {run / 'evaluation'}"):
        if LATEST.is_symlink():  # as earlier versions made it
            LATEST.unlink()
        LATEST.mkdir(parents=True, exist_ok=True)
        if not all(each.is_symlink() for each in LATEST.iterdir()):
            return
        (run / "evaluation").mkdir(parents=True, exist_ok=True)  # it could not be created through a dangling link
        for name in ("checkpoints", "config.yaml", "train.log", RECORDS, ALIGNMENTS, "evaluation"):
            link = LATEST / f".{name}.{os.getpid()}"
            link.symlink_to(os.path.relpath(run / name, LATEST.resolve()))
            link.replace(LATEST / name)
