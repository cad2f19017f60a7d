"""A training run, from configuration to evaluated checkpoint."""

import contextlib
import functools
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
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer
from nmt.evaluation.records import ALIGNMENTS, RECORDS, read_records
from nmt.fast.accelerate import accelerate
from nmt.fast.heap import keep_freed_memory
from nmt.fast.objective import token_loss as chunked_loss
from nmt.fast.optimizer import AdamW
from nmt.models.build import build_model
from nmt.models.checkpoint import is_complete, load_checkpoint, run_of, save_checkpoint, training_state
from nmt.models.manifest import MANIFEST, verify
from nmt.models.seq2seq import Seq2Seq
from nmt.models.summary import summarize
from nmt.text.tokenizer import Tokenizers
from nmt.training.console import Phase, silent_phase
from nmt.training.determinism import use_deterministic_kernels
from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup, process_group, seed_rank
from nmt.training.kernel_caches import limit_kernel_caches
from nmt.training.lock import locked
from nmt.training.minimum_risk import MinimumRisk
from nmt.training.notes import training_notes
from nmt.training.objective import token_loss
from nmt.training.optimizer import Schedule, build_optimizer
from nmt.training.prepare import TrainingData, check_files, check_run, prepare
from nmt.training.reporting import NullReporter, Reporter
from nmt.training.resuming import find_initial_checkpoint, find_previous_checkpoint
from nmt.training.torchrun_env import RankEnvironment
from nmt.training.trainer import Trainer
from nmt.training.validation import Validator
from nmt.translator import Translator

logger = logging.getLogger(__name__)

LATEST = Path("outputs/latest")
SOURCE_LENGTH_QUANTILE = 0.999  # longer training sources count as outliers


def train(config: TrainConfig, *, latest: bool = False) -> Path:
    """Train as configured, with the other processes that torchrun has started, and evaluate the best checkpoint.

    With `latest`, outputs/latest points to the run once training has started. Returns the run's folder.

    Raises:
        UserError: the configuration or the corpus cannot be trained on, or links lead to a run that is gone.
    """
    environment = RankEnvironment.of(os.environ)
    run_dir = run_of(Path(config.run_dir))
    if run_dir != Path(config.run_dir) and not run_dir.is_dir():
        raise UserError(f"{config.run_dir} leads to {run_dir}, which is not there: give run_dir the folder of the run")
    config.run_dir = str(run_dir)
    with (
        locked(run_dir) if environment.is_rank_zero else contextlib.nullcontext(),
        Reporter(run_dir, config=config) if environment.is_rank_zero else NullReporter() as reporter,
    ):
        with process_group(environment, config.trainer.device) as processes:
            run_dir = Path(processes.on_rank_zero(lambda: config.run_dir))  # Hydra chooses a folder on rank 0 alone
            trainer, data = start(config, reporter, processes)
            if latest:
                processes.on_rank_zero(link_latest, run_dir)
            trainer.fit()
            reporter.end_progress()
            scores = evaluate_best_checkpoint(config, run_dir, data.tests, reporter.phase, processes)
        if isinstance(reporter, Reporter):
            from nmt.evaluation.model_card import write_card  # late: only the process that reports needs it

            write_card(run_dir / "checkpoints" / "best", run_dir, data.cleaning, config.data if scores else None)
            vocab_size = len(data.tokenizers.target)
            notes = training_notes(config, trainer.progress.step, vocab_size, scores, data.train.corpus, data.tests)
            reporter.finish(scores, notes)
            folder = shlex.quote(str(run_dir / "tensorboard"))
            logger.info("run folder %s; heatmaps: tensorboard --logdir %s", run_dir, folder)
    return run_dir


