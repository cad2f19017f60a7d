"""Models of the Hugging Face hub: `hub:USER/NAME` and `hub:USER/NAME@REVISION`, fetched by its client and uploaded.

The client, `huggingface_hub`, is imported where it is used: most commands read a folder. It takes the address of the
hub from HF_ENDPOINT, the token from HF_TOKEN or `hf auth login`, and its cache is HF_HUB_CACHE.
"""

import contextlib
import errno
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from nmt.errors import UNWRITABLE, UserError, one_line

SCHEME = "hub:"
NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
TIMEOUT = 10  # seconds, for the first request: the client itself would wait for ever
LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


class Address(NamedTuple):
    """A model of the hub: USER/NAME, at a branch, tag or commit; without one at the default branch."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_address(path: str | Path) -> bool:
    """Return whether a path is the address of a model of the hub."""
    return str(path).startswith(SCHEME)


class UnreachableError(Exception):
    """The hub cannot be reached; the message says why."""


def parse_address(text: str) -> Address:
    """Return the parts of `[hub:]USER/NAME[@REVISION]`; raise UserError for another form."""
    name, at, revision = text.removeprefix(SCHEME).partition("@")
    if not NAME.fullmatch(name) or (at and not revision):
        raise UserError(f"{text} is no model of the hub: write hub:USER/NAME, or hub:USER/NAME@REVISION")
    return Address(name, revision or None)


def results_folder(text: str) -> Path:
    """Return the folder for results computed with a model of the hub, outside the client's cache."""
    name, revision = parse_address(text)
    return Path("outputs", "hub", f"{name}@{revision.replace('/', '_')}" if revision else name)


def fetch(address: Address, names: Sequence[str]) -> Path:
    """Download the named files of a model, and nothing else; return their folder in the client's cache.

    Cached files are not downloaded again. If the hub cannot be reached, the files downloaded last are used, and a
    notice says so; after a download that was interrupted they are those of before. Raises UserError if there is no such
    model or revision, it may not be read, or neither the hub can be reached nor the cache has it.
    """
    from huggingface_hub import snapshot_download

    with hub_errors(address), quiet():
        try:
            commit = announce(address, names)
        except UnreachableError as failure:
            return cached_snapshot(address, names, failure)
        # By its commit first: a branch's name in the cache is moved before the download, which may be interrupted.
        snapshot_download(address.name, revision=commit, allow_patterns=[*names])
        return Path(snapshot_download(address.name, revision=address.revision, allow_patterns=[*names]))


