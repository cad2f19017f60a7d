"""Limits of the server: how much one address may ask for, how many requests may wait, and one translation at a time."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, final

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

T = TypeVar("T")

BURST = 2.0  # seconds' worth of requests that may come at once
ADDRESSES = 10_000  # remembered at most


@final
class RateLimit:
    """A token bucket for each address: `per_second` requests on average, and twice as many at once."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self.capacity = max(1.0, BURST * per_second)
        self.clock = clock
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when

    def count_request(self, address: str) -> None:
        """Count a request; raise HTTPException 429 if the address has used up its share."""
        now = self.clock()
        left, before = self.buckets.pop(address, (self.capacity, now))
        left = min(self.capacity, left + (now - before) * self.per_second)
        self.buckets[address] = (left - 1.0 if left >= 1.0 else left), now  # a refused request costs nothing
        if len(self.buckets) > ADDRESSES:
            self.buckets.popitem(last=False)
        if left < 1.0:
            limit = f"at most {self.per_second:g} requests a second from one address"
            raise HTTPException(429, f"too many requests: {limit}", {"Retry-After": "1"})


@final
class RequestQueue:
    """Runs one function at a time in a thread, in the order of the requests, of which a bounded number may wait."""

    def __init__(self, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self.waiting = 0
        self.lock = anyio.Lock()
        self.is_ending: Callable[[], bool] = lambda: False  # the server: no further request is answered

    async def run(self, request: Request, function: Callable[..., T], *arguments: Any) -> T:
        """Wait for the request's turn and return function(*arguments); raise HTTPException 503 if too many requests are
        waiting or the server is shutting down, 499 if the client has disconnected meanwhile.
        """
        if self.waiting >= self.max_waiting:
            message = f"busy: {self.waiting} requests are waiting already; try again in a moment"
            raise HTTPException(503, message, {"Retry-After": "1"})
        self.waiting += 1
        try:
            async with self.lock:
                if self.is_ending():
                    raise HTTPException(503, "the server is ending")
                if await request.is_disconnected():
                    raise HTTPException(499, "the client has gone")
                return await run_in_threadpool(function, *arguments)
        finally:
            self.waiting -= 1