def start(
    config: TrainConfig, reporter: Reporter | NullReporter, processes: ProcessGroup
) -> tuple[Trainer, TrainingData]:
    """Return a trainer that is ready to fit, and its text; collective.

    It is at update 0, or where the run's last checkpoint was saved.
    """
    processes.on_rank_zero(check_files, config, processes.world_size)
    last = processes.on_rank_zero(find_previous_checkpoint, config)
    device = processes.on_all_ranks(processes.device, config.trainer.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if config.deterministic:
        processes.on_all_ranks(use_deterministic_kernels, config)
    torch.manual_seed(config.seed)
    initial = last or processes.on_rank_zero(find_initial_checkpoint, config)
    processes.on_rank_zero(check_run, config)  # with the values that this checkpoint gives to keys that are not set
    if last is None and processes.on_rank_zero(lambda: bool(read_records(Path(config.run_dir) / RECORDS))):
        logger.warning("%s has records of a training but no checkpoint to go on from: it begins anew", config.run_dir)
    data = prepare(config, initial, processes)
    source, target = len(data.tokenizers.source), len(data.tokenizers.target)
    model = build_model(config.model, source, target, joint=data.tokenizers.joint)
    longest = longest_source(data.train, config.batch.max_length)
    if initial is not None:
        checkpoint = processes.on_all_ranks(load_checkpoint, initial)
        model.load_state_dict(checkpoint.model.state_dict())
        longest = max(longest, checkpoint.longest_source)
    model.to(device)
    if config.model.fast == "auto":
        accelerate(model)
        keep_freed_memory()
    seed_rank(config.seed, processes)
    trainer = build_trainer(config, model, data, device, reporter, processes, longest=longest)
    if last is not None:
        resume(trainer, last, processes)
    processes.on_rank_zero(reporter.start, summarize(model), trainer.progress.step)
    if initial is not None:
        how = "continuing from" if last is not None else "beginning with the weights and subwords of"
        logger.info("%s %s at update %d", how, initial, trainer.progress.step)
    return trainer, data


def longest_source(train: EncodedCorpus, max_length: int) -> int:
    """Return the number of subwords of the longest sources that are trained on, without outliers."""
    lengths = train.source.lengths[np.maximum(train.source.lengths, train.target.lengths) <= max_length]
    return int(np.quantile(lengths, SOURCE_LENGTH_QUANTILE, method="higher")) if len(lengths) else max_length


def resume(trainer: Trainer, last: Path, processes: ProcessGroup) -> None:
    """Restore the training state of a checkpoint; collective.

    Where later validations cannot be compared with the best score, as text or settings have changed, the best
    checkpoint is validated again. Where it is lost, the next validation is the best.
    """

    def restore() -> None:
        with training_state(last) as state:
            trainer.load_state_dict(state)

    progress, best_of = trainer.progress, trainer.progress.best_of
    processes.on_all_ranks(restore)
    is_comparable = progress.best_of in (None, best_of)  # earlier versions have not saved it
    progress.best_of = best_of
    best = last.with_name("best")
    has_best = processes.on_rank_zero(is_complete, best)
    if has_best:
        processes.on_rank_zero(verify, best, lambda name: True)  # now, not where training has ended
    if progress.best is None or (is_comparable and has_best):
        return
    progress.best, progress.stale, trainer.schedule.stale = None, 0, 0
    if not has_best:
        logger.warning("%s is lost: the next validation is taken for the best", best)
        progress.validated_step = -1  # so that there is one, also where training has ended
        return
    logger.warning("%s was chosen with other validation text or settings: it is validated again", best)
    with torch.random.fork_rng(devices=[]):  # a model draws its first weights, and what is restored must stay
        model = processes.on_all_ranks(load_checkpoint, best, trainer.device).model
    progress.improves(trainer.config.metric, trainer.validate(model).metrics)


def build_trainer(
    config: TrainConfig,
    model: Seq2Seq,
    data: TrainingData,
    device: torch.device,
    reporter: Reporter | NullReporter,
    processes: ProcessGroup = SINGLE_PROCESS,
    *,
    longest: int | None = None,
) -> Trainer:
    """Assemble the trainer from its parts, and limit the kernel caches of this process; collective.

    `longest` is the number of subwords of the longest sources that the model has been trained on, if it is known.
    """
    limit_kernel_caches(bf16=config.trainer.precision != "fp32")
    loader = processes.on_all_ranks(
        TrainLoader,
        data.train,
        data.tokenizers,
        config.batch,
        sampling=config.tokenizer.sampling,
        alignment_targets=data.alignment_targets,
        seed=config.seed,
        rank=processes.rank,
        world_size=processes.world_size,
        pin_memory=device.type == "cuda",
    )
    validator = Validator(data.validation, data.tokenizers, config, device, reporter.phase, processes, longest=longest)
    optimizer = build_optimizer(model, config.optimizer, AdamW)
    trainer = Trainer(
        model,
        loader,
        optimizer,
        Schedule(optimizer, config.schedule, config.optimizer.learning_rate),
        config.trainer,
        config.optimizer.clip_norm,
        device=device,
        validate=validator,
        sample=validator.samples if config.trainer.num_samples else None,
        save=functools.partial(save_in_run, processes, config, data.tokenizers, longest_source=longest),
        reporter=reporter,
        # In chunks for a CPU's cache; on a GPU each chunk would start many small kernels.
        objective=chunked_loss if config.model.fast == "auto" and device.type == "cpu" else token_loss,
        risk=MinimumRisk(config, data.tokenizers) if config.trainer.minimum_risk.weight > 0 else None,
        processes=processes,
    )
    trainer.progress.best_of = validator.digest
    return trainer


def save_in_run(
    processes: ProcessGroup, config: TrainConfig, tokenizers: Tokenizers, name: str, model: Seq2Seq, **state: Any
) -> None:
    """Save a checkpoint in the run, under a name, on rank 0; `state` is passed to `save_checkpoint`."""
    folder = Path(config.run_dir) / "checkpoints" / name
    processes.on_rank_zero(save_checkpoint, folder, model, config, tokenizers, **state)


def evaluate_best_checkpoint(
    config: TrainConfig,
    run_dir: Path,
    tests: Mapping[str, datasets.Dataset],
    phase: Phase = silent_phase,
    processes: ProcessGroup = SINGLE_PROCESS,
) -> dict[str, Any]:
    """Evaluate the best checkpoint on test splits, if there are any, write the files and print the scores; return those
    of the first; collective.

    Rank 0 evaluates alone if other ranks cannot see the checkpoint, as on machines without a shared file system.
    """
    if not tests:
        return {}
    manifest = run_dir / "checkpoints" / "best" / MANIFEST
    manifests = processes.all_gather(manifest.read_bytes() if manifest.exists() else None)
    if len(set(manifests)) > 1:
        return processes.on_rank_zero(evaluate_best_checkpoint, config, run_dir, tests, phase)
    translator = processes.on_all_ranks(Translator.load, run_dir, config.trainer.device, **vars(config.search))
    translator.map_batches = processes.distributed_map
    # Imported late: training itself needs none of it.
    from nmt.evaluation.evaluator import evaluate_split
    from nmt.evaluation.output import prepare_folder
    from nmt.evaluation.report import print_table

    scores = []
    for split, corpus in tests.items():
        folder = run_dir / "evaluation" / split
        processes.on_rank_zero(prepare_folder, folder)
        # Sentences are translated (also greedily, if there is a beam), scored, and aligned if there is gold.
        passes = 2 + (config.search.beam_size > 1) + ("alignment" in corpus.column_names)
        with phase(f"testing on {split}", len(corpus) * passes) as advance:
            translator.progress = advance
            metrics = processes.on_all_ranks(
                evaluate_split,
                translator,
                corpus,
                folder if processes.rank == 0 else None,
                split=split,
                bleu_tokenize=bleu_tokenizer(config),
                lowercase=config.lowercase,
            )
        if processes.rank == 0:
            print_table(metrics)
            print(f"report: {folder / 'report.html'}   heatmaps: {folder / 'heatmaps'}")
        scores.append(metrics)
    return scores[0]


def link_latest(run_dir: Path) -> None:
    """Make outputs/latest a folder of links to a run's files, unless it holds anything but links.

    It is not a link to the run itself and does not include `tensorboard`: TensorBoard would show the run twice. Where
    it cannot be made, a warning says so: the run does not need it.
    """
    run = run_of(run_dir).resolve()
    try:
        if LATEST.is_symlink():  # as earlier versions made it
            LATEST.unlink()
        LATEST.mkdir(parents=True, exist_ok=True)
        if not all(path.is_symlink() for path in LATEST.iterdir()):
            return
        (run / "evaluation").mkdir(parents=True, exist_ok=True)  # it could not be created through a dangling link
        for name in ("checkpoints", "config.yaml", "train.log", RECORDS, ALIGNMENTS, "evaluation"):
            link = LATEST / f".{name}.{os.getpid()}"
            link.symlink_to(os.path.relpath(run / name, LATEST.resolve()))
            link.replace(LATEST / name)
    except OSError as error:
        logger.warning("%s does not lead to this run: %s", LATEST, error.strerror)
