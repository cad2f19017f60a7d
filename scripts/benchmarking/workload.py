"""The work that is measured: a trainer on a corpus or on random sentences of one length, and a translator."""

from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import torch
from torch import Tensor

from nmt.alignment.targets import AlignmentTargets
from nmt.config.schema import TrainConfig
from nmt.data.corpus import clean, load_split
from nmt.data.tables import EncodedCorpus, Ragged, encode
from nmt.errors import UserError, one_line
from nmt.fast.accelerate import accelerate
from nmt.fast.heap import keep_freed_memory
from nmt.fast.projection import pack_weights
from nmt.models.build import build_model
from nmt.models.checkpoint import load_checkpoint, resolve_device
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.text.vocabulary import EOS, Vocabulary
from nmt.training.prepare import TrainingData, check_guided_alignment
from nmt.training.reporting import Reporter
from nmt.training.run import build_trainer
from nmt.training.trainer import Trainer
from nmt.translator import Translator


def prepare_training(config: TrainConfig) -> TrainingData:
    """Load, clean, segment and encode the training text, as a run does, to stand for the validation text too; raise
    UserError where the corpus cannot be trained on.
    """
    corpus, _ = clean(load_split(config.data, "train"), config.data.cleaning)
    tokenizers = build_tokenizers(list(corpus["source"]), list(corpus["target"]), config.tokenizer)
    encoded = encode(corpus, tokenizers, cache_dir=config.data.cache_dir, num_workers=config.data.num_workers)
    return TrainingData(tokenizers, encoded, corpus)


def random_sentences(vocab_size: int, *, sentences: int, length: int) -> TrainingData:
    """Make pairs of random pieces, each side of exactly `length` tokens with its end mark: batches have no padding."""
    vocabulary = Vocabulary("".join(f"piece{number}\n" for number in range(EOS + 1, vocab_size)).encode())
    ids = np.random.default_rng(1).integers(EOS + 1, vocab_size, (2, sentences, length - 1)).tolist()
    source, target = (vocabulary.decode(side) for side in ids)
    links = " ".join(f"{place}-{place}" for place in range(length - 1))
    corpus = datasets.Dataset.from_dict({"source": source, "target": target, "alignment": [links] * sentences})
    encoded = EncodedCorpus(corpus, Ragged.of(ids[0]), Ragged.of(ids[1]))
    return TrainingData(Tokenizers(vocabulary, vocabulary), encoded, corpus)


def start_training(config: TrainConfig, prepared: TrainingData) -> Trainer:
    """Return an endless trainer that writes, reports or validates nothing; raise UserError if no model can be built, or
    its attention cannot be guided as asked.
    """
    if config.trainer.guided_alignment.weight > 0:
        check_guided_alignment(config)
        targets = AlignmentTargets(prepared.train.corpus, prepared.tokenizers)
        prepared = replace(prepared, alignment_targets=targets)
    endless = replace(config.trainer, max_steps=None, max_epochs=None, max_minutes=None, patience=None)
    config = replace(config, trainer=endless)
    device = resolve_device(config.trainer.device)
    model = model_of(config, prepared.tokenizers, device)
    if config.model.fast == "auto":
        accelerate(model)
        keep_freed_memory()
    return build_trainer(config, model, prepared, device, Reporter(Path(config.run_dir), config=config))


def start_translating(config: TrainConfig, checkpoint: str | None, precision: str = "fp32") -> Translator:
    """Return a translator with the weights of a checkpoint, or with random ones.

    Args:
        config: that of the checkpoint with overrides, or without a checkpoint that of a new run.
        checkpoint: a run or checkpoint folder, or None.
        precision: as `Translator.load`.

    Raises:
        UserError: there is no checkpoint, its weights do not fit the configuration, or there is nothing to train on.
    """
    if checkpoint is None:
        return translator_of(config, prepare_training(config).tokenizers, precision=precision)
    loaded = load_checkpoint(checkpoint, resolve_device(config.trainer.device))
    try:
        translator = translator_of(config, loaded.tokenizers, loaded.model.state_dict(), precision=precision)
    except RuntimeError as error:
        reason = one_line(error)
        raise UserError(f"the weights of {loaded.folder} do not fit the overrides of model: {reason}") from error
    translator.checkpoint, translator.step, translator.longest_source = (
        loaded.folder,
        loaded.step,
        loaded.longest_source,
    )
    return translator


def translator_of(
    config: TrainConfig, tokenizers: Tokenizers, weights: dict[str, Tensor] | None = None, *, precision: str = "fp32"
) -> Translator:
    """Return a translator with these weights, or with random ones, accelerated as `Translator.load` does it."""
    device = resolve_device(config.trainer.device)
    model = model_of(config, tokenizers, device)
    if weights is not None:
        model.load_state_dict(weights)
    translator = Translator(model, tokenizers, config.search, device, precision)
    if config.model.fast == "auto":
        accelerate(translator.model)  # int8: a copy
        with translator.arithmetic():
            pack_weights(translator.model)
    return translator


def model_of(config: TrainConfig, tokenizers: Tokenizers, device: torch.device) -> Seq2Seq:
    """Return a model for these vocabularies, with random weights drawn from the seed of the configuration."""
    torch.manual_seed(config.seed)
    source, target = len(tokenizers.source), len(tokenizers.target)
    return build_model(config.model, source, target, joint=tokenizers.joint).to(device)
