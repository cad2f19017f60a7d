"""Scratch memory: slices that do not overlap, and a block that grows to what was needed."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.fast.arena import ALIGNMENT, Arena

CPU = torch.device("cpu")
requests = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.sampled_from([torch.float32, torch.float64, torch.bfloat16])),
    min_size=1,
    max_size=8,
)


@given(requests=requests)
def test_slices_do_not_overlap_and_are_aligned(requests):
    arena = Arena(CPU)
    for _ in range(2):  # first beyond the block, then within it
        arena.give_back()
        taken = [arena.take(rows, size, dtype=dtype) for rows, size, dtype in requests]
        for number, tensor in enumerate(taken):
            tensor.fill_(number)
        for number, (tensor, (rows, size, dtype)) in enumerate(zip(taken, requests, strict=True)):
            assert tensor.shape == (rows, size)
            assert tensor.dtype == dtype
            assert (tensor == number).all()
            assert tensor.data_ptr() % ALIGNMENT == 0 or tensor.numel() == 0


def test_a_second_round_of_the_same_requests_fits_the_block():
    arena = Arena(CPU)
    arena.take(100, dtype=torch.float32)
    arena.give_back()
    start = arena.block.data_ptr()
    assert arena.take(100, dtype=torch.float32).data_ptr() == start


def test_a_larger_request_than_any_before_seldom_needs_another_block():
    arena, blocks = Arena(CPU), set()
    for size in range(1_000, 16_000, 100):
        arena.take(size, dtype=torch.float32)
        arena.give_back()
        blocks.add(len(arena.block))
    assert len(blocks) <= 5


def test_a_borrowed_arena_is_not_lent_twice():
    first, second = Arena.borrow(CPU), Arena.borrow(CPU)
    assert first is not second
    first.give_back()
    assert Arena.borrow(CPU) is first


def test_threads_that_borrow_at_once_get_arenas_of_their_own():
    def borrow_and_return(_):
        arena = Arena.borrow(CPU)
        taken = arena.take(10, dtype=torch.float32).fill_(threading.get_ident() % 1000)
        time.sleep(0)  # others may run
        is_own = bool((taken == threading.get_ident() % 1000).all())
        arena.give_back()
        return is_own

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(borrow_and_return, range(2000)))


def test_another_thread_may_take_the_last_arena_between_two_looks(monkeypatch):
    class TakenMeanwhile(list):
        def __bool__(self):
            full = len(self) > 0
            self.clear()
            return full

    monkeypatch.setattr(Arena, "_free", {CPU: TakenMeanwhile([Arena(CPU)])})
    first, second = Arena.borrow(CPU), Arena.borrow(CPU)
    assert first is not second
