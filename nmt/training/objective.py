"""What training minimizes: label-smoothed cross-entropy on real tokens."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from nmt.data.batch import Batch
from nmt.models.decoder import Decoded
from nmt.models.seq2seq import Seq2Seq


class Loss(NamedTuple):
    """The objective, summed over the real target tokens of a batch, and the cross-entropy of each; in nats.

    Only the objective has a gradient.
    """

    objective: Float[Tensor, ""]
    cross_entropies: Float[Tensor, " tokens"]

    @property
    def cross_entropy(self) -> Float[Tensor, ""]:
        """The sum of the cross-entropies."""
        return self.cross_entropies.sum()


@runtime_checkable
class Objective(Protocol):
    """The signature of `token_loss`."""

    def __call__(self, model: Seq2Seq, decoded: Decoded, batch: Batch, *, label_smoothing: float) -> Loss: ...


def token_loss(model: Seq2Seq, decoded: Decoded, batch: Batch, *, label_smoothing: float) -> Loss:
    """Return -sum_i [(1 - eps) log p(y_i) + eps / V sum_v log p(v)], V the size of the vocabulary.

    eps is `label_smoothing`  (Szegedy et al., 2016).
    """
    logits = model.project(decoded.features[batch.target_mask])
    labels = batch.target_out[batch.target_mask]
    objective = cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum")
    return Loss(objective, cross_entropy(logits.detach(), labels, reduction="none"))
