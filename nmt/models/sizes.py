"""Sizes and dropout rates that follow from the configuration."""

from typing import Literal

from nmt.attention.settings import AttentionSettings
from nmt.config.schema import ModelConfig


def dropout_rate(config: ModelConfig, place: Literal["embedding", "state", "output"]) -> float:
    """Return the dropout rate of a place: its own if it is given, else that of the model."""
    own: float | None = getattr(config, f"{place}_dropout")
    return config.dropout if own is None else own


def has_dropout(config: ModelConfig) -> bool:
    """Return whether dropout of any kind is on."""
    return any([config.word_dropout, *(dropout_rate(config, place) for place in ("embedding", "state", "output"))])


def attention_settings(config: ModelConfig, state_size: int) -> AttentionSettings:
    """Return the settings of the attention over encoder states of size `state_size`."""
    size = config.attention.size or config.hidden_size
    sizes = {"query_size": config.hidden_size, "state_size": state_size, "size": size}
    return AttentionSettings.from_config(config.attention, **sizes)
