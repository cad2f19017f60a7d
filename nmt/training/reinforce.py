"""REINFORCE for sampled attention: the term of the objective that trains its scores  (Williams, 1992)."""

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from nmt.attention.normalizers import SampledAttention
from nmt.config.schema import ReinforceConfig
from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup


@final
@dataclass(eq=False)
class Reinforce:
    """A term whose gradient is that of the expected log-probability with respect to attention scores.

    With positions a_t drawn with probability pi(a_t) and r_t = log p(y_t | y_<t, x, a_<=t), the term is

        -sum_t (R_t - B_t) log pi(a_t) - entropy x sum_t H[pi_t],   R_t = sum_{k >= t} discount^(k - t) r_k,

    R and B without gradient  (Xu et al., 2015, with the return R_t from a draw on in place of the whole sentence's:
    earlier words do not depend on the draw). At discount 1 its expected gradient is exact; below, it is biased towards
    the draw's own word, and has a far smaller variance. The baseline B_t is the same discounted sum of a moving
    average of r over the past batches of all ranks, which does not depend on the draws, so that it adds no bias; in the
    first batch, that batch's own.
    """

    config: ReinforceConfig
    processes: ProcessGroup = SINGLE_PROCESS
    baseline: Tensor | None = None

    def __call__(
        self,
        sampled: SampledAttention,
        cross_entropies: Float[Tensor, " tokens"],
        target_mask: Bool[Tensor, "batch target"],
    ) -> Float[Tensor, ""]:
        """Return the term in nats, summed over the real target tokens, and update the baseline; collective.

        `cross_entropies` are -r of the real target tokens, in the order of the mask, which is True on them.
        """
        assert sampled.log_prob is not None, "attention was not sampled"
        assert sampled.entropy is not None
        rewards = torch.zeros_like(sampled.log_prob).masked_scatter(target_mask, -cross_entropies.to(sampled.log_prob))
        count = cross_entropies.new_full((), len(cross_entropies))
        reward, count = self.processes.all_reduce_(torch.stack([-cross_entropies.sum(), count]))
        mean = reward / count
        previous = torch.full_like(mean, float("nan")) if self.baseline is None else self.baseline
        baseline = torch.where(previous.isfinite(), previous, mean)
        returns = discounted_returns(rewards, self.config.discount)
        advantage = returns - discounted_returns(baseline * target_mask, self.config.discount)
        decay = self.config.baseline_decay
        moved = decay * baseline + (1.0 - decay) * mean
        self.baseline = torch.where(moved.isfinite(), moved, previous)  # the update of this batch is skipped
        terms = advantage.detach() * sampled.log_prob + self.config.entropy * sampled.entropy
        return -(terms * target_mask).sum()

    def state_dict(self) -> dict[str, Any]:
        return {"baseline": self.baseline}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.baseline = state["baseline"]


def discounted_returns(rewards: Float[Tensor, "batch target"], discount: float) -> Float[Tensor, "batch target"]:
    """Return R_t = r_t + discount x R_{t+1}."""
    returns = [torch.zeros_like(rewards[:, 0])]
    for reward in rewards.flip(1).unbind(dim=1):
        returns.append(reward + discount * returns[-1])
    return torch.stack(returns[:0:-1], dim=1)
