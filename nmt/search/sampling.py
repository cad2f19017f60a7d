"""Sampled translations: every token is drawn from the model's distribution, tempered and truncated.

    P(v) = p(v)^(1/T) / sum_{w in K} p(w)^(1/T) for v in K, else 0

T is the temperature. K holds all tokens that may be produced; with `top_k` the k most probable (Fan et al., 2018); with
`top_p` the fewest, most probable first, that have at least this share of p^(1/T) (Holtzman et al., 2020); with both
the latter of the former. Draws use the Gumbel-max trick (Maddison et al., 2014)

    v = argmax over K of log p(v) + T g_v,    g_v = -log e_v,    e_v standard exponential,

so that T = 0 is greedy search. The noise is a function of the seed, the sentence (its ids), the number of the sample
and the step. Hence so is the sample, up to the rounding of log p: it does not depend on the batch, on the order of
sentences or on how many samples are drawn, and equal sentences have equal samples.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.history import Candidates, Finished, History
from nmt.search.hypothesis import (
    BOS,
    EOS,
    INFINITY,
    UNK,
    Hypothesis,
    S,
    StepModel,
    forbidden_tokens,
    sentences_to_keep,
    steps_between_checks,
)

FIRST_SIZE, GROWTH = 32, 8  # candidates for the nucleus at first, and their growth: sorting all tokens is far slower


@torch.no_grad()
def sample(
    model: StepModel[S],
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    *,
    num_samples: int,
    max_lengths: Int[Tensor, " batch"],
    seed: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    length_penalty: float = 0.0,
    unk: int | None = UNK,
) -> list[list[Hypothesis]]:
    """Return samples of the translations of each sentence, in the order of drawing; they may be equal.

    Their log-probabilities are the model's, without temperature and truncation; a score is log p / length^alpha.

    `seed` (of the noise) and `temperature` (T) are at least 0, `top_k` at least 1, `top_p` above 0 and at most 1, with
    None for all tokens. The other arguments are those of `beam_search`.
    """
    assert len(source) > 0
    assert int(max_lengths.min()) >= 1
    forbidden, check_every = forbidden_tokens(unk, source.device), steps_between_checks(source.device)
    sampler = TokenSampler(temperature, top_k, top_p)
    noise = GumbelNoise.of(seed, source, source_lengths, num_samples if temperature else 0)
    history = History(len(source), num_samples, source.device)
    samples = Samples.initial(max_lengths.to(source.device), num_samples)
    state = model.start(source, source_mask, source_lengths)
    for step in range(int(max_lengths.max())):
        output = model.step(samples.tokens if step else samples.tokens[:, :1], state)  # at first all are equal
        state = output.state if step else output.state.select(torch.zeros_like(samples.tokens))
        log_probs = output.log_probs.index_fill_(2, forbidden, -INFINITY).expand(-1, num_samples, -1)
        tokens = sampler.draw(log_probs, noise)
        samples = samples.extend(tokens, log_probs.gather(2, tokens[:, :, None])[:, :, 0], step, length_penalty)
        numbers = samples.finished.ranks
        history.append(
            Candidates(numbers, tokens, samples.log_probs, numbers), output.weights.expand(-1, num_samples, -1)
        )
        if (step + 1) % check_every == 0:
            kept = sentences_to_keep(samples.is_running(), len(source))
            if len(kept) == 0:
                break
            if len(kept) < len(tokens):
                history.keep(kept, samples.finished)
                samples, state, noise = samples.keep(kept), state.keep(kept), noise.keep(kept)
    return history.hypotheses(samples.finished, n_best=num_samples, source_lengths=source_lengths)


class Samples(NamedTuple):
    """The samples of each sentence so far.

    Attributes:
        tokens: the last token of each.
        log_probs: log-probability of each, in fp64; arbitrary after its end.
        finished: score and last step of each that is finished; `ranks` number the samples of a sentence.
        max_lengths: most tokens of a sample, including eos.
    """

    tokens: Int[Tensor, "batch n"]
    log_probs: Float[Tensor, "batch n"]
    finished: Finished
    max_lengths: Int[Tensor, " batch"]

    @classmethod
    def initial(cls, max_lengths: Int[Tensor, " batch"], num_samples: int) -> "Samples":
        """Return samples without tokens."""
        shape, device = (len(max_lengths), num_samples), max_lengths.device
        numbers = torch.arange(num_samples, device=device).expand(shape)
        finished = Finished.empty(*shape, device)._replace(ranks=numbers)
        return cls(torch.full_like(numbers, BOS), torch.zeros_like(finished.scores), finished, max_lengths)

    def extend(
        self,
        tokens: Int[Tensor, "batch n"],
        log_probs: Float[Tensor, "batch n"],
        step: int,
        length_penalty: float,
    ) -> "Samples":
        """Append a token to each; those that end now are finished."""
        total = self.log_probs + log_probs
        is_end = (tokens == EOS) | (self.max_lengths == step + 1)[:, None]
        is_last = is_end & (self.finished.scores == -INFINITY)
        scores = torch.where(is_last, total / (step + 1) ** length_penalty, self.finished.scores)
        steps = torch.where(is_last, step, self.finished.steps)
        return Samples(tokens, total, Finished(scores, steps, self.finished.ranks), self.max_lengths)

    def is_running(self) -> Bool[Tensor, " batch"]:
        """Tell which sentences have a sample that is not finished."""
        return (self.finished.scores == -INFINITY).any(1)

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Samples":
        """Return those of some of the sentences."""
        finished, limits = self.finished.keep(sentences), self.max_lengths[sentences]
        return Samples(self.tokens[sentences], self.log_probs[sentences], finished, limits)


class GumbelNoise(NamedTuple):
    """Gumbel noise for each sample of each sentence, from a generator of its own; on a GPU the same as on a CPU."""

    generators: list[list[np.random.Generator]]
    device: torch.device

    @classmethod
    def of(
        cls, seed: int, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"], num_samples: int
    ) -> "GumbelNoise":
        """Return the noise of each sentence's samples."""
        sentences = [row[:length] for row, length in zip(source.tolist(), source_lengths.tolist(), strict=True)]
        generators = [[np.random.default_rng([seed, n, *ids]) for n in range(num_samples)] for ids in sentences]
        return cls(generators, source.device)

    def draw(self, vocab: int) -> Float[Tensor, "batch n vocab"]:
        """Return the noise of the next step, fp32."""
        values = np.empty((len(self.generators), len(self.generators[0]), vocab))
        for rows, generators in zip(values, self.generators, strict=True):
            for row, generator in zip(rows, generators, strict=True):
                # In fp64: in fp32 one number in 2^23 would be 0, and the token chosen however improbable it is.
                generator.standard_exponential(out=row)
        return torch.from_numpy(values).float().log_().neg_().to(self.device)

    def keep(self, sentences: Int[Tensor, " kept"]) -> "GumbelNoise":
        """Return the noise of some of the sentences."""
        return GumbelNoise([self.generators[row] for row in sentences.tolist()], self.device)


