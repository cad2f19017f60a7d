"""Checks of a training configuration that need no data: they run before anything is read or written."""

from nmt.config.schema import TrainConfig
from nmt.data.corpus import open_corpus
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer, check_tokenizer
from nmt.evaluation.registry import check_watched
from nmt.models.build import check_model, check_used
from nmt.models.decoder import DECODERS


def check_run(config: TrainConfig) -> None:
    """Raise UserError for settings that cannot work together, or need what is not installed."""
    check_model(config.model, joint=config.tokenizer.joint)
    check_used(config.model)
    check_tokenizer(bleu_tokenizer(config))
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
