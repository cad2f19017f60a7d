"""Code shared by the entry points: composition of the configuration, and exit statuses.

0 done; 1 a defect, with its traceback; 2 the user's input or options are wrong, one line on standard error; 130
interrupted; 141 the reader of standard output has closed it.
"""

import argparse
import contextlib
import errno
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from nmt.config.automatic import fill_defaults, with_null_defaults
from nmt.config.check import check, readable_error, value_of_group
from nmt.config.options import normalize_arguments
from nmt.config.schema import EvaluateConfig, ServeConfig, TrainConfig
from nmt.errors import UNWRITABLE, UserError, is_of_one_rank, is_out_of_memory, unknown
from nmt.formats import from_here
from nmt.training.torchrun_env import RankEnvironment

Config = TypeVar("Config", TrainConfig, EvaluateConfig, ServeConfig)

EXIT_DELAY = 3.0  # seconds; torchrun kills all ranks when one fails, and rank 0 should print the error first
UNUSABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR)  # the path is wrong
DATE_FOLDER = re.compile(r"\d{4}-\d\d-\d\d")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see --help")


@contextlib.contextmanager
def user_errors(*, show: bool = True) -> Iterator[None]:
    """Turn the exceptions that `status_and_message` knows into SystemExit, after printing one line.

    `show`: whether to print it; of several processes with the same error, one does. An error of one rank alone is
    printed anyway.
    """
    open_streams()
    try:
        try:
            with reraise_lost_interrupts():
                yield
        finally:
            sys.stdout.flush()  # a reader that has gone away is noticed here, not while the interpreter ends
    except (Exception, KeyboardInterrupt) as error:
        if (outcome := status_and_message(error)) is None:
            raise
        status, message = outcome
        if message and (show or is_of_one_rank(error)):
            with contextlib.suppress(OSError):  # it may be on the same full disk
                print(message, file=sys.stderr)
        if not isinstance(error, UserError | KeyboardInterrupt):
            discard_output()
        sys.exit(status)


def status_and_message(error: BaseException) -> tuple[int, str] | None:
    """Return the exit status of an exception and the line to print, which may be empty; None if it is a defect."""
    if isinstance(error, UserError):
        return 2, f"error: {' '.join(str(error).splitlines())}"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, BrokenPipeError):
        return 141, ""
    if isinstance(error, UnicodeEncodeError) and sys.getfilesystemencoding() != "utf-8":
        return 2, "error: this locale has no letters beyond ASCII, and a path or a text has: set PYTHONUTF8=1"
    message = resource_message(error)
    return None if message is None else (2, f"error: {message}")


def open_streams() -> None:
    """Discard what is written to standard streams that are closed: `print(file=None)` writes to standard output."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def reraise_lost_interrupts() -> Iterator[None]:
    """Raise again any KeyboardInterrupt that Python discards inside `__del__` or a weak-reference callback."""
    # Seen while heatmaps were drawn: Ctrl-C was lost in an object that matplotlib dropped.
    previous_hook = sys.unraisablehook

    def reraise(unraisable: Any) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            previous_hook(unraisable)
            return
        main_thread = threading.main_thread().ident  # a signal wakes it where it sleeps or waits
        timer = threading.Timer(0.05, signal.pthread_kill, (main_thread, signal.SIGINT))  # after the code that drops it
        timer.daemon = True
        timer.start()

    sys.unraisablehook = reraise
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook


def resource_message(error: BaseException) -> str | None:
    """Return a one-line message if an exception means full memory, a full disk, or a path that cannot be used."""
    if is_out_of_memory(error):
        return "memory does not suffice: lower batch.size, search.batch_size or the sizes of the model"
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        advice = "choose another folder" if error.errno == errno.EROFS else "free some space"
        return f"cannot write {error.filename or 'a file, or standard output'}: {error.strerror}; {advice}"
    if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename:
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

    ConfigStore.instance().store(name="train_schema", node=with_null_defaults(TrainConfig))
    ConfigStore.instance().store(name="evaluate_schema", node=EvaluateConfig)
    ConfigStore.instance().store(name="serve_schema", node=ServeConfig)


def hydra_main(
    config_name: str, schema: type[Config], *, distributed: bool = False
) -> Callable[[Callable[[Config], None]], Callable[[], None]]:
    """Return a decorator that makes a function of a configuration the main function of a Hydra command line.

    The function is called with a `schema` whose names, types, choices and bounds have been checked, and whose
    `run_dir`, if it has one, is the folder that Hydra chose for the job (in a sweep, one folder per job). `--help`,
    `--cfg job`, `-m` and Hydra's other options work as usual. The root file is `configs/<config_name>.yaml`.

    If `distributed`, torchrun may start several processes for one job; rank 0 makes folders and prints the errors that
    all ranks raise.
    """

    def decorate(function: Callable[[Config], None]) -> Callable[[], None]:
        def main() -> None:
            with user_errors():
                environment = RankEnvironment.of(os.environ) if distributed else RankEnvironment()
            try:
                with user_errors(show=environment.is_rank_zero):
                    sys.argv[1:] = normalize_arguments(sys.argv[1:], schema())
                    prepare_rank(environment)
                    compose_and_run(config_name, schema, function, show_errors=environment.is_rank_zero)
            except SystemExit:
                if not environment.is_rank_zero:
                    time.sleep(EXIT_DELAY)
                raise

        main.__doc__ = function.__doc__
        return main

    return decorate


def prepare_rank(environment: RankEnvironment) -> None:
    """Keep ranks other than 0 from making Hydra's folders, and silence a warning of DistributedDataParallel; raise
    UserError if several processes are asked to run a sweep.
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


