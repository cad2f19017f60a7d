"""The cost model of several processes against a ring that is simulated message by message."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarking.processes import BYTES, Link, Update


def simulated_ring(vectors: np.ndarray, link: Link) -> tuple[np.ndarray, float]:
    """Sum the rows over a ring; return what each process then has, and the time.

    Each sends a chunk to its neighbor and waits for one: n - 1 times to add it, n - 1 times to pass on the sums.
    """
    count, length = vectors.shape
    held = vectors.reshape(count, count, length // count).copy()  # [process, chunk, number]
    clocks = np.zeros(count)
    for turn in range(2 * (count - 1)):
        chunks = [(process - turn) % count for process in range(count)]
        messages = [held[process, chunk].copy() for process, chunk in enumerate(chunks)]
        arrivals = clocks + link.delay + BYTES * (length // count) / link.bandwidth
        for process, chunk in enumerate(chunks):
            receiver = (process + 1) % count
            if turn < count - 1:
                held[receiver, chunk] += messages[process]
            else:
                held[receiver, chunk] = messages[process]
            clocks[receiver] = max(clocks[receiver], arrivals[process])
    return held.reshape(count, length), clocks.max()


@pytest.mark.parametrize("processes", [1, 2, 3, 8, 64])
def test_a_simulated_ring_takes_the_time_of_the_formula(processes: int) -> None:
    link = Link(bandwidth=1e6, delay=1e-3)
    vectors = np.random.default_rng(1).integers(-9, 9, (processes, 10 * processes)).astype(float)
    sums, seconds = simulated_ring(vectors, link)
    np.testing.assert_array_equal(sums, np.broadcast_to(vectors.sum(axis=0), sums.shape))
    assert seconds == pytest.approx(link.all_reduce_seconds(10 * processes, processes))


@given(st.floats(1e6, 1e11), st.floats(1e-6, 1e-2), st.integers(2, 64))
def test_a_link_is_found_from_two_times(bandwidth: float, delay: float, processes: int) -> None:
    link = Link(bandwidth, delay)
    many = 10**9
    times = link.all_reduce_seconds(0, processes), link.all_reduce_seconds(many, processes)
    assert Link.of(*times, many, processes) == pytest.approx(link, rel=1e-3)


def test_a_worked_example() -> None:
    """10 million numbers over 1.25 GB/s: of 8 processes 14 messages of 5 MB, 4 ms each, and 14 delays of 0.1 ms."""
    update, link = Update(seconds=0.5, target_tokens=4000.0, parameters=10_000_000), Link(1.25e9, 1e-4)
    one, eight = update.rows(link, [1, 8], corpus_tokens=72e6)
    assert (one["update_ms"], one["target_tokens_per_second"], one["efficiency"]) == (500.0, 8000.0, 1.0)
    assert one["hours"] == 2.5
    assert eight["update_ms"] == pytest.approx(500 + 14 * 4 + 14 * 0.1)
    assert eight["target_tokens_per_second"] == pytest.approx(8 * 4000 / 0.5574)
    assert eight["efficiency"] == pytest.approx(0.5 / 0.5574)
