"""What the entry points share: composing the configuration, telling the user's errors from ours, exit statuses.

0 done; 1 a defect of ours, with its traceback; 2 the user's input or options are wrong, one line on standard
error; 130 interrupted; 141 the reader of our output went away.
"""

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.check import check, explain
from nmt.config.schema import EvaluateConfig, TrainConfig
from nmt.errors import UserError, unknown
from nmt.training.torchrun_env import Launch

Config = TypeVar("Config", TrainConfig, EvaluateConfig)

PATIENCE = 3.0  # seconds
DATE = re.compile(r"\d{4}-\d\d-\d\d")


@contextlib.contextmanager
def user_errors(*, told: bool = True) -> Iterator[None]:
    """Turn the ways in which a command ends early into exit statuses.

    Args:
        told: whether to print anything; of several processes that end alike, one does.

    Raises:
        SystemExit: 2 after printing a `UserError` as one line, 130 on interruption, 141 on a broken pipe.
    """
    try:
        yield
    except UserError as error:
        if told:
            print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        if told:
            print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit: give it a place to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def config_folder() -> Path:
    """Return the folder of YAML files: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    folders = [package / "configs", package.parent / "configs"]
    return next(folder for folder in folders if (folder / "train.yaml").is_file())


def register_schemas() -> None:
    """Tell Hydra the types of all keys, under the names that the `defaults` of the root files use."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="train_schema", node=TrainConfig)
    ConfigStore.instance().store(name="evaluate_schema", node=EvaluateConfig)


def hydra_main(
    config_name: str, schema: type[Config], *, together: bool = False
) -> Callable[[Callable[[Config], None]], Callable[[], None]]:
    """Make a function of a configuration dataclass into a command line that Hydra composes.

    The function gets a `schema` whose names, types, choices and bounds have been checked, with `run_dir`, if it
    has one, set to the folder that Hydra chose for the job (in a sweep, one folder a job). `--help`, `--cfg job`,
    `-m` and Hydra's other options work as usual.

    Args:
        config_name: root file in `configs/`, without `.yaml`.
        schema: dataclass of the configuration.
        together: a launcher may start several processes that do one job; the first makes folders and tells errors.
    """

    def decorate(function: Callable[[Config], None]) -> Callable[[], None]:
        def main() -> None:
            with user_errors():
                launch = Launch.of(os.environ) if together else Launch()
            with first_speaks(launch), user_errors(told=launch.is_first):
                take_place(launch)
                compose_and_run(config_name, schema, function, told=launch.is_first)

        main.__doc__ = function.__doc__
        return main

    return decorate


@contextlib.contextmanager
def first_speaks(launch: Launch) -> Iterator[None]:
    """Let the first process speak before another ends early: a launcher ends all when one has failed."""
    try:
        yield
    except SystemExit:
        if not launch.is_first:
            time.sleep(PATIENCE)
        raise


def take_place(launch: Launch) -> None:
    """Keep Hydra from making folders in all but the first of several processes, whose `run_dir` says nothing.

    Raises:
        UserError: several processes are to do a sweep.
    """
    if launch.size > 1 and any(map(asks_for_sweep, sys.argv[1:])):
        raise UserError("a sweep (-m) trains in one process a job: start it without torchrun, or train one setting")
    if not launch.is_first:
        # Beside another override, if there is one: those on both sides of an option are refused.
        overrides = (place for place, each in enumerate(sys.argv) if place and "=" in each and each[0] != "-")
        sys.argv.insert(next(overrides, 1), "hydra.run.dir=.")


def asks_for_sweep(argument: str) -> bool:
    """Tell whether an argument makes Hydra sweep: -m, --multirun or its beginning, or hydra.mode=MULTIRUN."""
    is_beginning = len(argument) > len("--") and "--multirun".startswith(argument)
    return is_beginning or argument in ("-m", "hydra.mode=MULTIRUN")


def compose_and_run(
    config_name: str, schema: type[Config], function: Callable[[Config], None], *, told: bool = True
) -> None:
    """Compose the configuration from `sys.argv` and call `function` once, or once for each job of a sweep."""
    import hydra
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    started = False

    def job(composed: Any) -> None:
        nonlocal started
        started = True
        # Ended here, or Hydra would print lines of its own first.
        with user_errors(told=told), no_empty_folder():
            function(resolve(composed, schema))

    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise errors instead of printing them
    register_schemas()
    try:
        hydra.main(config_path=str(config_folder()), config_name=config_name, version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError) as error:
        if started:
            raise
        raise composition_error(error, schema()) from error


@contextlib.contextmanager
def no_empty_folder() -> Iterator[None]:
    """Remove the folder that Hydra made for the job if a `UserError` ends it before anything was written."""
    try:
        yield
    except UserError:
        folder = output_folder()
        if folder != Path.cwd():
            with contextlib.suppress(OSError):
                folder.rmdir()
                if DATE.fullmatch(folder.parent.name):  # Hydra made it too, by `run_dir`'s default
                    folder.parent.rmdir()
        raise


def resolve(composed: Any, schema: type[Config]) -> Config:
    """Turn Hydra's composed configuration into a checked dataclass; below this point there is no OmegaConf."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = OmegaConf.to_object(composed)
    except OmegaConfBaseException as error:
        raise explain(error, schema()) from error
    assert isinstance(config, schema), f"the defaults of the root file lack the schema of {schema.__name__}"
    check(config)
    if isinstance(config, TrainConfig):
        folder = output_folder()
        config.run_dir = str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
    return config


def output_folder() -> Path:
    """Return the folder that Hydra chose for the running job."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def swept_overrides() -> list[str]:
    """Return the overrides by which the running job of a sweep differs from the others; none where it is alone."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return []
    # What the command line says as it stands is the same for all jobs.
    return [each for each in HydraConfig.get().overrides.task if each not in sys.argv]


def composition_error(error: Exception, config: Any) -> UserError:
    """Return an error met before the job began as one clear line."""
    from hydra.errors import MissingConfigException, OverrideParseException

    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return unknown(group, name, error.options)
    if isinstance(error, OverrideParseException):
        hint = "write key=value; quote a value that has special characters: 'key=\"value\"'"
        return UserError(f"cannot read the override {error.override!r}: {hint}")
    file = re.match(r"In '(.+?)': ", str(error))
    return UserError(f"in {file[1]}.yaml: {explain(error, config)}" if file else str(explain(error, config)))