class TokenSampler(NamedTuple):
    """Draws tokens; the attributes are the arguments of `sample`."""

    temperature: float
    top_k: int | None
    top_p: float | None

    def draw(self, log_probs: Float[Tensor, "batch n vocab"], noise: GumbelNoise) -> Int[Tensor, "batch n"]:
        """Draw a token for each sample; -inf forbids."""
        if self.temperature == 0:
            return log_probs.argmax(dim=2)
        perturbed = log_probs + self.temperature * noise.draw(log_probs.shape[2])
        if self.top_k is None and self.top_p is None:
            return perturbed.argmax(dim=2)
        tokens = self.draw_truncated(log_probs.flatten(0, 1), perturbed.flatten(0, 1), self.top_k or FIRST_SIZE)
        return tokens.view(log_probs.shape[:2])

    def draw_truncated(
        self, log_probs: Float[Tensor, "rows vocab"], perturbed: Float[Tensor, "rows vocab"], size: int
    ) -> Int[Tensor, " rows"]:
        """Return the argmax over K of `perturbed`, looking for K among the `size` most probable tokens at first."""
        candidates, is_kept, is_whole = self.truncation(log_probs, min(size, log_probs.shape[1]))
        best = perturbed.gather(1, candidates).where(is_kept, -INFINITY).argmax(dim=1, keepdim=True)
        tokens = candidates.gather(1, best)[:, 0]
        others = (~is_whole).nonzero()[:, 0]
        if len(others):
            tokens[others] = self.draw_truncated(log_probs[others], perturbed[others], GROWTH * size)
        return tokens

    def truncation(
        self, log_probs: Float[Tensor, "rows vocab"], size: int
    ) -> tuple[Int[Tensor, "rows k"], Bool[Tensor, "rows k"], Bool[Tensor, " rows"]]:
        """Return the `size` most probable tokens, which of them are in K, and whether those are all of K."""
        best, candidates = log_probs.topk(size)
        is_kept, is_whole = best > -INFINITY, torch.ones_like(candidates[:, 0], dtype=torch.bool)
        if self.top_p is None:
            return candidates, is_kept, is_whole
        allowed = (best if self.top_k else log_probs) / self.temperature
        shares = (best / self.temperature - allowed.logsumexp(dim=1, keepdim=True)).double().exp()
        before = shares.cumsum(dim=1) - shares
        if self.top_k is None and size < log_probs.shape[1]:
            is_whole = shares.sum(dim=1) >= self.top_p
        return candidates, is_kept & (before < self.top_p), is_whole
