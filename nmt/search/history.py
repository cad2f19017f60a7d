"""Back pointers: what a search writes down at each step, and how hypotheses are read off it at the end."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.search.hypothesis import Hypothesis

IntArray = npt.NDArray[np.integer]
FloatArray = npt.NDArray[np.floating]


class Ends(NamedTuple):
    """The best ended hypotheses of each sentence, best first; a score of -inf marks an empty place.

    A hypothesis is told by the step at which it ended and by its rank among the candidates of that step.
    """

    scores: Float[Tensor, "batch n"]
    steps: Int[Tensor, "batch n"]
    ranks: Int[Tensor, "batch n"]

    @classmethod
    def none(cls, batch: int, size: int, device: torch.device) -> "Ends":
        """Nothing has ended yet."""
        zeros = torch.zeros(batch, size, dtype=torch.long, device=device)
        return cls(torch.full((batch, size), float("-inf"), device=device), zeros, zeros)

    def add(self, scores: Float[Tensor, "batch ranks"], step: int) -> "Ends":
        """Let in the candidates of a step that ended (others: -inf) if they are better; the earlier wins a tie."""
        size = self.scores.shape[1]
        ranks = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape)
        best, order = torch.cat([self.scores, scores], 1).sort(dim=1, descending=True, stable=True)
        order = order[:, :size]
        steps = torch.cat([self.steps, torch.full_like(ranks, step)], 1).gather(1, order)
        return Ends(best[:, :size], steps, torch.cat([self.ranks, ranks], 1).gather(1, order))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Ends":
        """Go on with some of the sentences."""
        return Ends(*(values[sentences] for values in self))


class Candidates(NamedTuple):
    """The best continuations found at a step, best first, and which of them go on.

    Candidate r of a sentence is hypothesis `beams[r]` of this step's input, followed by `tokens[r]`; the next
    step's input is the candidates `chosen`.
    """

    beams: Int[Tensor, "batch ranks"]
    tokens: Int[Tensor, "batch ranks"]
    log_probs: Float[Tensor, "batch ranks"]
    chosen: Int[Tensor, "batch beam"]


@dataclass
class _Segment:
    """Successive steps of the same sentences."""

    sentences: Int[Tensor, " batch"]
    candidates: list[Candidates] = field(default_factory=list)
    weights: list[Float[Tensor, "batch beam source"]] = field(default_factory=list)
    ends: Ends | None = None


class _Paths(NamedTuple):
    """What each hypothesis was at each step, [step, sentence, n]; meaningless after the step of its end."""

    beams: IntArray
    tokens: IntArray
    log_probs: FloatArray


class History:
    """Everything a search wrote down, in segments between which sentences left the batch.

    Steps are only appended, and nothing is copied when hypotheses overtake each other or sentences leave; the
    attention of the winners alone is read off at the end.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        self._batch = batch
        self._segments = [_Segment(torch.arange(batch, device=device))]

    def append(self, candidates: Candidates, weights: Float[Tensor, "batch beam source"]) -> None:
        """Write down a step: its candidates, and the attention that its input hypotheses paid."""
        self._segments[-1].candidates.append(candidates)
        self._segments[-1].weights.append(weights)

    def leave(self, ends: Ends, kept: Int[Tensor, " kept"]) -> None:
        """Go on with the sentences `kept`; `ends` is what all present ones found so far."""
        self._segments[-1].ends = ends
        self._segments.append(_Segment(self._segments[-1].sentences[kept]))

    def hypotheses(
        self, ends: Ends, *, n_best: int, eos: int, source_lengths: Int[Tensor, " batch"]
    ) -> list[list[Hypothesis]]:
        """Read off the n best hypotheses of each sentence; `ends` is what those still present found."""
        self._segments[-1].ends = ends
        scores, steps, ranks = self._read_ends(n_best)
        paths = self._trace(steps, ranks)
        weights = self._read_weights(paths.beams)
        results: list[list[Hypothesis]] = [[] for _ in range(self._batch)]
        for b, n in np.argwhere(scores > -np.inf):
            last = steps[b, n]
            tokens = paths.tokens[: last + 1, b, n].tolist()
            hypothesis = Hypothesis(
                tokens=tokens[:-1] if tokens[-1] == eos else tokens,
                log_prob=float(paths.log_probs[last, b, n]),
                score=float(scores[b, n]),
                weights=weights[: last + 1, b, n, : int(source_lengths[b])].copy(),
            )
            results[b].append(hypothesis)
        assert all(results), "no hypothesis is possible: are the model's probabilities numbers?"
        return results

    def _read_ends(self, n_best: int) -> tuple[FloatArray, IntArray, IntArray]:
        scores = np.full((self._batch, n_best), -np.inf)
        steps, ranks = np.zeros((2, self._batch, n_best), np.int64)
        for segment in self._segments:
            # A sentence that went on is in a later segment too, which has the last word.
            assert segment.ends is not None
            rows = segment.sentences.cpu().numpy()
            for table, values in zip((scores, steps, ranks), segment.ends, strict=True):
                table[rows] = values[:, :n_best].cpu().numpy()
        return scores, steps, ranks

    def _trace(self, last_steps: IntArray, last_ranks: IntArray) -> _Paths:
        """Follow hypotheses from their ends back to the beginning, all of them at once."""
        beams, tokens, log_probs, chosen = (self._read(name) for name in Candidates._fields)
        shape = (len(beams), *last_steps.shape)
        paths = _Paths(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape))
        beam = np.zeros_like(last_steps)
        for step in reversed(range(len(beams))):
            rank = np.take_along_axis(chosen[step], beam, 1)
            rank = np.where(last_steps == step, last_ranks, rank)
            beam = np.take_along_axis(beams[step], rank, 1)
            paths.beams[step] = beam
            paths.tokens[step] = np.take_along_axis(tokens[step], rank, 1)
            paths.log_probs[step] = np.take_along_axis(log_probs[step], rank, 1)
        return paths

    def _read(self, name: str) -> npt.NDArray[Any]:
        """Collect a field of the candidates, [step, sentence, rank]; 0 after a sentence has left."""
        parts = [
            torch.stack([getattr(candidates, name) for candidates in segment.candidates]).cpu().numpy()
            for segment in self._segments
            if segment.candidates
        ]
        return self._place(parts)

    def _read_weights(self, beams: IntArray) -> npt.NDArray[np.float32]:
        """Collect the attention of the hypotheses that have these `beams`."""
        parts, start = [], 0
        for segment in self._segments:
            own = torch.from_numpy(beams[start : start + len(segment.weights)]).to(segment.sentences.device)
            picked = [
                step.gather(1, beam[segment.sentences, :, None].expand(-1, -1, step.shape[-1]))
                for step, beam in zip(segment.weights, own, strict=True)
            ]
            if picked:
                parts.append(torch.stack(picked).float().cpu().numpy())
            start += len(picked)
        return self._place(parts)

    def _place(self, parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Lay the segments one after the other on the time axis, every sentence in its own row."""
        rows = [segment.sentences.cpu().numpy() for segment in self._segments if segment.candidates]
        shape = (sum(len(part) for part in parts), self._batch, *parts[0].shape[2:])
        whole = np.zeros(shape, parts[0].dtype)
        start = 0
        for part, row in zip(parts, rows, strict=True):
            whole[start : start + len(part)][:, row] = part
            start += len(part)
        return whole
