"""The application: a page, its files, and the JSON API."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nmt.errors import UserError
from nmt.serving.limits import RateLimit, RequestQueue
from nmt.serving.requests import read_request
from nmt.serving.served_run import ServedRun, validations
from nmt.view.alignment import asset

METHODS = ("translate", "next")  # of `ServedRun`, each an endpoint
HERE = Path(__file__).parent
FILES = {
    "page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript",
    "alignment.css": "text/css", "alignment.js": "text/javascript",
}  # fmt: skip

# The page takes nothing from elsewhere, and no other page may show it.
POLICY = "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Api:
    """The endpoints; `runs` are the translators by their names, `checkpoint` and perhaps `compare`."""

    def __init__(self, runs: Mapping[str, ServedRun], *, max_waiting: int, requests_per_second: float) -> None:
        self.runs = runs
        self.queue = RequestQueue(max_waiting)
        self.rate_limit = RateLimit(requests_per_second)

    async def file(self, request: Request) -> Response:
        """Return the page, or a file that it loads."""
        name = request.path_params.get("name", "page.html")
        if name in METHODS:
            raise HTTPException(405, f"/{name} takes JSON by POST", {"Allow": "POST"})
        if name not in FILES:
            raise HTTPException(404)
        text = asset(name) if name.startswith("alignment.") else (HERE / name).read_text(encoding="utf-8")
        return Response(text, media_type=FILES[name], headers=HEADERS)

    async def health(self, request: Request) -> Response:
        """Report that the server runs, what it serves, and how many requests wait."""
        runs = {name: run.describe() for name, run in self.runs.items()}
        return JSONResponse({"status": "ok", "waiting": self.queue.waiting, "runs": runs}, headers=HEADERS)

    async def validations(self, request: Request) -> Response:
        """Return the alignments that the validations of a run have left."""
        self.rate_limit.count_request(address(request))
        name = request.query_params.get("run", "checkpoint")
        if name not in self.runs:
            raise HTTPException(400, f"run must be one of {', '.join(self.runs)}")
        records = await run_in_threadpool(validations, self.runs[name].path)
        return JSONResponse({"validations": records}, headers=HEADERS)

    async def answer(self, request: Request, method: str) -> Response:
        """Return what a method of the run, one of `METHODS`, makes of the request."""
        self.rate_limit.count_request(address(request))
        try:
            parsed = await read_request(request, self.runs)
            result = await self.queue.run(request, getattr(self.runs[parsed.run], method), parsed)
        except asyncio.CancelledError:  # the server has been ending for some seconds, and waits no longer
            raise HTTPException(503, "the server is ending") from None
        return JSONResponse(result, headers=HEADERS)


def address(request: Request) -> str:
    """Return the address of the client."""
    return request.client.host if request.client else ""


async def error_response(request: Request, error: Exception) -> Response:
    """Answer an error as JSON, `{"error": message}`."""
    headers: dict[str, str] = dict(HEADERS)
    if isinstance(error, HTTPException):
        status, message = error.status_code, error.detail
        headers |= error.headers or {}
    elif isinstance(error, UserError):
        status, message = 400, str(error)
    else:
        status, message = 500, "an error of the server: its log has the details"
    return JSONResponse({"error": message}, status, headers=headers)


def build_app(api: Api, hosts: list[str]) -> Starlette:
    """Return the application. It accepts only these host names, as protection against DNS rebinding."""
    routes = [
        Route("/", api.file),
        Route("/health", api.health),
        Route("/validations", api.validations),
        *(Route(f"/{name}", partial(api.answer, method=name), methods=["POST"]) for name in METHODS),
        Route("/{name}", api.file),
    ]
    handlers: dict[Any, Any] = {HTTPException: error_response, UserError: error_response, Exception: error_response}
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return Starlette(routes=routes, middleware=[trusted], exception_handlers=handlers)
