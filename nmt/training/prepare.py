"""Before training: checks of the configuration, which need no data, then from the corpus to encoded text."""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from nmt.alignment.targets import AlignmentTargets
from nmt.config.automatic import AUTOMATIC, set_keys, value_of
from nmt.config.schema import DataConfig, TokenizerConfig, TrainConfig
from nmt.data.corpus import CleaningReport, clean, load_split, open_corpus
from nmt.data.tables import (
    ADVICE,
    PARALLEL_FROM,
    TEST_SPLITS,
    EncodedCorpus,
    ProgressLog,
    encode,
    encode_part,
    encoded_path,
    lines_of,
    temporary_folder,
)
from nmt.errors import UserError, write_errors
from nmt.evaluation.metrics import bleu, bleu_tokenizer
from nmt.evaluation.registry import check_watched
from nmt.models.build import check_model
from nmt.models.checkpoint import resolve_device
from nmt.models.decoder import DECODERS
from nmt.text.round_trip import warn_of_changes
from nmt.text.tokenizer import Tokenizers, build_tokenizers, check_sampling
from nmt.training.defaults import choose_automatic_values
from nmt.training.distributed import ProcessGroup
from nmt.training.notes import other_language, unspaced

logger = logging.getLogger(__name__)

LEARNING_SEED = 1


def check_files(config: TrainConfig, world_size: int) -> None:
    """Raise UserError for a missing corpus file: the most common mistake, so it is reported before all others."""
    corpus = open_corpus(config.data)
    for split in ("train", "validation", *(TEST_SPLITS if config.trainer.evaluate else ())):
        corpus.check_files(split, readers=world_size)


def check_run(config: TrainConfig) -> None:
    """Raise UserError for settings that cannot work together, or need what is not installed."""
    check_model(config.model, joint=config.tokenizer.joint)
    DECODERS[config.model.decoder].check_ignored_settings(config.model)
    bleu(bleu_tokenizer(config))  # raises UserError if the tokenizer is missing
    if config.search.neighbors:
        raise UserError(
            "search.neighbors needs the datastore of a trained model: leave it out here, and set it for nmt.evaluate "
            "or nmt.translate after python -m nmt.datastore RUN"
        )
    limits = (config.trainer.max_steps, config.trainer.max_epochs, config.trainer.max_minutes)
    if all(limit is None for limit in limits):
        raise UserError("training has no end: set trainer.max_steps, trainer.max_epochs or trainer.max_minutes")
    corpus = open_corpus(config.data)
    for split in ("train", "validation"):
        if not corpus.has_split(split):
            raise corpus.missing(split)
    check_watched(config.trainer.metric, has_gold=corpus.has_gold("validation"))
    if config.trainer.guided_alignment.weight > 0:
        check_guided_alignment(config)
    if config.trainer.consistency > 0:
        check_consistency(config)
    if config.trainer.minimum_risk.weight > 0:
        check_minimum_risk(config)
    check_sampling(config.tokenizer)


def check_guided_alignment(config: TrainConfig) -> None:
    """Raise UserError if attention cannot be guided: no gold alignments, or no gradient to the weights."""
    corpus, decoder = open_corpus(config.data), config.model.decoder
    needs = f"trainer.guided_alignment.weight={config.trainer.guided_alignment.weight:g} needs"
    if not corpus.has_gold("train") and "alignment" not in corpus.split_keys:
        raise UserError(
            f"{needs} gold alignments, which data={config.data.kind} lacks: use data=text, or set the weight to 0"
        )
    if not corpus.has_gold("train"):
        raise UserError(
            f"{needs} gold alignments of the training text: set data.train.alignment=FILE, or the weight to 0"
        )
    if not DECODERS[decoder].attends:
        raise UserError(f"{needs} attention, which model={decoder} lacks: choose another, or set the weight to 0")
    if config.model.attention.normalizer == "hard":
        raise UserError(
            f"{needs} weights that pass on a gradient, which those of model.attention.normalizer=hard do not: "
            "choose another normalizer, or set the weight to 0"
        )


def check_consistency(config: TrainConfig) -> None:
    """Raise UserError if two passes would be the same, or differ by what attention draws."""
    needs = f"trainer.consistency={config.trainer.consistency:g} needs"
    rate = config.model.dropout_rate
    if not any((config.model.word_dropout, rate("embedding"), rate("state"), rate("output"))):
        raise UserError(
            f"{needs} dropout, which makes two passes differ, and all of it is off: set model.dropout, or the weight "
            "to 0"
        )
    if config.model.attention.normalizer == "hard":
        raise UserError(
            f"{needs} predictions that differ by dropout alone, and model.attention.normalizer=hard draws positions "
            "too: choose another normalizer, or set the weight to 0"
        )


def check_minimum_risk(config: TrainConfig) -> None:
    """Raise UserError for attention that is drawn: a translation's probability would change from pass to pass."""
    if config.model.attention.normalizer == "hard":
        raise UserError(
            f"trainer.minimum_risk.weight={config.trainer.minimum_risk.weight:g} needs probabilities of translations, "
            "and model.attention.normalizer=hard draws positions in training: choose another normalizer, or set the "
            "weight to 0"
        )


@dataclass(frozen=True)
class TrainingData:
    """Subwords and text; `alignment_targets`: gold links if attention is guided; `cleaning`: what was dropped."""

    tokenizers: Tokenizers
    train: EncodedCorpus
    validation: datasets.Dataset
    tests: Mapping[str, datasets.Dataset] = field(default_factory=dict)
    alignment_targets: AlignmentTargets | None = None
    cleaning: Mapping[str, CleaningReport] = field(default_factory=dict)


