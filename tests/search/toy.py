"""A toy model whose hypotheses can all be listed."""

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from nmt.search.hypothesis import BOS, EOS, PAD, UNK, StepOutput


@dataclass
class ToyState:
    sources: list
    prefixes: list

    def select(self, beams):
        chosen = [[row[beam] for beam in picked] for row, picked in zip(self.prefixes, beams.tolist(), strict=True)]
        return ToyState(self.sources, chosen)

    def keep(self, sentences):
        rows = sentences.tolist()
        return ToyState([self.sources[row] for row in rows], [self.prefixes[row] for row in rows])


class ToyModel:
    """Random probabilities and attention, a function of the source and of the whole prefix."""

    def __init__(self, seed=0, vocab=7, sharpness=1.0, uniform=False):
        self.seed, self.vocab, self.sharpness, self.uniform = seed, vocab, sharpness, uniform
        self.batch_sizes = []
        self.known = {}

    def start(self, source, source_mask, source_lengths):
        rows = [tuple(row[mask].tolist()) for row, mask in zip(source, source_mask, strict=True)]
        assert list(map(len, rows)) == source_lengths.tolist()
        self.width = source.shape[1]
        return ToyState(rows, [[()] for _ in rows])

    def step(self, tokens, state):
        self.batch_sizes.append(len(tokens))
        prefixes = [
            [(*prefix, token) for prefix, token in zip(row, read, strict=True)]
            for row, read in zip(state.prefixes, tokens.tolist(), strict=True)
        ]
        looked_up = [
            [self.look_up(source, p) for p in row] for source, row in zip(state.sources, prefixes, strict=True)
        ]
        log_probs = torch.tensor(np.array([[log_probs for log_probs, _ in row] for row in looked_up]))
        weights = np.zeros((*log_probs.shape[:2], self.width))
        for (b, row), k in itertools.product(enumerate(looked_up), range(log_probs.shape[1])):
            weights[b, k, : len(row[k][1])] = row[k][1]
        return StepOutput(log_probs, torch.tensor(weights), ToyState(state.sources, prefixes))

    def look_up(self, source, prefix):
        """Log-probabilities and attention after a prefix that begins with bos."""
        if (source, prefix) not in self.known:
            generator = np.random.default_rng([self.seed, len(source), *source, *prefix])
            logits = self.sharpness * generator.normal(size=self.vocab) * (not self.uniform)
            weights = generator.dirichlet(np.ones(len(source)))
            self.known[source, prefix] = (logits - np.log(np.exp(logits).sum()), weights)
        return self.known[source, prefix]

    def score(self, source, tokens, alpha, ended, beta=0.0):
        """Log-probability, score and attention of a hypothesis: one look-up per token."""
        produced = (*tokens, EOS) if ended else tuple(tokens)
        steps = [self.look_up(source, (BOS, *produced[:t])) for t in range(len(produced))]
        log_prob = sum(log_probs[token] for (log_probs, _), token in zip(steps, produced, strict=True))
        weights = np.array([weights for _, weights in steps])
        covered = sum(np.log(min(1.0, received)) for received in weights.sum(axis=0))
        return log_prob, log_prob / len(produced) ** alpha + beta * covered, weights

    def every_hypothesis(self, source, max_length, alpha, beta=0.0, forbidden=(PAD, UNK, BOS)):
        """All (score, tokens), best first: those that end within max_length, including eos, and those cut off there."""
        words = [token for token in range(self.vocab) if token not in (*forbidden, EOS)]
        results = []
        for length in range(max_length + 1):
            for tokens in itertools.product(words, repeat=length):
                score = self.score(source, tokens, alpha, length < max_length, beta)[1]
                results.append((score, list(tokens)))
        return sorted(results, reverse=True)


def make_inputs(sources, max_lengths):
    """Model inputs for lists of source tokens, and the maximal lengths."""
    width = max(map(len, sources))
    source = torch.tensor([row + [PAD] * (width - len(row)) for row in sources])
    inputs = (source, source != PAD, torch.tensor(list(map(len, sources))))
    return inputs, torch.tensor(max_lengths)
