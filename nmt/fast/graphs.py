"""Work of a GPU, recorded as a CUDA graph."""

from collections.abc import Callable
from typing import TypeVar, final

import torch

T = TypeVar("T")


@final
class GraphRecorder:
    """Records what a function asks of a GPU, to ask for it again at the cost of one launch instead of hundreds.

    All graphs share one pool of memory, so only one of them may have work under way; and their results are written
    where they were the first time.
    """

    def __init__(self, device: torch.device) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)

    def __call__(self, work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Record, without running it; return the work's result, to be filled by calling the second."""
        graph = torch.cuda.CUDAGraph()
        # Other threads, that of the input pipeline, may go on asking the driver for pinned memory.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            result = work()
        return result, graph.replay