def prepare(config: TrainConfig, initial_checkpoint: Path | None, processes: ProcessGroup) -> TrainingData:
    """Load and clean the training and validation splits, and encode the first; collective.

    Rank 0 goes first: it learns subwords, or takes those of the initial checkpoint, and sets the keys of
    `config.automatic` (see `choose_automatic_values`). The others read the text that it stored, and each rank encodes
    a part of it. Raises UserError if the corpus cannot be trained on.
    """
    loaded = None if initial_checkpoint is None else processes.on_rank_zero(Tokenizers.load, initial_checkpoint)
    text, cleaning = processes.rank_zero_first(load_text, config)
    tokenize = bleu_tokenizer(config)
    for warning in (other_language(config.data), unspaced(list(text["validation"]["target"]), tokenize)):
        if warning:
            logger.warning(warning)

    def choose_subwords_and_values() -> tuple[Tokenizers, dict[str, Any]]:
        choose_automatic_values(config, text["train"], on_gpu=resolve_device(config.trainer.device).type == "cuda")
        tokenizers = loaded or learn_subwords(text["train"], config.tokenizer)
        is_learned = loaded is None and config.tokenizer.target_model is None
        warn_of_changes(text["train"], tokenizers.target, lowercase=config.lowercase, is_learned=is_learned)
        return tokenizers, {name: value_of(config, name) for name in ("automatic", *AUTOMATIC)}

    tokenizers, values = processes.on_rank_zero(choose_subwords_and_values)
    set_keys(config, values)  # on every rank: only rank 0 has read the checkpoint that some values come from
    logger.info("encoding %s pairs", f"{len(text['train']):,}")
    train = encode_together(text.pop("train"), tokenizers, config.data, processes)
    is_guided = config.trainer.guided_alignment.weight > 0
    targets = processes.on_all_ranks(AlignmentTargets, train.corpus, tokenizers) if is_guided else None
    validation = text.pop("validation")
    return TrainingData(tokenizers, train, validation, tests=text, alignment_targets=targets, cleaning=cleaning)


def load_text(config: TrainConfig) -> tuple[dict[str, datasets.Dataset], dict[str, CleaningReport]]:
    """Load every split that the run will read, so that a mistake in the last one is found before hours of work.

    Those to train on and to validate with are cleaned; the second dictionary says what was dropped of them.
    """
    splits = ["train", "validation"]
    if config.trainer.evaluate:
        splits += filter(open_corpus(config.data).has_split, TEST_SPLITS)
    text = {split: load_split(config.data, split) for split in splits}
    cleaning = {}
    for split in ("train", "validation"):
        text[split], cleaning[split] = clean(text[split], config.data.cleaning)
        logger.info("%s: %s", split, cleaning[split])
    return text, cleaning


def learn_subwords(corpus: datasets.Dataset, config: TokenizerConfig) -> Tokenizers:
    """Return subwords that were learned from text, or those in the files that the configuration names."""
    logger.info("loading subwords" if config.source_model or config.target_model else "learning subwords")
    text = learning_text(corpus, config)
    with ProgressLog("learning subwords"):
        return build_tokenizers(lines_of(text, "source"), lines_of(text, "target"), config)


def encode_together(
    corpus: datasets.Dataset, tokenizers: Tokenizers, config: DataConfig, processes: ProcessGroup
) -> EncodedCorpus:
    """Encode a corpus. Each rank encodes a part of a large one, and rank 0 joins the parts into one file; collective.

    A rank that cannot see rank 0's folder leaves its part to rank 0 and encodes the whole corpus for itself. Raises
    UserError if `data.cache_dir` cannot be written.
    """
    workers = config.num_workers
    with contextlib.ExitStack() as stack:

        def make_folder() -> Path | None:
            if processes.world_size == 1 or len(corpus) < PARALLEL_FROM:
                return None
            path = encoded_path(corpus, tokenizers, config.cache_dir)
            with write_errors(path, ADVICE):
                return None if path.exists() else stack.enter_context(temporary_folder(path))

        folder = processes.on_rank_zero(make_folder)
        parts: list[Path] = []
        if folder is not None and folder.is_dir():
            parts = [folder / f"{rank}.arrow" for rank in range(processes.world_size)]

        def encode_part_of_rank() -> None:
            if parts:
                encode_part(corpus, tokenizers, parts, processes.rank, num_workers=workers)

        processes.on_all_ranks(encode_part_of_rank)
        return processes.rank_zero_first(
            encode, corpus, tokenizers, cache_dir=config.cache_dir, num_workers=workers, parts=parts
        )


def learning_text(corpus: datasets.Dataset, config: TokenizerConfig) -> datasets.Dataset:
    """Return the pairs that subwords are learned from, in corpus order: a fixed random sample of a large corpus.

    Pre-segmented text is returned whole, because its pieces are counted.
    """
    if config.kind == "whitespace" or len(corpus) <= config.learning_pairs:
        return corpus
    logger.info("subwords are learned from %s of %s pairs", f"{config.learning_pairs:,}", f"{len(corpus):,}")
    rows = np.random.default_rng(LEARNING_SEED).choice(len(corpus), config.learning_pairs, replace=False)
    return corpus.select(np.sort(rows))
