"""Learning where to look when the weights of attention are drawn at random: REINFORCE  (Williams, 1992)."""

from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nmt.attention.normalizers import SampledAttention
from nmt.config.schema import ReinforceConfig
from nmt.training.distributed import SINGLE_PROCESS, Processes


@final
class Reinforce:
    """A term of the objective whose gradient is that of the expected log-probability by the scores of attention.

    With positions a_t drawn with probability pi(a_t) and r_t = log p(y_t | y_<t, x, a_<=t), the term is

        -sum_t (R_t - B_t) log pi(a_t) - entropy x sum_t H[pi_t],   R_t = sum_{k >= t} discount^(k - t) r_k,

    R and B without gradient  (Xu et al., 2015, with the reward to come instead of the whole sentence's: what was
    said before a draw does not depend on it). At discount 1 its expected gradient is exact; below, it is biased
    towards the draw's own word, and varies far less. The baseline B_t is the same discounted sum over the sentence of
    a moving average of r, over the batches of all processes: it knows the past batches and the sentence's length, not
    the draws, so it adds no bias.
    """

    def __init__(self, config: ReinforceConfig, processes: Processes = SINGLE_PROCESS) -> None:
        self.config = config
        self.processes = processes
        self.baseline: Tensor | None = None

    def __call__(
        self,
        sampled: SampledAttention,
        cross_entropies: Float[Tensor, " tokens"],
        target_mask: Bool[Tensor, "batch target"],
    ) -> Float[Tensor, ""]:
        """Return the term, summed over the real target tokens, and move the baseline.

        Args:
            sampled: how likely the draws were, and the entropy of what they were drawn from; [batch, target].
            cross_entropies: -r of the real target tokens, in the order of the mask.
            target_mask: True on them.
        """
        assert sampled.log_prob is not None, "nothing was drawn at random"
        assert sampled.entropy is not None
        rewards = torch.zeros_like(sampled.log_prob).masked_scatter(target_mask, -cross_entropies.to(sampled.log_prob))
        reward, count = -cross_entropies.detach().sum(), cross_entropies.new_full((), len(cross_entropies))
        self.processes.add_up([reward, count])
        mean = reward / count
        known = torch.full_like(mean, float("nan")) if self.baseline is None else self.baseline
        baseline = torch.where(known.isfinite(), known, mean)
        advantage = to_come(rewards, self.config.discount) - to_come(baseline * target_mask, self.config.discount)
        decay = self.config.baseline_decay
        moved = decay * baseline + (1.0 - decay) * mean
        self.baseline = torch.where(moved.isfinite(), moved, known)  # a batch that is skipped must not be remembered
        terms = advantage.detach() * sampled.log_prob + self.config.entropy * sampled.entropy
        return -(terms * target_mask).sum()

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on."""
        return {"baseline": self.baseline}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.baseline = state["baseline"]


def to_come(rewards: Float[Tensor, "batch target"], discount: float) -> Float[Tensor, "batch target"]:
    """Return R_t = r_t + discount R_{t+1}."""
    found, ahead = [], torch.zeros_like(rewards[:, 0])
    for reward in rewards.flip(1).unbind(dim=1):
        ahead = reward + discount * ahead
        found.append(ahead)
    return torch.stack(found[::-1], dim=1)