def chooses_list(argument: str) -> bool:
    """Return whether an argument gives a list to what may be a group, in which Hydra fails unless all are names."""
    return re.match(r"\+*\w+=\[", argument) is not None


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

    num_started, num_failed = 0, 0

    def job(composed: Any) -> None:
        nonlocal num_started, num_failed
        num_started += 1
        try:
            # Errors exit here: Hydra would print lines of its own first.
            with user_errors(show=show_errors), job_errors():
                function(resolve(composed, schema))
        except SystemExit as exit:
            if exit.code != 2 or HydraConfig.get().mode != RunMode.MULTIRUN:
                raise
            if not HydraConfig.get().launcher._target_.endswith(".BasicLauncher"):  # not here, but in another process
                raise UserError(f"job {HydraConfig.get().job.num} of this sweep failed: see its log") from None
            num_failed += 1

    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise errors instead of printing them
    register_schemas()
    try:
        hydra.main(config_path=str(config_folder()), config_name=config_name, version_base="1.3")(job)()
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        if isinstance(error, TypeError) and not any(map(chooses_list, sys.argv[1:])):
            raise  # a defect
        is_forbidden = isinstance(error, PermissionError)  # mostly the folder of the run, which Hydra makes
        if num_started or isinstance(error, BrokenPipeError) or (resource_message(error) and not is_forbidden):
            raise
        raise composition_error(error, schema()) from error
    if num_failed:
        raise UserError(f"{num_failed} of the {num_started} jobs of this sweep failed: see the errors above")


@contextlib.contextmanager
def job_errors() -> Iterator[None]:
    """If a UserError ends a job, remove the folder that Hydra made for it, unless something has been written there.

    In a sweep the message is prefixed by the job's number and its own overrides.
    """
    from hydra.core.hydra_config import HydraConfig

    try:
        yield
    except UserError as error:
        folder = output_folder()
        if folder != Path.cwd():
            with contextlib.suppress(OSError):
                folder.rmdir()
                if DATE_FOLDER.fullmatch(folder.parent.name):  # also made by Hydra, for the default `run_dir`
                    folder.parent.rmdir()
        if overrides := " ".join(swept_overrides()):
            raise UserError(f"job {HydraConfig.get().job.num} ({overrides}): {error}") from error
        raise


def resolve(composed: Any, schema: type[Config]) -> Config:
    """Return Hydra's composed configuration as a checked dataclass; nothing below uses OmegaConf."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if getattr(OmegaConf.get_type(composed), "__name__", "") != schema.__name__:  # a dict, or of another command
        raise UserError(
            "--config-name names a file without the defaults of this command: to repeat a run, copy its config.yaml to "
            "DIR/experiment/NAME.yaml below a first line `# @package _global_`, then give --config-dir DIR "
            "experiment=NAME run_dir=NEW"
        )
    try:
        config = fill_defaults(OmegaConf.to_object(composed), schema)
    except OmegaConfBaseException as error:
        raise readable_error(error, schema()) from error
    check(config)
    if isinstance(config, TrainConfig):
        if not config.run_dir.strip():
            raise UserError("run_dir is empty: give the folder of the run, or leave it out")
        config.run_dir = str(from_here(output_folder()))
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
    # Overrides that are verbatim on the command line apply to every job. Lowercased: Hydra writes `false` as `False`.
    arguments = {argument.lower() for argument in sys.argv}
    return [override for override in HydraConfig.get().overrides.task if override.lower() not in arguments]


def composition_error(error: Exception, config: Any) -> UserError:
    """Convert a composition error into a one-line UserError."""
    from hydra.errors import MissingConfigException, OverrideParseException

    if isinstance(error, OSError) and error.filename:
        return UserError(f"cannot use {error.filename}: {error.strerror}; choose another folder (run_dir)")
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return unknown(group, name, error.options)
    if isinstance(error, OverrideParseException):
        hint = "write key=value; quote a value that has special characters: 'key=\"value\"'"
        return UserError(f"cannot read the override {error.override!r}: {hint}")
    if isinstance(error, TypeError):  # see `chooses_list`
        return UserError("cannot read the overrides: what is chosen of a group, as in model=luong, is a name")
    if absent := re.match(r"Could not override '(\w+)'", str(error)):  # not of this command; Hydra would have it added
        return value_of_group(absent[1], config)
    readable = readable_error(error, config)
    file = re.match(r"In '(.+?)': ", str(error))
    return UserError(f"in {file[1]}.yaml: {readable}") if file else readable
