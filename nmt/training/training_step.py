"""One training step: from a batch to its objective, through the model."""

from typing import NamedTuple, final

from jaxtyping import Float
from torch import Tensor, nn

from nmt.config.schema import GuidedAlignmentConfig
from nmt.data.batch import Batch
from nmt.models.seq2seq import Seq2Seq
from nmt.training.guided_alignment import guided_alignment_loss, guided_alignment_weight
from nmt.training.objective import Objective
from nmt.training.reinforce import Reinforce


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
