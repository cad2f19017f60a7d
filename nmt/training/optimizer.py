"""The optimizer, the learning rate over training, and the moving average of the weights."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from nmt.config.schema import OptimizerConfig, ScheduleConfig
from nmt.errors import UserError


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, adamw: type[torch.optim.AdamW] = torch.optim.AdamW
) -> torch.optim.AdamW:
    """Return fused AdamW (Loshchilov & Hutter, 2019); vectors (biases, energies of one row) have no weight decay."""
    matrices = [p for p in model.parameters() if is_matrix(p)]
    vectors = [p for p in model.parameters() if not is_matrix(p)]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return adamw(
        groups,
        lr=config.learning_rate,
        betas=(config.betas[0], config.betas[1]),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def is_matrix(parameter: Tensor) -> bool:
    """Return whether a parameter maps vectors to vectors, unlike biases and v of v . tanh(...), stored as one row."""
    return parameter.dim() > 1 and min(parameter.shape) > 1


def clipped_step(optimizer: torch.optim.Optimizer, clip_norm: float) -> Float[Tensor, ""]:
    """Update with the gradient g scaled by min(1, clip_norm / |g|); return |g|  (Pascanu et al., 2013).

    The update is skipped where |g| is not finite. A fused optimizer divides by `grad_scale` as it reads the gradient,
    which saves two passes over it, and reads `found_inf` on the device, so that the CPU need not wait.
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


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restore an optimizer's moments from a state dict, while learning rate, decays and betas stay as configured; raise
    UserError where a moment is not finite.
    """
    for moments in state["state"].values():
        for name, value in moments.items():
            if isinstance(value, Tensor) and not value.isfinite().all():
                raise UserError(
                    f"cannot continue: the optimizer's {name} is not finite in training_state.pt; begin a new run with "
                    "trainer.initialize_from=RUN and a lower optimizer.learning_rate"
                )
    configured = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, settings in zip(optimizer.param_groups, configured, strict=True):
        group.update(settings)


def inverse_sqrt(step: int, progress: float, config: ScheduleConfig) -> float:
    """Return sqrt(w / t) at update t, after w updates of warm-up  (Vaswani et al., 2017)."""
    warmup = max(1, config.warmup_steps)
    return math.sqrt(warmup / max(step, warmup))


def cosine(step: int, progress: float, config: ScheduleConfig) -> float:
    """Return f + (1 - f) (1 + cos(pi progress)) / 2, f being `final_factor`  (Loshchilov & Hutter, 2017)."""
    share = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return config.final_factor + (1.0 - config.final_factor) * share


def constant(step: int, progress: float, config: ScheduleConfig) -> float:
    """Return 1: the peak rate. `plateau` reduces it by validations."""
    return 1.0


SHAPES: dict[str, Callable[[int, float, ScheduleConfig], float]] = {
    "constant": constant,
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "plateau": constant,
}


@dataclass(eq=False)
class Schedule:
    """learning rate = peak x min(1, step / warmup_steps) x shape(step, progress) x reduction (of `plateau`)."""

    optimizer: torch.optim.Optimizer
    config: ScheduleConfig
    peak: float
    reduction: float = 1.0
    stale: int = 0  # validations without improvement

    def set(self, step: int, progress: float) -> float:
        """Set and return the learning rate of update `step`, from 1, at `progress`, the share of training done."""
        warmup = min(1.0, step / max(1, self.config.warmup_steps))
        shape = SHAPES[self.config.kind](step, progress, self.config)
        # A run that has been trained with `plateau` may be continued with another schedule.
        rate = self.peak * warmup * shape * (self.reduction if self.config.kind == "plateau" else 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def validated(self, improved: bool) -> None:
        """Count validations without improvement; `plateau` reduces the rate after more than `patience`."""
        self.stale = 0 if improved else self.stale + 1
        if self.config.kind == "plateau" and self.stale > self.config.patience:
            self.reduction *= self.config.factor
            self.stale = 0

    def state_dict(self) -> dict[str, float]:
        return {"reduction": self.reduction, "stale": self.stale}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.reduction, self.stale = state["reduction"], int(state["stale"])


def build_average(model: nn.Module, decay: float) -> AveragedModel:
    """Return the exponential moving average a of a model's weights w.

    After the first update a = w, and then a <- d a + (1 - d) w with d = min(decay, (1 + n) / (10 + n)) after n earlier
    updates: it starts small, so that the weights of the beginning are soon forgotten.
    """

    def update(averages: Iterable[Tensor], weights: Iterable[Tensor], _: Tensor | int) -> None:
        count = int(average.n_averaged)  # on the CPU; the last argument is a copy of it on the weights' device
        ramped = min(decay, (1 + count) / (10 + count))
        torch._foreach_lerp_(list(averages), list(weights), 1.0 - ramped)

    average = AveragedModel(model, multi_avg_fn=update)
    for module in average.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN wants them together in memory, which a copy is not
    return average
