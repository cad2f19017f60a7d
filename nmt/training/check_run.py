"""Checks of a training configuration that need no data: they run before anything is read or written."""

from nmt.config.schema import TrainConfig
from nmt.data.corpus import has_split, missing_split
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu_tokenizer, check_tokenizer
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
    for split in ("train", "validation"):
        if not has_split(config.data, split):
            raise missing_split(config.data, split)
    has_gold = config.data.kind == "grammar" or bool(config.data.validation.alignment)
    if config.trainer.metric == "aer" and not has_gold:
        raise UserError(
            "trainer.metric=aer needs gold alignments of the validation text: set data.validation.alignment"
        )
    if config.trainer.guided_alignment.weight > 0:
        check_guided_alignment(config)


def check_guided_alignment(config: TrainConfig) -> None:
    """Raise UserError where attention cannot be guided: no gold alignments, or no gradient to the weights."""
    needed = f"trainer.guided_alignment.weight={config.trainer.guided_alignment.weight:g} needs"
    if config.data.kind == "hub":
        raise UserError(f"{needed} gold alignments, which data=hub has not: use data=text, or set the weight to 0")
    if config.data.kind == "text" and not config.data.train.alignment:
        raise UserError(
            f"{needed} gold alignments of the training text: set data.train.alignment=FILE, or the weight to 0"
        )
    if not DECODERS[config.model.decoder].attends:
        raise UserError(
            f"{needed} attention, which model={config.model.decoder} has not: choose another, or set the weight to 0"
        )
    if config.model.attention.normalizer == "hard":
        raise UserError(
            f"{needed} weights that pass on a gradient, which those of model.attention.normalizer=hard do not: "
            "choose another normalizer, or set the weight to 0"
        )
