"""The optimizer, the learning rate over training, and the moving average of the weights."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from nmt.config.schema import OptimizerConfig, ScheduleConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter, 2019), fused; vectors (biases, energies of one row) are not decayed."""
    matrices = [p for p in model.parameters() if is_matrix(p)]
    vectors = [p for p in model.parameters() if not is_matrix(p)]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=(config.betas[0], config.betas[1]),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def is_matrix(parameter: Tensor) -> bool:
    """Tell whether a parameter maps vectors to vectors; one row, as v in v . tanh(...) is kept, does not."""
    return parameter.dim() > 1 and min(parameter.shape) > 1


def clipped_step(optimizer: torch.optim.Optimizer, clip_norm: float) -> Float[Tensor, ""]:
    """Update with the gradient g, or with g clip_norm / |g| if that is shorter; return |g|  (Pascanu et al., 2013).

    A gradient that is infinite, or no number at all, changes nothing. A fused optimizer divides by `grad_scale` as it
    reads the gradient, which saves passing over it twice more, and looks at `found_inf` where it is: no one waits.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    norm = torch.nn.utils.get_total_norm(each.grad for each in parameters)
    if optimizer.defaults.get("fused"):
        excess = ((norm + 1e-6) / clip_norm).clamp(min=1.0)
        optimizer.grad_scale = excess.float()  # type: ignore[attr-defined]
        optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
    elif norm.isfinite():
        torch.nn.utils.clip_grads_with_norm_(parameters, clip_norm, norm)
    else:
        return norm
    optimizer.step()
    return norm


def restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load an optimizer's moments; rates and decays stay as they are configured now."""
    settings = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, setting in zip(optimizer.param_groups, settings, strict=True):
        group.update(setting)


def inverse_sqrt(step: int, progress: float, config: ScheduleConfig) -> float:
    """sqrt(w / t) after w updates of warm-up  (Vaswani et al., 2017)."""
    warmup = max(1, config.warmup_steps)
    return math.sqrt(warmup / max(step, warmup))


def cosine(step: int, progress: float, config: ScheduleConfig) -> float:
    """Half a cosine from 1 to `final_factor` over the whole of training  (Loshchilov & Hutter, 2017)."""
    share = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return config.final_factor + (1.0 - config.final_factor) * share


def constant(step: int, progress: float, config: ScheduleConfig) -> float:
    """1: the peak, for ever. `plateau` begins like this too."""
    return 1.0


SHAPES: dict[str, Callable[[int, float, ScheduleConfig], float]] = {
    "constant": constant,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "plateau": constant,
}


class Schedule:
    """learning rate = peak x warm-up x shape(step, progress) x reductions made on a plateau."""

    def __init__(self, optimizer: torch.optim.Optimizer, config: ScheduleConfig, peak: float) -> None:
        self.optimizer = optimizer
        self.config = config
        self.peak = peak
        self.reduction = 1.0
        self.stale = 0

    def set(self, step: int, progress: float) -> float:
        """Set and return the learning rate of update `step` (from 1); `progress` is the share of training done."""
        warmup = min(1.0, step / max(1, self.config.warmup_steps))
        rate = self.peak * warmup * self.reduction * SHAPES[self.config.kind](step, progress, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def validated(self, improved: bool) -> None:
        """Take note of a validation: on a plateau longer than the patience, reduce the rate."""
        self.stale = 0 if improved else self.stale + 1
        if self.config.kind == "plateau" and self.stale > self.config.patience:
            self.reduction *= self.config.factor
            self.stale = 0

    def state_dict(self) -> dict[str, float]:
        """Return what `load_state_dict` needs to go on."""
        return {"reduction": self.reduction, "stale": self.stale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state."""
        self.reduction, self.stale = state["reduction"], int(state["stale"])


def build_average(model: nn.Module, decay: float) -> AveragedModel:
    """An exponential moving average of the weights, w <- d w + (1 - d) new, d = min(decay, (1 + n) / (10 + n)).

    The ramp lets the average forget the random start within the first updates.
    """

    def update(averages: Iterable[Tensor], weights: Iterable[Tensor], count: Tensor | int) -> None:
        keep = min(decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(list(averages), list(weights), 1.0 - keep)

    return AveragedModel(model, multi_avg_fn=update)
