"""Shared by the entry points: composing the configuration, and exit statuses.

0 done; 1 a defect, with its traceback; 2 the user's input or options are wrong, one line on standard error; 130
interrupted; 141 the reader of standard output has closed it.
"""

import _thread
import argparse
import contextlib
import errno
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from nmt.config.automatic import complete, nullable
from nmt.config.check import check, explain
from nmt.config.options import arrange
from nmt.config.schema import EvaluateConfig, ServeConfig, TrainConfig
from nmt.errors import UNWRITABLE, UserError, is_out_of_memory, unknown
from nmt.training.torchrun_env import RankEnvironment

Config = TypeVar("Config", TrainConfig, EvaluateConfig, ServeConfig)

EXIT_DELAY = 3.0  # seconds
DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


@contextlib.contextmanager
def user_errors(*, show: bool = True) -> Iterator[None]:
    """Turn UserError, KeyboardInterrupt, BrokenPipeError, full memory or disks, and forbidden files into exit statuses.

    Args:
        show: whether to print them; of several processes with the same error, one does.

    Raises:
        SystemExit: 2 after printing one line for a `UserError`, full memory, a full disk or a forbidden file, 130 on
            interruption, 141 on a broken pipe.
    """
    open_streams()
    try:
        try:
            with kept_interrupts():
                yield
        finally:
            sys.stdout.flush()  # a reader that has gone away is noticed here, not while the interpreter ends
    except UserError as error:
        if show:
            print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        if show:
            print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        discard_output()
        sys.exit(141)
    except (OSError, MemoryError, RuntimeError) as error:
        line = full(error)
        if line is None:
            raise
        if show:
            print(f"error: {line}", file=sys.stderr)
        discard_output()
        sys.exit(2)


