"""The shapes that the parts of attention hand each other."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Query = Float[Tensor, "batch target query"]
States = Float[Tensor, "batch source state"]
Mask = Bool[Tensor, "batch source"]
Keys = Float[Tensor, "batch source key"]
Scores = Float[Tensor, "batch target source"]
Support = Bool[Tensor, "batch #target source"]
Taper = Float[Tensor, "batch target source"]
# What an attention that remembers has kept for each query, of what was attended to before it.
Past = Float[Tensor, "batch target source"]
# The target position of all queries (those of a beam are at the same step), or of each.
Step = int | Int[Tensor, " #target"]
