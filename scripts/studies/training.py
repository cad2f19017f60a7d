"""A vocabulary, and training with Adam, for the classifiers of the studies."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.text.vocabulary import PAD, UNK

BATCH = 64  # examples
Batch = TypeVar("Batch")
Ids = Int[Tensor, "batch length"]


class WordVocabulary:
    """The lowercased words of the training sentences that occur twice or more; all others are unknown.

    Every sentence begins with the ids `start`; there are at most `max_words` words.
    """

    def __init__(
        self, sentences: Iterable[Iterable[str]], start: Sequence[int] = (), max_words: int | None = None
    ) -> None:
        counts = Counter(word.lower() for words in sentences for word in words)
        frequent = [word for word, count in counts.most_common(max_words) if count > 1]
        self.start = start
        self.ids = {word: number for number, word in enumerate(frequent, start=UNK + 1 + len(start))}

    def __len__(self) -> int:
        return UNK + 1 + len(self.start) + len(self.ids)

    def batch(self, sentences: Iterable[Iterable[str]]) -> Ids:
        """Return padded ids; a sentence that has none has one unknown word."""
        rows = [[*self.start, *(self.ids.get(word.lower(), UNK) for word in words)] for words in sentences]
        tensors = [torch.tensor(row or [UNK]) for row in rows]
        return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


def minimize(
    model: nn.Module,
    loss_of: Callable[[Batch], Tensor],
    shuffled_batches: Callable[[], Sequence[Batch]],
    learning_rate: Callable[[float], float],
    epochs: int,
    report: Callable[[str], None],
    max_norm: float = math.inf,
) -> dict[str, float]:
    """Minimize the loss of batches with Adam; return the cost: epochs, seconds and seconds of the CPU.

    Args:
        model: what is trained.
        loss_of: returns the loss of a batch.
        shuffled_batches: returns the batches of an epoch.
        learning_rate: returns the learning rate at a remaining fraction of the training, 1 to 0.
        epochs: passes over the batches.
        report: called with a line on the progress, at the end of an epoch and every 5 seconds.
        max_norm: the norm that gradients are clipped to.
    """
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    wall, cpu = time.monotonic(), time.process_time()
    last_report = wall
    for epoch in range(1, epochs + 1):
        losses: list[float] = []
        batches = shuffled_batches()
        for batch in batches:
            done = (epoch - 1) * len(batches) + len(losses)
            optimizer.param_groups[0]["lr"] = learning_rate(1 - done / (epochs * len(batches)))
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            losses.append(loss.item())
            if time.monotonic() - last_report > 5 or len(losses) == len(batches):
                last_report = time.monotonic()
                report(f"epoch {epoch} of {epochs}, batch {len(losses)} of {len(batches)}, loss {np.mean(losses):.3f}")
    return {"epochs": epochs, "seconds": time.monotonic() - wall, "cpu_seconds": time.process_time() - cpu}
