"""From the configured corpus to encoded training and validation text."""

import logging
from dataclasses import dataclass
from pathlib import Path

import datasets

from nmt.alignment.targets import AlignmentTargets
from nmt.config.schema import TrainConfig
from nmt.data.corpus import clean, load_split, open_corpus
from nmt.data.tables import EncodedCorpus, encode
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.training.distributed import ProcessGroup

logger = logging.getLogger(__name__)

TEST_SPLITS = ("test", "test_long")


@dataclass(frozen=True)
class Prepared:
    """Subwords and encoded text; `guide` holds the gold links where attention is guided."""

    tokenizers: Tokenizers
    train: EncodedCorpus
    validation: EncodedCorpus
    guide: AlignmentTargets | None = None


def prepare_on_all_ranks(config: TrainConfig, origin: Path | None, processes: ProcessGroup) -> Prepared:
    """Prepare on rank 0 first, then on the others, which find the subwords learned and the encoded text cached.

    Subwords are those of the checkpoint `origin`, if there is one. Collective.

    Raises:
        UserError: the corpus cannot be trained on.
    """
    prepared: list[Prepared] = []

    def prepare_first() -> Tokenizers:
        prepared.append(prepare(config, None if origin is None else Tokenizers.load(origin)))
        return prepared[0].tokenizers

    tokenizers = processes.on_rank_zero(prepare_first)()
    return processes.on_all_ranks(lambda: prepared[0] if prepared else prepare(config, tokenizers))()


def prepare(config: TrainConfig, tokenizers: Tokenizers | None) -> Prepared:
    """Load, clean, segment and encode the training and validation splits; learn subwords unless they are given."""
    corpora = load_corpora(config)
    train_corpus, validation_corpus = (cleaned(config, split, corpora[split]) for split in ("train", "validation"))
    if tokenizers is None:
        tokenizers = build_tokenizers(list(train_corpus["source"]), list(train_corpus["target"]), config.tokenizer)
    train, validation = (
        encode(corpus, tokenizers, cache_dir=config.data.cache_dir, num_workers=config.data.num_workers)
        for corpus in (train_corpus, validation_corpus)
    )
    guide = AlignmentTargets(train_corpus, tokenizers) if config.trainer.guided_alignment.weight > 0 else None
    return Prepared(tokenizers, train, validation, guide)


def load_corpora(config: TrainConfig) -> dict[str, datasets.Dataset]:
    """Load every split that the run will read, so that a mistake in the last one is found before hours of work."""
    splits = ["train", "validation"]
    if config.trainer.evaluate:
        splits += filter(open_corpus(config.data).has_split, TEST_SPLITS)
    return {split: load_split(config.data, split) for split in splits}


def cleaned(config: TrainConfig, split: str, corpus: datasets.Dataset) -> datasets.Dataset:
    """Drop the pairs of a split that cannot be learned from; log how many."""
    kept, report = clean(corpus, config.data.cleaning)
    logger.info("%s: %s", split, report)
    return kept