def cached_snapshot(address: Address, names: Sequence[str], failure: UnreachableError) -> Path:
    """Return the folder of the files that were downloaded last, with a notice; raise UserError if there are none."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot = snapshot_download(
            address.name, revision=address.revision, allow_patterns=[*names], local_files_only=True
        )
    except LocalEntryNotFoundError:
        advice = "unset it" if constants.HF_HUB_OFFLINE else "check the network, the proxy and HF_ENDPOINT"
        raise UserError(
            f"{failure}, and the cache {constants.HF_HUB_CACHE} does not hold {address}: {advice}"
        ) from None
    if not constants.HF_HUB_OFFLINE:
        print(f"notice: {failure}; {address} is what was downloaded last", file=sys.stderr)
    return Path(snapshot)


def announce(address: Address, names: Sequence[str]) -> str | None:
    """Return the commit, and print the size of the download, if there is one; raise UnreachableError, or the client's
    errors.
    """
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        info = HfApi().model_info(address.name, revision=address.revision, files_metadata=True, timeout=TIMEOUT)
    except HFValidationError:
        raise
    except Exception as error:  # which HTTP library makes the request depends on the client's version
        if isinstance(error, HfHubHTTPError) and status_of(error) < 500:
            raise
        if constants.HF_HUB_OFFLINE:
            raise UnreachableError("HF_HUB_OFFLINE keeps from asking the hub") from error
        raise UnreachableError(f"cannot reach {constants.ENDPOINT} ({one_line(error)})") from error
    files = [each for each in info.siblings or () if each.rfilename in names]
    cached = [try_to_load_from_cache(address.name, each.rfilename, revision=info.sha) for each in files]
    sizes = [each.size or 0 for each, path in zip(files, cached, strict=True) if not isinstance(path, str)]
    if sizes:
        print(f"fetching {sum(sizes) / 1e6:.1f} MB of {address}", file=sys.stderr)
    return info.sha


def upload(files: Sequence[Path], address: Address, known: Iterable[str], *, private: bool, message: str) -> str:
    """Upload files as one commit to a model of the hub, which is made if there is none; return its web address, or
    raise UserError if there is no token, it may not write there, or the hub cannot be reached or refuses a file.

    Args:
        files: under their names they replace those of the model.
        address: its revision is a branch, made from the default one if there is none.
        known: names of files that are deleted from the model if they are not among `files`.
        private: whether a model that is made can be read by its owner only.
        message: of the commit.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token

    api = HfApi()
    with hub_errors(address), quiet():
        if get_token() is None:
            raise UserError(f"cannot write {address} without a token: {LOGIN} to one that may write")
        make(api, address, private=private)
        existing = set(api.list_repo_files(address.name, revision=address.revision))
        stale = (set(known) & existing) - {each.name for each in files}
        operations: list[Any] = [CommitOperationAdd(path_in_repo=each.name, path_or_fileobj=each) for each in files]
        operations += [CommitOperationDelete(path_in_repo=name) for name in sorted(stale)]
        api.create_commit(address.name, operations, commit_message=message, revision=address.revision)
    branch = f"/tree/{quote(address.revision, safe='')}" if address.revision else ""
    return f"{constants.ENDPOINT}/{address.name}{branch}"


def make(api: Any, address: Address, *, private: bool) -> None:
    """Create the model and its branch if they are missing; raise UserError if `private` and the model is public."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.model_info(address.name, timeout=TIMEOUT)
    except RepositoryNotFoundError:
        api.create_repo(address.name, private=private or None)
    else:
        if private and not info.private:
            raise UserError(f"{address} exists and is public: leave --private out, or give another name")
    if address.revision:
        api.create_branch(address.name, branch=address.revision, exist_ok=True)


@contextlib.contextmanager
def hub_errors(address: Address) -> Iterator[None]:
    """Turn errors of the client, of its HTTP library and of its cache into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(failure_of(error, address)) from error


def failure_of(error: Exception, address: Address) -> str:
    """Return what is wrong and what to do."""
    from huggingface_hub import constants, errors, get_token

    where = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):
        return f"{address} is gated: accept its terms at {where}/{address.name}, then {LOGIN}"
    if isinstance(error, errors.RepositoryNotFoundError):
        reason = "your token may not read it" if get_token() else f"it is private ({LOGIN})"
        return f"{where} has no model {address.name}, or {reason}: check the name"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{address.name} has no revision {address.revision!r}: give a branch, a tag or a commit, or leave it out"
    if isinstance(error, errors.HfHubHTTPError) and status_of(error) in (401, 403):
        reason = getattr(error, "server_message", None) or one_line(error)
        return f"{where} does not let your token do this with {address}: {reason}; {LOGIN} to another"
    if isinstance(error, OSError) and error.errno in (*UNWRITABLE, errno.EACCES):
        place = error.filename or constants.HF_HUB_CACHE
        return f"cannot write {place}: {error.strerror}; free some space, or set HF_HUB_CACHE to another folder"
    reason = one_line(error)
    hint = "; try with HF_HUB_DISABLE_XET=1" if "xet-" in reason else ""
    return f"cannot transfer {address} ({where}): {reason}{hint}"


def status_of(error: Any) -> int:
    """Return the HTTP status of an error of the client; 0 if there was no answer."""
    return getattr(getattr(error, "response", None), "status_code", 0)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the client's warnings, and its progress bars where standard error is not a terminal."""
    from huggingface_hub import utils

    from nmt.data.tables import progress_on_terminals_only

    level = utils.logging.get_verbosity()
    utils.logging.set_verbosity(logging.ERROR)
    try:
        with progress_on_terminals_only(utils):
            yield
    finally:
        utils.logging.set_verbosity(level)
