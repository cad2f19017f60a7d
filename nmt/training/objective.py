"""The objective of training: label-smoothed cross-entropy on real tokens, and the terms that attention may add."""

from typing import NamedTuple, Protocol, final, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from nmt.config.schema import TrainerConfig
from nmt.data.batch import Batch
from nmt.models.decoder import Decoded
from nmt.models.seq2seq import Loss, Seq2Seq
from nmt.training.guided_alignment import guided_alignment_loss, guided_alignment_weight
from nmt.training.reinforce import Reinforce


@runtime_checkable
class Objective(Protocol):
    """The signature of `token_loss`."""

    def __call__(
        self, model: Seq2Seq, decoded: Decoded, batch: Batch, *, label_smoothing: float, consistency: float
    ) -> Loss: ...


def token_loss(
    model: Seq2Seq, decoded: Decoded, batch: Batch, *, label_smoothing: float, consistency: float = 0.0
) -> Loss:
    """Return the label-smoothed cross-entropy of a batch, summed over its real target tokens i.

        NLL = -sum_i [(1 - eps) log p(y_i) + eps / V sum_v log p(v)],

    eps being `label_smoothing` and V the size of the vocabulary (Szegedy et al., 2016). With `consistency`, alpha, the
    batch holds all pairs twice, which dropout tells apart, and the objective is

        1/2 [NLL_1 + NLL_2 + alpha D],   D = 1/2 sum_i [KL(p_i || q_i) + KL(q_i || p_i)],

    NLL_1 and NLL_2 being those of the halves and p_i, q_i their distributions: half of the loss of R-Drop (Liang et
    al., 2021), so that alpha is theirs and an update is as large as without.
    """
    logits = model.project(decoded.features[batch.target_mask])
    labels = batch.target_out[batch.target_mask]
    objective = cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum")
    cross_entropies = cross_entropy(logits.detach(), labels, reduction="none")
    if not consistency:
        return Loss(objective, cross_entropies)
    divergence = symmetric_divergence(*logits.log_softmax(dim=-1).chunk(2))
    return Loss(
        (objective + consistency * divergence) / 2, cross_entropies.view(2, -1).mean(dim=0), divergence.detach()
    )


def symmetric_divergence(
    first: Float[Tensor, "tokens vocab"], second: Float[Tensor, "tokens vocab"]
) -> Float[Tensor, ""]:
    """Return 1/2 [KL(p || q) + KL(q || p)] of the distributions with these logarithms, summed over tokens."""
    forward = kl_div(second, first, reduction="sum", log_target=True)
    backward = kl_div(first, second, reduction="sum", log_target=True)
    return (forward + backward) / 2


@runtime_checkable
class Risk(Protocol):
    """The expected cost of a model's translations (`nmt.training.minimum_risk`), summed over real target tokens."""

    def __call__(self, model: Seq2Seq, batch: Batch) -> Float[Tensor, ""]: ...


class StepLoss(NamedTuple):
    """Sums over the real target tokens of a batch, in nats."""

    objective: Float[Tensor, ""]
    # Without gradient: `loss` (cross-entropy), guided attention's `alignment_loss`, `divergence` of two passes, `risk`.
    reported: dict[str, Float[Tensor, ""]]


@final
class TrainingStep(nn.Module):
    """objective = cross-entropy + REINFORCE term (sampled attention) + weight x guided-alignment loss (gold links).

    With `minimum_risk` the first term is (1 - weight) x cross-entropy + weight x risk. With `consistency` the batch
    goes through the model twice, side by side, and each term, but for the risk, is the mean of both. One module, as
    DistributedDataParallel synchronizes what its forward pass uses, which must include the output layer.
    """

    def __init__(
        self,
        model: Seq2Seq,
        objective: Objective,
        reinforce: Reinforce,
        config: TrainerConfig,
        risk: Risk | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.reinforce = reinforce
        self.config = config
        self.risk = risk

    def forward(self, batch: Batch, epochs: float) -> StepLoss:
        """Return the losses of a batch; `epochs`, those trained so far, determine the weight of guided alignment."""
        config, guided = self.config, self.config.guided_alignment
        risk = None if self.risk is None else self.risk(self.model, batch)
        batch = batch.twice() if config.consistency else batch
        decoded = self.model(batch)
        loss = self.objective(
            self.model, decoded, batch, label_smoothing=config.label_smoothing, consistency=config.consistency
        )
        objective, reported = loss.objective, {"loss": loss.cross_entropies.sum()}
        if loss.divergence is not None:
            reported["divergence"] = loss.divergence
        if risk is not None:
            objective = (1 - config.minimum_risk.weight) * objective + config.minimum_risk.weight * risk
            reported["risk"] = risk.detach()
        if decoded.sampled.log_prob is not None:
            objective = objective + self.reinforce(decoded.sampled, loss.cross_entropies, batch.target_mask)
        if batch.alignment is not None:
            alignment_loss = guided_alignment_loss(decoded.weights, batch.alignment, guided.kind)
            alignment_loss = alignment_loss / (2 if config.consistency else 1)
            objective = objective + guided_alignment_weight(guided, epochs) * alignment_loss
            reported["alignment_loss"] = alignment_loss.detach()
        return StepLoss(objective, reported)
