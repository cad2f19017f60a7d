"""Composing a configuration as the commands do."""

from typing import Any

import hydra
from omegaconf import OmegaConf

from nmt.cli import config_folder, register_schemas
from nmt.config.automatic import fill_defaults
from nmt.config.check import check
from nmt.config.schema import EvaluateConfig, ServeConfig, TrainConfig

FOLDER = config_folder()
SCHEMAS: dict[str, Any] = {"train": TrainConfig, "evaluate": EvaluateConfig, "serve": ServeConfig}


def compose(root: str, *overrides: str) -> Any:
    register_schemas()
    with hydra.initialize_config_dir(config_dir=str(FOLDER), version_base="1.3"):
        composed = OmegaConf.to_object(hydra.compose(root, overrides=list(overrides)))
    config: Any = fill_defaults(composed, SCHEMAS[root])
    check(config)
    return config
