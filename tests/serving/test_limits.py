import anyio
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from nmt.serving import limits
from nmt.serving.limits import RateLimit, RequestQueue


def allowed(limit: RateLimit, address: str, times: int) -> int:
    """How many of so many requests are let through."""
    passed = 0
    for _ in range(times):
        try:
            limit.count_request(address)
        except HTTPException:
            continue
        passed += 1
    return passed


def test_an_address_has_a_burst_and_then_its_rate() -> None:
    now = 100.0
    limit = RateLimit(5, lambda: now)
    assert allowed(limit, "a", 30) == 10
    with pytest.raises(HTTPException, match="429: too many requests: at most 5 requests a second") as refused:
        limit.count_request("a")
    assert refused.value.headers == {"Retry-After": "1"}
    assert allowed(limit, "b", 30) == 10  # another address has its own share
    now += 1.0
    assert allowed(limit, "a", 30) == 5
    now += 1000.0
    assert allowed(limit, "a", 30) == 10


def test_a_slow_rate_lets_one_through() -> None:
    now = 0.0
    limit = RateLimit(0.1, lambda: now)
    assert allowed(limit, "a", 3) == 1
    now += 10.0
    assert allowed(limit, "a", 3) == 1


def test_an_address_that_asks_too_often_still_has_its_rate() -> None:
    now = 0.0
    limit = RateLimit(2, lambda: now)
    passed = 0
    for _ in range(100):  # ten a second, for ten seconds
        passed += allowed(limit, "a", 1)
        now += 0.1
    assert 22 <= passed <= 24  # a burst of four, and two a second


def test_addresses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADDRESSES", 3)
    limit = RateLimit(1)
    for number in range(10):
        limit.count_request(str(number))
    assert len(limit.buckets) == 3


def request(*, gone: bool = False) -> Request:
    async def receive() -> dict[str, str]:
        if not gone:
            await anyio.sleep_forever()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "headers": []}, receive)


def test_one_at_a_time_and_no_more_than_so_many_wait() -> None:
    running, most, answers = 0, 0, []

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        anyio.from_thread.run(anyio.sleep, 0.01)
        running -= 1

    async def ask(queue: RequestQueue) -> None:
        try:
            await queue.run(request(), work)
            answers.append(200)
        except HTTPException as error:
            answers.append(error.status_code)

    async def main() -> None:
        queue = RequestQueue(4)
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(ask, queue)
        assert queue.waiting == 0

    anyio.run(main)
    assert (most, sorted(answers)) == (1, [200] * 4 + [503] * 6)


def test_nothing_is_done_for_who_has_gone() -> None:
    async def main() -> None:
        queue = RequestQueue(1)
        with pytest.raises(HTTPException, match="gone"):
            await queue.run(request(gone=True), lambda: pytest.fail("it ran"))
        assert queue.waiting == 0

    anyio.run(main)


def test_an_error_frees_the_turn() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        queue = RequestQueue(1)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await queue.run(request(), fail)

    anyio.run(main)
