"""Back-pointers: the candidates of each step of a search, and how hypotheses are read from them at the end."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.errors import UserError
from nmt.search.hypothesis import EOS, INFINITY, Array, Hypothesis


class Finished(NamedTuple):
    """The best finished hypotheses of each sentence, best first; a score of -inf marks an empty place.

    A hypothesis is identified by the step at which it was finished and its rank among the candidates of that step.
    """

    scores: Float[Tensor, "batch n"]
    steps: Int[Tensor, "batch n"]
    ranks: Int[Tensor, "batch n"]

    @classmethod
    def empty(cls, batch: int, size: int, device: torch.device) -> "Finished":
        """Return a table of empty places. Scores are fp64, so that scores of any precision are stored exactly."""
        zeros = torch.zeros(batch, size, dtype=torch.long, device=device)
        return cls(torch.full((batch, size), -INFINITY, dtype=torch.double, device=device), zeros, zeros.clone())

    def add(self, scores: Float[Tensor, "batch ranks"], step: int) -> "Finished":
        """Return the best of these and of a step's candidates (not finished: -inf); in a tie the earlier is better."""
        size = self.scores.shape[1]
        ranks = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape)
        best, order = torch.cat([self.scores, scores], 1).sort(dim=1, descending=True, stable=True)
        order = order[:, :size]
        steps = torch.cat([self.steps, torch.full_like(ranks, step)], 1).gather(1, order)
        return Finished(best[:, :size], steps, torch.cat([self.ranks, ranks], 1).gather(1, order))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Finished":
        """Return those of some of the sentences."""
        return Finished(*(values[sentences] for values in self))


class Candidates(NamedTuple):
    """The best continuations at a step, best first, and which of them form the next beam.

    Candidate r of a sentence extends hypothesis `extended[r]` of the step's input by `tokens[r]`, to log-probability
    `log_probs[r]`; the input of the next step are the candidates `chosen`.
    """

    extended: Int[Tensor, "batch ranks"]
    tokens: Int[Tensor, "batch ranks"]
    log_probs: Float[Tensor, "batch ranks"]
    chosen: Int[Tensor, "batch beam"]

    @property
    def parents(self) -> Int[Tensor, "batch beam"]:
        """The hypotheses of the step's input that the chosen candidates extend."""
        return self.extended.gather(1, self.chosen)


class _Step(NamedTuple):
    sentences: Int[Tensor, " batch"]  # which sentences were still searched
    candidates: Candidates
    weights: Float[Tensor, "batch beam source"]


class History:
    """All steps of a search. Nothing is copied when hypotheses overtake each other or sentences are done."""

    def __init__(self, batch: int, num_finished: int, device: torch.device) -> None:
        self._steps: list[_Step] = []
        self._sentences = torch.arange(batch, device=device)
        self._finished = Finished.empty(batch, num_finished, device)

    def append(self, candidates: Candidates, weights: Float[Tensor, "batch beam source"]) -> None:
        """Add a step: its candidates, and the attention of the hypotheses that they extend."""
        self._steps.append(_Step(self._sentences, candidates, weights))

    def keep(self, sentences: Int[Tensor, " kept"], finished: Finished) -> None:
        """Continue with some of the sentences; `finished` has the finished hypotheses of all that were searched."""
        for table, values in zip(self._finished, finished, strict=True):
            table[self._sentences] = values
        self._sentences = self._sentences[sentences]

    def hypotheses(
        self, finished: Finished, *, n_best: int, source_lengths: Int[Tensor, " batch"]
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each sentence; `finished` are those of the sentences searched to the end."""
        self.keep(self._sentences[:0], finished)
        scores, steps, ranks = (table[:, :n_best].cpu().numpy() for table in self._finished)
        extended, all_tokens, log_probs = self._trace(steps, ranks)
        weights = self._weights(extended)
        results: list[list[Hypothesis]] = [[] for _ in scores]
        for b, n in np.argwhere(scores > -np.inf):
            last = steps[b, n]
            tokens = all_tokens[: last + 1, b, n].tolist()
            hypothesis = Hypothesis(
                tokens=tokens[:-1] if tokens[-1] == EOS else tokens,
                log_prob=float(log_probs[last, b, n]),
                score=float(scores[b, n]),
                weights=weights[: last + 1, b, n, : int(source_lengths[b])].copy(),
            )
            results[b].append(hypothesis)
        if not all(results):
            raise UserError("the model's probabilities are not numbers, its training has diverged: lower learning_rate")
        return results

    def _trace(self, last_steps: Int[Array, "batch n"], last_ranks: Int[Array, "batch n"]) -> list[Array]:
        """Follow the back-pointers of all hypotheses at once, from their ends to the beginning.

        Returns:
            the hypotheses extended, the tokens and the log-probabilities so far, each [step, batch, n]; arbitrary
            after a hypothesis' end.
        """
        extended, tokens, log_probs, chosen = (
            self._table([getattr(step.candidates, name) for step in self._steps]) for name in Candidates._fields
        )
        tables = (extended, tokens, log_probs)
        paths = [np.empty((len(chosen), *last_steps.shape), table.dtype) for table in tables]
        beam = np.zeros_like(last_steps)
        for step in reversed(range(len(chosen))):
            rank = np.where(last_steps == step, last_ranks, np.take_along_axis(chosen[step], beam, 1))
            for path, table in zip(paths, tables, strict=True):
                path[step] = np.take_along_axis(table[step], rank, 1)
            beam = paths[0][step]
        return paths

    def _weights(self, extended: Int[Array, "step batch n"]) -> Float[Array, "step batch n source"]:
        """Return the attention of the hypotheses on these paths."""
        indices = torch.from_numpy(extended).to(self._sentences.device)
        rows = [
            step.weights.gather(1, index[step.sentences, :, None].expand(-1, -1, step.weights.shape[2])).float()
            for step, index in zip(self._steps, indices, strict=True)
        ]
        return self._table(rows)

    def _table(self, rows: Sequence[Tensor]) -> Any:
        """Return [step, batch, ...] from one tensor [searched, ...] per step, with 0 for sentences that were done."""
        table = rows[0].new_zeros(len(rows), len(self._finished.scores), *rows[0].shape[1:])
        for values, step, row in zip(table, self._steps, rows, strict=True):
            values[step.sentences] = row
        return table.cpu().numpy()
