"""Requests as JSON: read and checked, with a message for everything that can be wrong."""

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from nmt.errors import nearest

MAX_BYTES = 65_536  # of a request
MAX_N_BEST = 20

TYPES = {str: "a string", bool: "true or false", int: "an integer", list: "a list"}
JSON_TYPES = TYPES | {dict: "an object", float: "a number", type(None): "null"}


class TranslationRequest(NamedTuple):
    """A checked request of `/translate` or `/next`."""

    text: str
    run: str = "checkpoint"  # or `compare`
    prefix: str | list[str] = ""  # how the translation begins: text, or names of subwords as in an answer's `pieces`
    n_best: int = 1  # translations to return; of `/next`, words
    saliency: bool = False
    tree: bool = False  # of the search


FIELDS: dict[str, tuple[type, ...]] = {
    "text": (str,), "run": (str,), "prefix": (str, list), "n_best": (int,), "saliency": (bool,), "tree": (bool,)
}  # fmt: skip


async def read_request(request: Request, runs: Collection[str]) -> TranslationRequest:
    """Read a request; raise HTTPException 400, 413, 415 or 499, with a message that says what is wrong."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON, with the header content-type: application/json")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BYTES:
                raise HTTPException(413, f"the request is too large: at most {MAX_BYTES:,} bytes")
    except ClientDisconnect:
        raise HTTPException(499, "the client has gone") from None
    try:
        fields = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the request is not JSON in UTF-8: {error}") from error
    return check_fields(fields, runs)


def check_fields(fields: Any, runs: Collection[str]) -> TranslationRequest:
    """Check a request's JSON; raise HTTPException 400, naming the field, what was given and what is allowed."""
    if not isinstance(fields, dict):
        raise HTTPException(400, f'send an object such as {{"text": "..."}}, not {JSON_TYPES[type(fields)]}')
    for name, value in fields.items():
        if name not in FIELDS:
            raise HTTPException(
                400, f"unknown field {name[:40]!r}: known are {', '.join(FIELDS)}{nearest(name[:40], FIELDS)}"
            )
        if type(value) not in FIELDS[name]:
            allowed = " or ".join(TYPES[kind] for kind in FIELDS[name])
            raise HTTPException(400, f"{name} must be {allowed}, not {JSON_TYPES[type(value)]}")
    if "text" not in fields:
        raise HTTPException(400, "text is missing: the sentence to translate")
    request = TranslationRequest(**fields)
    check_values(request, runs)
    return request


def check_values(request: TranslationRequest, runs: Collection[str]) -> None:
    """Check fields whose types are right; raise HTTPException 400, naming the field."""
    if request.run not in runs:
        raise HTTPException(400, f"run must be one of {', '.join(runs)}, not {request.run[:40]!r}")
    if not 1 <= request.n_best <= MAX_N_BEST:
        raise HTTPException(400, f"n_best must be from 1 to {MAX_N_BEST}, not {request.n_best}")
    if isinstance(request.prefix, list) and not all(isinstance(piece, str) for piece in request.prefix):
        raise HTTPException(400, "prefix must be a string, or a list of subwords, each a string")
    for name, text in (("text", request.text), ("prefix", "".join(request.prefix))):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise HTTPException(400, f"{name} has a lone surrogate, which is not a character")
