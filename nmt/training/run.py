"""A training run, from configuration to evaluated checkpoint."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import datasets
import torch

from nmt.alignment.targets import AlignmentTargets
from nmt.config.file import save_config
from nmt.config.schema import TrainConfig
from nmt.data.cleaning import clean
from nmt.data.corpus import has_split, load_split, missing_split
from nmt.data.encoded import EncodedCorpus, encode
from nmt.data.loader import TrainLoader
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer, check_tokenizer
from nmt.evaluation.registry import check_watched
from nmt.models.build import build_model, check_model, check_used
from nmt.models.checkpoint import load_checkpoint, save_checkpoint, training_state
from nmt.models.seq2seq import Seq2Seq
from nmt.models.summary import summarize
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.training.distributed import SINGLE_PROCESS, Processes, join
from nmt.training.optimizer import Schedule, build_optimizer
from nmt.training.reporting import NullReporter, Reporter
from nmt.training.resuming import initial_checkpoint, is_judged_otherwise, previous_checkpoint
from nmt.training.torchrun_env import Launch
from nmt.training.trainer import Trainer
from nmt.training.validation import Validator
from nmt.translator import Translator

logger = logging.getLogger(__name__)

TEST_SPLITS = ("test", "test_long")
LATEST = Path("outputs/latest")


@dataclass(frozen=True)
class Prepared:
    """Everything that is made of the corpus."""

    tokenizers: Tokenizers
    train: EncodedCorpus
    validation: EncodedCorpus
    guide: AlignmentTargets | None = None  # where attention is taught


@final
class Checkpoints:
    """The run's folder of checkpoints."""

    def __init__(self, run_dir: Path, config: TrainConfig, tokenizers: Tokenizers) -> None:
        self.folder = run_dir / "checkpoints"
        self.config = config
        self.tokenizers = tokenizers

    def __call__(self, name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None:
        """Write `best` or `last`."""
        save_checkpoint(
            self.folder / name, model, self.config, self.tokenizers, step=step, training_state=training_state
        )


def train(config: TrainConfig, *, latest: bool = False) -> Path:
    """Train as configured, with the other processes that a launcher has started; return the run's folder.

    With `latest`, outputs/latest points to it once it has begun.

    Raises:
        UserError: the configuration or the corpus cannot be trained on.
    """
    launch = Launch.of(os.environ)
    run_dir = Path(config.run_dir)
    with Reporter(run_dir, config=config) if launch.is_first else NullReporter() as reporter:
        with join(launch, config.trainer.device) as processes:
            trainer = start(config, reporter, processes)
            if latest and launch.is_first:
                point_to(run_dir)
            trainer.fit()
        if isinstance(reporter, Reporter):
            reporter.end_progress()
            final = evaluate_best(config, run_dir) if config.trainer.evaluate else {}
            reporter.finish(final)
            reporter.notice(f"run folder {run_dir}; heatmaps: tensorboard --logdir {run_dir / 'tensorboard'}")
    return run_dir


def start(config: TrainConfig, reporter: Reporter | NullReporter, processes: Processes) -> Trainer:
    """Return a trainer ready to fit: at the beginning, or where the last checkpoint of the run left it."""
    last = processes.by_first(checked)(config)
    device = processes.each(processes.device)(config.trainer.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    origin = last or processes.by_first(initial_checkpoint)(config)
    prepared = prepare_in_turn(config, origin, processes)
    vocabularies = prepared.tokenizers
    model = build_model(config.model, len(vocabularies.source), len(vocabularies.target), joint=vocabularies.joint)
    if origin is not None:
        model.load_state_dict(processes.each(load_checkpoint)(origin).model.state_dict())
    model.to(device)
    processes.copy_from_first([*model.parameters(), *model.buffers()])
    processes.part_randomness(config.seed)
    trainer = build_trainer(config, model, prepared, device, reporter, processes)
    if last is not None:
        processes.each(go_on)(trainer, config, last)
    processes.by_first(open_run)(config, summarize(model), reporter, trainer.progress.step)
    if origin is not None:
        how = "continuing from" if last is not None else "beginning with the weights and subwords of"
        reporter.notice(f"{how} {origin} at update {trainer.progress.step}")
    return trainer


def go_on(trainer: Trainer, config: TrainConfig, last: Path) -> None:
    """Bring a trainer where a checkpoint left it; `best` is judged anew where its judge has changed."""
    with training_state(last) as state:
        trainer.load_state_dict(state)
    if is_judged_otherwise(config, last):
        trainer.progress.best, trainer.progress.stale = None, 0


def open_run(config: TrainConfig, summary: str, reporter: Reporter | NullReporter, step: int) -> None:
    """Create the run's files, or go on with them after update `step`."""
    save_config(config, Path(config.run_dir) / "config.yaml")
    reporter.start(summary, step)


def checked(config: TrainConfig) -> Path | None:
    """Return the checkpoint to go on from, if there is one, when all is well that can be known before any work."""
    check_run(config)
    return previous_checkpoint(config)


def evaluate_best(config: TrainConfig, run_dir: Path) -> dict[str, Any]:
    """Evaluate the best checkpoint on the test splits there are; return the scores of the ordinary one."""
    # Not before: drawing takes 30 MiB, which no process but the one that reports needs.
    from nmt.evaluation.evaluator import evaluate_split
    from nmt.evaluation.table import print_table

    scores: dict[str, Any] = {}
    translator = Translator.load(run_dir, device=config.trainer.device, **vars(config.search))
    scoring: dict[str, Any] = {"bleu_tokenize": bleu_tokenizer(config), "lowercase": config.lowercase}
    for split in TEST_SPLITS:
        if not has_split(config.data, split):
            continue
        folder = run_dir / "evaluation" / split
        corpus = load_split(config.data, split)
        metrics = evaluate_split(translator, corpus, folder, split=split, **scoring)
        print_table(metrics)
        print(f"report: {folder / 'report.html'}   heatmaps: {folder / 'heatmaps'}")
        scores = scores or metrics
    return scores


def check_run(config: TrainConfig) -> None:
    """Raise UserError for settings that cannot work, before anything is read or written."""
    check_model(config.model, joint=config.tokenizer.joint)
    check_used(config.model)
    check_tokenizer(bleu_tokenizer(config))
    limits = (config.trainer.max_steps, config.trainer.max_epochs, config.trainer.max_minutes)
    if all(limit is None for limit in limits):
        raise UserError("training has no end: set trainer.max_steps, trainer.max_epochs or trainer.max_minutes")
    for split in ("train", "validation"):
        if not has_split(config.data, split):
            raise missing_split(config.data, split)
    has_gold = config.data.kind == "grammar" or bool(config.data.validation.alignment)
    check_watched(config.trainer.metric, has_gold=has_gold)
    if config.trainer.guided_alignment.weight > 0:
        check_guidance(config)


def check_guidance(config: TrainConfig) -> None:
    """Raise UserError where attention cannot be guided: no gold alignments, or no gradient to the weights."""
    needed = f"trainer.guided_alignment.weight={config.trainer.guided_alignment.weight:g} needs"
    if config.data.kind == "hub":
        raise UserError(f"{needed} gold alignments, which data=hub has not: use data=text, or set the weight to 0")
    if config.data.kind == "text" and not config.data.train.alignment:
        raise UserError(
            f"{needed} gold alignments of the training text: set data.train.alignment=FILE, or the weight to 0"
        )
    if config.model.decoder == "fixed_context":
        raise UserError(
            f"{needed} attention, which model=fixed_context has not: choose another, or set the weight to 0"
        )
    if config.model.attention.normalizer == "hard":
        raise UserError(
            f"{needed} weights that pass on a gradient, which those of model.attention.normalizer=hard do not: "
            "choose another normalizer, or set the weight to 0"
        )


def point_to(run_dir: Path) -> None:
    """Let outputs/latest be a link to the newest run; a real folder of that name is left alone."""
    LATEST.parent.mkdir(exist_ok=True)
    if LATEST.exists() and not LATEST.is_symlink():
        return
    link = LATEST.with_name(f".latest.{os.getpid()}")
    link.symlink_to(os.path.relpath(run_dir.resolve(), LATEST.parent.resolve()), target_is_directory=True)
    link.replace(LATEST)


def prepare_in_turn(config: TrainConfig, origin: Path | None, processes: Processes) -> Prepared:
    """Let the first process prepare all, and then the others, who find the subwords learned and the corpus encoded."""
    prepared: list[Prepared] = []

    def learn() -> Tokenizers:
        prepared.append(prepare(config, None if origin is None else Tokenizers.load(origin)))
        return prepared[0].tokenizers

    tokenizers = processes.by_first(learn)()
    return processes.each(lambda: prepared[0] if prepared else prepare(config, tokenizers))()


def prepare(config: TrainConfig, tokenizers: Tokenizers | None) -> Prepared:
    """Load, clean, segment and encode the training and validation splits; learn subwords unless they are given."""
    corpora = load_corpora(config)
    train_corpus, validation_corpus = (cleaned(config, split, corpora[split]) for split in ("train", "validation"))
    if tokenizers is None:
        tokenizers = build_tokenizers(list(train_corpus["source"]), list(train_corpus["target"]), config.tokenizer)
    encoded = {
        split: encode(corpus, tokenizers, cache_dir=config.data.cache_dir, num_workers=config.data.num_workers)
        for split, corpus in (("train", train_corpus), ("validation", validation_corpus))
    }
    guide = AlignmentTargets(train_corpus, tokenizers) if config.trainer.guided_alignment.weight > 0 else None
    return Prepared(tokenizers, encoded["train"], encoded["validation"], guide)


def load_corpora(config: TrainConfig) -> dict[str, datasets.Dataset]:
    """Load every split that the run will read, so that a mistake in the last of them is told before hours of work."""
    splits = ["train", "validation"]
    if config.trainer.evaluate:
        splits += [split for split in TEST_SPLITS if has_split(config.data, split)]
    return {split: load_split(config.data, split) for split in splits}


def cleaned(config: TrainConfig, split: str, corpus: datasets.Dataset) -> datasets.Dataset:
    """Drop the pairs of a split that cannot be learned from."""
    kept, report = clean(corpus, config.data.cleaning)
    logger.info("%s: %s", split, report)
    return kept


def build_trainer(
    config: TrainConfig,
    model: Seq2Seq,
    prepared: Prepared,
    device: torch.device,
    reporter: Reporter | NullReporter,
    processes: Processes = SINGLE_PROCESS,
) -> Trainer:
    """Put the trainer together."""
    loader = TrainLoader(
        prepared.train,
        prepared.tokenizers,
        config.batch,
        sampling=config.tokenizer.sampling,
        guide=prepared.guide,
        seed=config.seed,
        rank=processes.rank,
        world_size=processes.size,
        pin_memory=device.type == "cuda",
    )
    optimizer = build_optimizer(model, config.optimizer)
    return Trainer(
        model,
        loader,
        optimizer,
        Schedule(optimizer, config.schedule, config.optimizer.learning_rate),
        config.trainer,
        config.optimizer,
        device=device,
        validate=processes.by_first(Validator(prepared.validation, prepared.tokenizers, config, device)),
        save=processes.by_first(Checkpoints(Path(config.run_dir), config, prepared.tokenizers)),
        reporter=reporter,
        processes=processes,
    )
