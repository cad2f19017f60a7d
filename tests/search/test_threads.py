"""Work on several items at once: as `map`, whatever the number of threads."""

import threading
import time

import pytest
import torch

from nmt.search.threads import map_in_threads


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
@pytest.mark.usefixtures("four_threads")
def test_results_are_in_order_and_torchs_threads_are_divided(count):
    found = list(map_in_threads(lambda item: (item, torch.get_num_threads()), range(count)))
    assert found == [(item, 4 // max(1, min(4, count))) for item in range(count)]
    assert torch.get_num_threads() == 4
    of_another = []
    thread = threading.Thread(target=lambda: of_another.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert of_another == [4]


@pytest.mark.usefixtures("four_threads")
def test_items_are_worked_on_at_once():
    together = threading.Barrier(4, timeout=60)
    assert sorted(map_in_threads(lambda item: together.wait(), range(4))) == [0, 1, 2, 3]


class Slow:
    """Remembers what it began; fails where asked to."""

    def __init__(self, *, fails):
        self.begun, self.fails = [], fails

    def __call__(self, item):
        self.begun.append(item)
        time.sleep(0.02)
        if self.fails:
            raise ValueError(item)


@pytest.mark.usefixtures("four_threads")
def test_an_error_ends_it_and_what_has_not_begun_is_left():
    work = Slow(fails=True)
    with pytest.raises(ValueError, match="0"):
        list(map_in_threads(work, range(1000)))
    assert torch.get_num_threads() == 4
    assert len(work.begun) < 1000


@pytest.mark.usefixtures("four_threads")
def test_who_stops_reading_stops_the_work():
    work = Slow(fails=False)
    results = map_in_threads(work, range(1000))
    next(results)
    results.close()
    assert len(work.begun) < 1000
    assert torch.get_num_threads() == 4
