"""Linear maps whose weights no longer change, in the memory layout of oneDNN, for translating on a CPU."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.fast.kernels import onednn_is_faster, onednn_linear, reorder


@final
class Packed(nn.Linear):
    """A linear map whose weights are reordered for oneDNN."""

    def __init__(self, linear: nn.Linear) -> None:
        size = linear.in_features, linear.out_features
        super().__init__(*size, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.packed = reorder(linear.weight.detach())

    def forward(self, x: Float[Tensor, "*row input"]) -> Float[Tensor, "*row output"]:
        """Return W x + b; as any linear map where a gradient or another precision is wanted."""
        if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type) or x.dtype != torch.float32:
            return super().forward(x)
        return onednn_linear(x, self.packed, self.bias)


def pack(model: nn.Module) -> None:
    """Pack the linear maps of a model that only translates from now on, where that makes them faster."""
    if not onednn_is_faster(next(model.parameters())):
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and min(child.weight.shape) > 1:
                setattr(module, name, Packed(child))
