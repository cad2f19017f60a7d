"""Code shared by the entry points: composition of the configuration, and exit statuses.

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
    """Raise again any KeyboardInterrupt that Python discards inside `__del__` or a weak-reference callback.

    Otherwise Ctrl-C could be lost in code that creates and drops many objects, such as matplotlib.
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
    """Return a one-line message if an exception means full memory, a full disk or a forbidden file, else None."""
    if is_out_of_memory(error):
        return "memory does not suffice: lower batch.size, search.batch_size or the sizes of the model"
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        advice = "choose another folder" if error.errno == errno.EROFS else "free some space"
        return f"cannot write {error.filename or 'a file, or standard output'}: {error.strerror}; {advice}"
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return None


def discard_output() -> None:
    """Redirect standard output to the null device, so that the interpreter's final flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def config_folder() -> Path:
    """Return the folder of YAML files: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    folders = [package / "configs", package.parent / "configs"]
    return next(folder for folder in folders if (folder / "train.yaml").is_file())


def register_schemas() -> None:
    """Register the types of all keys with Hydra, under the names that the `defaults` of the root files use.

    In the training schema, automatic keys are null until a value is given.
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
    """Keep ranks other than 0 from making Hydra's folders, and silence a warning of DistributedDataParallel.

    Raises:
        UserError: several processes are asked to run a sweep.
    """
    if environment.world_size > 1 and any(map(asks_for_sweep, sys.argv[1:])):
        raise UserError("a sweep (-m) uses one process per job: start it without torchrun, or train a single setting")
    if environment.world_size > 1:
        # DistributedDataParallel warns that looking for unused parameters costs time. Read when torch is imported.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not environment.is_rank_zero:
        # Hydra rejects overrides on both sides of an option, so insert this one next to an existing override.
        overrides = (i for i, argument in enumerate(sys.argv) if i and "=" in argument and argument[0] != "-")
        sys.argv.insert(next(overrides, 1), "hydra.run.dir=.")


def asks_for_sweep(argument: str) -> bool:
    """Return whether an argument makes Hydra sweep: -m, --multirun or a prefix of it, or hydra.mode=MULTIRUN."""
    is_beginning = len(argument) > len("--") and "--multirun".startswith(argument)
    return is_beginning or argument in ("-m", "hydra.mode=MULTIRUN")


def compose_and_run(
    config_name: str, schema: type[Config], function: Callable[[Config], None], *, show_errors: bool
) -> None:
    """Compose the configuration from `sys.argv` and call `function` once, or once per job of a sweep.

    Raises:
        UserError: the configuration cannot be composed; or, after all jobs of a sweep, some have failed (the error of
            each was printed when it occurred).
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
                raise UserError(f"job {HydraConfig.get().job.num} of this sweep failed: see its log") from None
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
        raise UserError(f"{failed} of the {started} jobs of this sweep failed: see the errors above")


@contextlib.contextmanager
def named_job() -> Iterator[None]:
    """Prefix the message of a UserError in a sweep's job with the job's number and its own overrides."""
    from hydra.core.hydra_config import HydraConfig

    try:
        yield
    except UserError as error:
        if own := " ".join(swept_overrides()):
            raise UserError(f"job {HydraConfig.get().job.num} ({own}): {error}") from error
        raise


@contextlib.contextmanager
def no_empty_folder() -> Iterator[None]:
    """Remove the folder that Hydra created for the job if a UserError ends the job before it writes anything."""
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
    """Return the overrides that are specific to the running job of a sweep; outside a sweep, none."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return []
    # Overrides given verbatim on the command line apply to every job. Lowercased, as Hydra writes `false` as `False`.
    given = {argument.lower() for argument in sys.argv}
    return [override for override in HydraConfig.get().overrides.task if override.lower() not in given]


def composition_error(error: Exception, config: Any) -> UserError:
    """Convert a composition error into a one-line UserError."""
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