def open_streams() -> None:
    """Discard what is written to standard streams that are closed: `print(file=None)` writes to standard output."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def kept_interrupts() -> Iterator[None]:
    """Raise a KeyboardInterrupt again that Python has discarded, as in `__del__` and callbacks of weak references.

    A program that makes and drops many objects, such as matplotlib, could otherwise not be interrupted.
    """
    before = sys.unraisablehook

    def again(lost: Any) -> None:
        if lost.exc_type is not KeyboardInterrupt:
            before(lost)
            return
        later = threading.Timer(0.05, _thread.interrupt_main)  # out of what drops it
        later.daemon = True
        later.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def full(error: Exception) -> str | None:
    """Return what to tell of an exception that means that memory or a disk is full or a file forbidden, else None."""
    if is_out_of_memory(error):
        return "memory does not suffice: lower batch.size, search.batch_size or the sizes of the model"
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        advice = "choose another folder" if error.errno == errno.EROFS else "free some space"
        return f"cannot write {error.filename or 'a file, or standard output'}: {error.strerror}; {advice}"
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return None


def discard_output() -> None:
    """Lead standard output nowhere: the interpreter flushes it once more at exit, which must not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def config_folder() -> Path:
    """Return the folder of YAML files: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    folders = [package / "configs", package.parent / "configs"]
    return next(folder for folder in folders if (folder / "train.yaml").is_file())


def register_schemas() -> None:
    """Register the types of all keys with Hydra, under the names that the `defaults` of the root files use.

    In those of training, keys that may be left to the program are null until a value is given.
    """
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="train_schema", node=nullable(TrainConfig))
    ConfigStore.instance().store(name="evaluate_schema", node=EvaluateConfig)
    ConfigStore.instance().store(name="serve_schema", node=ServeConfig)


def hydra_main(
    config_name: str, schema: type[Config], *, distributed: bool = False
) -> Callable[[Callable[[Config], None]], Callable[[], None]]:
    """Return a decorator that makes a function of a configuration the main function of a Hydra command line.

    The function is called with a `schema` whose names, types, choices and bounds have been checked, and whose
    `run_dir`, if it has one, is the folder that Hydra chose for the job (in a sweep, one folder per job). `--help`,
    `--cfg job`, `-m` and Hydra's other options work as usual. The root file is `configs/<config_name>.yaml`.

    If `distributed`, torchrun may start several processes for one job; rank 0 makes folders and prints errors.
    """

    def decorate(function: Callable[[Config], None]) -> Callable[[], None]:
        def main() -> None:
            with user_errors():
                environment = RankEnvironment.of(os.environ) if distributed else RankEnvironment()
            is_rank_zero = environment.is_rank_zero
            try:
                with user_errors(show=is_rank_zero):
                    sys.argv[1:] = arrange(sys.argv[1:], schema())
                    prepare_rank(environment)
                    compose_and_run(config_name, schema, function, show_errors=is_rank_zero)
            except SystemExit:
                if not is_rank_zero:
                    time.sleep(EXIT_DELAY)  # torchrun kills all when one has failed, and rank 0 prints the error
                raise

        main.__doc__ = function.__doc__
        return main

    return decorate


def prepare_rank(environment: RankEnvironment) -> None:
    """Keep Hydra from making folders on ranks other than 0, and torch from a warning on all of several ranks; raise
    UserError where several processes are asked for a sweep.
    """
    if environment.world_size > 1 and any(map(asks_for_sweep, sys.argv[1:])):
        raise UserError("a sweep (-m) trains in one process a job: start it without torchrun, or train one setting")
    if environment.world_size > 1:
        # DistributedDataParallel warns that looking for unused parameters costs time. Read when torch is imported.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not environment.is_rank_zero:
        # Hydra refuses overrides on both sides of an option, so this one goes beside another.
        overrides = (i for i, argument in enumerate(sys.argv) if i and "=" in argument and argument[0] != "-")
        sys.argv.insert(next(overrides, 1), "hydra.run.dir=.")


def asks_for_sweep(argument: str) -> bool:
    """Return whether an argument makes Hydra sweep: -m, --multirun or its beginning, or hydra.mode=MULTIRUN."""
    is_beginning = len(argument) > len("--") and "--multirun".startswith(argument)
    return is_beginning or argument in ("-m", "hydra.mode=MULTIRUN")


def compose_and_run(
    config_name: str, schema: type[Config], function: Callable[[Config], None], *, show_errors: bool
) -> None:
    """Compose the configuration from `sys.argv` and call `function` once, or once per job of a sweep; raise UserError
    where nothing can be composed, or jobs of a sweep, whose errors have been told, have failed and the others are done.
    """
    import hydra
    import yaml
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    started, failed = 0, 0

    def job(composed: Any) -> None:
        nonlocal started, failed
        started += 1
        try:
            # Errors exit here: Hydra would print lines of its own first.
            with user_errors(show=show_errors), named_job(), no_empty_folder():
                function(resolve(composed, schema))
        except SystemExit as exit:
            if exit.code != 2 or HydraConfig.get().mode != RunMode.MULTIRUN:
                raise
            if not HydraConfig.get().launcher._target_.endswith(".BasicLauncher"):  # not here, but in another process
                raise UserError(
                    f"job {HydraConfig.get().job.num} of this sweep has failed, as told in its log"
                ) from None
            failed += 1

    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise errors instead of printing them
    register_schemas()
    try:
        hydra.main(config_path=str(config_folder()), config_name=config_name, version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError) as error:
        if started or isinstance(error, BrokenPipeError) or full(error):
            raise
        raise composition_error(error, schema()) from error
    if failed:
        raise UserError(f"{failed} of the {started} jobs of this sweep have failed, as told above")


@contextlib.contextmanager
def named_job() -> Iterator[None]:
    """Begin the message of a UserError in a job of a sweep with its number and the overrides that are its own."""
    from hydra.core.hydra_config import HydraConfig

    try:
        yield
    except UserError as error:
        if own := " ".join(swept_overrides()):
            raise UserError(f"job {HydraConfig.get().job.num} ({own}): {error}") from error
        raise


@contextlib.contextmanager
def no_empty_folder() -> Iterator[None]:
    """Remove the folder that Hydra made for the job where a UserError ends it before anything is written."""
    try:
        yield
    except UserError:
        folder = output_folder()
        if folder != Path.cwd():
            with contextlib.suppress(OSError):
                folder.rmdir()
                if DATE.fullmatch(folder.parent.name):  # made by Hydra too, for the default `run_dir`
                    folder.parent.rmdir()
        raise


def resolve(composed: Any, schema: type[Config]) -> Config:
    """Return Hydra's composed configuration as a checked dataclass; nothing below uses OmegaConf."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = complete(OmegaConf.to_object(composed), schema)
    except OmegaConfBaseException as error:
        raise explain(error, schema()) from error
    check(config)
    if isinstance(config, TrainConfig):
        if not config.run_dir.strip():
            raise UserError("run_dir is empty: give the folder of the run, or leave it out")
        folder = output_folder()
        config.run_dir = str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
    return config


def output_folder() -> Path:
    """Return the folder that Hydra chose for the running job."""
    from hydra.core.hydra_config import HydraConfig

    return Path(HydraConfig.get().runtime.output_dir)


def swept_overrides() -> list[str]:
    """Return the overrides in which the running job of a sweep differs from the others; without a sweep, none."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return []
    # An override that stands on the command line as it is, is the same for all jobs; Hydra writes `false` as `False`.
    given = {argument.lower() for argument in sys.argv}
    return [override for override in HydraConfig.get().overrides.task if override.lower() not in given]


def composition_error(error: Exception, config: Any) -> UserError:
    """Return an error of composition as a UserError of one line."""
    from hydra.errors import MissingConfigException, OverrideParseException

    if isinstance(error, OSError) and error.filename:  # mostly the folder of the run, which Hydra makes
        return UserError(f"cannot use {error.filename}: {error.strerror}; choose another folder (run_dir)")
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return unknown(group, name, error.options)
    if isinstance(error, OverrideParseException):
        hint = "write key=value; quote a value that has special characters: 'key=\"value\"'"
        return UserError(f"cannot read the override {error.override!r}: {hint}")
    file = re.match(r"In '(.+?)': ", str(error))
    return UserError(f"in {file[1]}.yaml: {explain(error, config)}" if file else str(explain(error, config)))
