"""The objective of training: label-smoothed cross-entropy on real tokens, and the terms that attention may add."""

from typing import NamedTuple, Protocol, final, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nmt.config.schema import GuidedAlignmentConfig
from nmt.data.batch import Batch
from nmt.models.decoder import Decoded
from nmt.models.seq2seq import Seq2Seq
from nmt.training.guided_alignment import guided_alignment_loss, guided_alignment_weight
from nmt.training.reinforce import Reinforce


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


class StepLoss(NamedTuple):
    """Sums over the real target tokens of a batch, in nats.

    Attributes:
        objective: to be minimized.
        reported: `loss` (cross-entropy) and, where attention is guided, `alignment_loss`; without gradient.
    """

    objective: Float[Tensor, ""]
    reported: dict[str, Float[Tensor, ""]]


@final
class TrainingStep(nn.Module):
    """objective = cross-entropy + REINFORCE term (sampled attention) + weight x guided-alignment loss (gold links).

    It is one module because DistributedDataParallel synchronizes the parameters that its module's forward pass uses,
    which must include those of the output layer.
    """

    def __init__(
        self,
        model: Seq2Seq,
        objective: Objective,
        reinforce: Reinforce,
        guided_alignment: GuidedAlignmentConfig,
        label_smoothing: float,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.reinforce = reinforce
        self.guided_alignment = guided_alignment
        self.label_smoothing = label_smoothing

    def forward(self, batch: Batch, epochs: float) -> StepLoss:
        """Return the losses of a batch after `epochs` epochs of training, on which the weight of guidance depends."""
        decoded = self.model(batch)
        loss = self.objective(self.model, decoded, batch, label_smoothing=self.label_smoothing)
        objective, reported = loss.objective, {"loss": loss.cross_entropy.detach()}
        if decoded.sampled.log_prob is not None:
            objective = objective + self.reinforce(decoded.sampled, loss.cross_entropies.detach(), batch.target_mask)
        if batch.alignment is not None:
            alignment_loss = guided_alignment_loss(decoded.weights, batch.alignment, self.guided_alignment.kind)
            objective = objective + guided_alignment_weight(self.guided_alignment, epochs) * alignment_loss
            reported["alignment_loss"] = alignment_loss.detach()
        return StepLoss(objective, reported)
