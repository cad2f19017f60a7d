"""Before training: checks of the configuration, which need no data, then from the corpus to encoded text."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from nmt.alignment.targets import AlignmentTargets
from nmt.config.automatic import AUTOMATIC, assign, value_of
from nmt.config.schema import TokenizerConfig, TrainConfig
from nmt.data.corpus import CleaningReport, clean, load_split, open_corpus
from nmt.data.tables import EncodedCorpus, Progress, encode, lines_of
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer, check_tokenizer
from nmt.evaluation.registry import check_gold_for, check_watched
from nmt.models.build import check_model, check_used
from nmt.models.checkpoint import resolve_device
from nmt.models.decoder import DECODERS
from nmt.models.sizes import has_dropout
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.training.defaults import settle
from nmt.training.distributed import ProcessGroup

logger = logging.getLogger(__name__)

TEST_SPLITS = ("test", "test_long")
LEARNING_SEED = 1


def check_files(config: TrainConfig) -> None:
    """Raise UserError for a file of the corpus that does not exist: the mistake most often made, told before others."""
    corpus = open_corpus(config.data)
    for split in ("train", "validation", *(TEST_SPLITS if config.trainer.evaluate else ())):
        corpus.check_files(split)


def check_run(config: TrainConfig) -> None:
    """Raise UserError for settings that cannot work together, or need what is not installed."""
    check_model(config.model, joint=config.tokenizer.joint)
    check_used(config.model)
    check_tokenizer(bleu_tokenizer(config))
    check_watched(config.trainer.metric)
    limits = (config.trainer.max_steps, config.trainer.max_epochs, config.trainer.max_minutes)
    if all(limit is None for limit in limits):
        raise UserError("training has no end: set trainer.max_steps, trainer.max_epochs or trainer.max_minutes")
    corpus = open_corpus(config.data)
    for split in ("train", "validation"):
        if not corpus.has_split(split):
            raise corpus.missing(split)
    check_gold_for(config.trainer.metric, has_gold=corpus.has_gold("validation"))
    if config.trainer.guided_alignment.weight > 0:
        check_guided_alignment(config)
    if config.trainer.consistency > 0:
        check_consistency(config)


def check_guided_alignment(config: TrainConfig) -> None:
    """Raise UserError where attention cannot be guided: no gold alignments, or no gradient to the weights."""
    corpus, decoder = open_corpus(config.data), config.model.decoder
    if not corpus.has_gold("train") and "alignment" not in corpus.split_keys:
        needed = f"gold alignments, which data={config.data.kind} has not: use data=text, or set the weight to 0"
    elif not corpus.has_gold("train"):
        needed = "gold alignments of the training text: set data.train.alignment=FILE, or the weight to 0"
    elif not DECODERS[decoder].attends:
        needed = f"attention, which model={decoder} has not: choose another, or set the weight to 0"
    elif config.model.attention.normalizer == "hard":
        needed = (
            "weights that pass on a gradient, which those of model.attention.normalizer=hard do not: "
            "choose another normalizer, or set the weight to 0"
        )
    else:
        return
    raise UserError(f"trainer.guided_alignment.weight={config.trainer.guided_alignment.weight:g} needs {needed}")


def check_consistency(config: TrainConfig) -> None:
    """Raise UserError where two passes would be the same, or differ by what attention draws."""
    model = config.model
    if not has_dropout(model):
        needed = "dropout, which makes two passes differ, and all of it is off: set model.dropout, or the weight to 0"
    elif model.attention.normalizer == "hard":
        needed = (
            "predictions that differ by dropout alone, and model.attention.normalizer=hard draws positions too: "
            "choose another normalizer, or set the weight to 0"
        )
    else:
        return
    raise UserError(f"trainer.consistency={config.trainer.consistency:g} needs {needed}")


@dataclass(frozen=True)
class Prepared:
    """Subwords and encoded text; `guide`: the gold links where attention is guided; `cleaning`: what was dropped."""

    tokenizers: Tokenizers
    train: EncodedCorpus
    validation: EncodedCorpus
    guide: AlignmentTargets | None = None
    cleaning: Mapping[str, CleaningReport] = field(default_factory=dict)


def prepare_on_all_ranks(config: TrainConfig, origin: Path | None, processes: ProcessGroup) -> Prepared:
    """Prepare on rank 0 first, then on the others, which find the subwords learned and the encoded text cached.

    Subwords are those of the checkpoint `origin`, if there is one. Sets `config.automatic` keys (see `settle`).
    Collective.

    Raises:
        UserError: the corpus cannot be trained on.
    """
    prepared: list[Prepared] = []

    def prepare_first() -> tuple[Tokenizers, dict[str, Any]]:
        prepared.append(prepare(config, None if origin is None else Tokenizers.load(origin)))
        return prepared[0].tokenizers, {name: value_of(config, name) for name in ("automatic", *AUTOMATIC)}

    tokenizers, values = processes.on_rank_zero(prepare_first)()
    assign(config, values)  # with nothing left to choose: other ranks have not seen the checkpoint that rank 0 adopts
    return processes.on_all_ranks(lambda: prepared[0] if prepared else prepare(config, tokenizers))()


def prepare(config: TrainConfig, tokenizers: Tokenizers | None) -> Prepared:
    """Load, clean, segment and encode the training and validation splits; learn subwords unless they are given.

    Keys of `config.automatic` are set before.
    """
    corpora = load_corpora(config)
    kept = {split: cleaned(config, split, corpora[split]) for split in ("train", "validation")}
    train_corpus, validation_corpus = (corpus for corpus, _ in kept.values())
    on_gpu = resolve_device(config.trainer.device).type == "cuda"
    settle(config, train_corpus, on_gpu=on_gpu)
    if tokenizers is None:
        logger.info("learning subwords" if config.tokenizer.source_model is None else "loading subwords")
        text = learning_text(train_corpus, config.tokenizer)
        with Progress("learning subwords"):
            tokenizers = build_tokenizers(lines_of(text, "source"), lines_of(text, "target"), config.tokenizer)
    logger.info("encoding %s pairs", f"{len(train_corpus):,}")
    train, validation = (
        encode(corpus, tokenizers, cache_dir=config.data.cache_dir, num_workers=config.data.num_workers)
        for corpus in (train_corpus, validation_corpus)
    )
    guide = AlignmentTargets(train_corpus, tokenizers) if config.trainer.guided_alignment.weight > 0 else None
    return Prepared(tokenizers, train, validation, guide, {split: report for split, (_, report) in kept.items()})


def learning_text(corpus: datasets.Dataset, config: TokenizerConfig) -> datasets.Dataset:
    """Return the pairs that subwords are learned from, in their order: of a large corpus some, the same every time.

    Of text that is segmented already the pieces are counted, for which all of it is read.
    """
    if config.kind == "whitespace" or len(corpus) <= config.learning_pairs:
        return corpus
    logger.info("subwords are learned from %s of %s pairs", f"{config.learning_pairs:,}", f"{len(corpus):,}")
    rows = np.random.default_rng(LEARNING_SEED).choice(len(corpus), config.learning_pairs, replace=False)
    return corpus.select(np.sort(rows))


def load_corpora(config: TrainConfig) -> dict[str, datasets.Dataset]:
    """Load every split that the run will read, so that a mistake in the last one is found before hours of work."""
    splits = ["train", "validation"]
    if config.trainer.evaluate:
        splits += filter(open_corpus(config.data).has_split, TEST_SPLITS)
    return {split: load_split(config.data, split) for split in splits}


def cleaned(config: TrainConfig, split: str, corpus: datasets.Dataset) -> tuple[datasets.Dataset, CleaningReport]:
    """Drop the pairs of a split that cannot be learned from; log and return how many."""
    kept, report = clean(corpus, config.data.cleaning)
    logger.info("%s: %s", split, report)
    return kept, report
