"""What is measured: a trainer on a real corpus, or on random sentences of one length."""

from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import torch

from nmt.config.schema import TrainConfig
from nmt.data.corpus import load_split
from nmt.data.encoded import EncodedCorpus, Ragged, encode
from nmt.errors import UserError
from nmt.models.build import build_model, check_model
from nmt.models.checkpoint import load_checkpoint, resolve_device
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.text.vocabulary import EOS, Vocabulary
from nmt.training.prepare import Prepared, cleaned
from nmt.training.reporting import Reporter
from nmt.training.run import build_trainer
from nmt.training.trainer import Trainer
from nmt.translator import Translator


def prepare_training(config: TrainConfig) -> Prepared:
    """Load, clean, segment and encode the training text, as a run does; there is no validation.

    Raises:
        UserError: the corpus cannot be trained on.
    """
    corpus = cleaned(config, "train", load_split(config.data, "train"))
    tokenizers = build_tokenizers(list(corpus["source"]), list(corpus["target"]), config.tokenizer)
    encoded = encode(corpus, tokenizers, cache_dir=config.data.cache_dir, num_workers=config.data.num_workers)
    return Prepared(tokenizers, encoded, encoded)


def random_sentences(vocab_size: int, *, sentences: int, length: int) -> Prepared:
    """Make pairs of random pieces, each side of exactly `length` tokens, end mark in: batches without padding."""
    vocabulary = Vocabulary("".join(f"piece{number}\n" for number in range(EOS + 1, vocab_size)).encode())
    ids = np.random.default_rng(1).integers(EOS + 1, vocab_size, (2, sentences, length - 1)).tolist()
    source, target = (vocabulary.decode(side) for side in ids)
    corpus = datasets.Dataset.from_dict({"source": source, "target": target})
    encoded = EncodedCorpus(corpus, Ragged.of(ids[0]), Ragged.of(ids[1]))
    return Prepared(Tokenizers(vocabulary, vocabulary), encoded, encoded)


def start_training(config: TrainConfig, prepared: Prepared) -> Trainer:
    """Return the trainer of a run that would go on for ever; nothing is written, reported or validated.

    Raises:
        UserError: the model cannot be built.
    """
    check_model(config.model, joint=config.tokenizer.joint)
    endless = replace(config.trainer, max_steps=None, max_epochs=None, max_minutes=None, patience=None)
    config = replace(config, trainer=endless)
    torch.manual_seed(config.seed)
    device = resolve_device(config.trainer.device)
    sides = prepared.tokenizers
    model = build_model(config.model, len(sides.source), len(sides.target), joint=sides.joint).to(device)
    return build_trainer(config, model, prepared, device, Reporter(Path(config.run_dir), config=config))


def start_translating(config: TrainConfig, checkpoint: str | None, precision: str = "fp32") -> Translator:
    """Return a translator with the weights of a checkpoint, else with random ones.

    Args:
        config: of the checkpoint, search and options of the model perhaps changed; or of a run that is to be.
        checkpoint: a run or checkpoint folder.
        precision: as `Translator.load`.

    Raises:
        UserError: there is no checkpoint, its weights do not fit the configuration, or there is nothing to train on.
    """
    if checkpoint is None:
        prepared = prepare_training(config)
        trainer = start_training(config, prepared)
        return Translator(trainer.model, prepared.tokenizers, config.search, trainer.device, precision).freeze()
    device = resolve_device(config.trainer.device)
    loaded = load_checkpoint(checkpoint, device)
    sides = loaded.tokenizers
    model = build_model(config.model, len(sides.source), len(sides.target), joint=sides.joint).to(device)
    try:
        model.load_state_dict(loaded.model.state_dict())
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"the weights of {loaded.folder} do not fit the overrides of model: {reason}") from error
    translator = Translator(model, sides, config.search, device, precision)
    translator.checkpoint, translator.step = loaded.folder, loaded.step
    return translator.freeze()
