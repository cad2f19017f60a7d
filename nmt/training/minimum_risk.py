"""Minimum-risk training: of its own translations, a model learns to prefer those that score well."""

from collections.abc import Iterable
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from nmt.attention.shapes import at_least_fp32
from nmt.config.schema import TrainConfig
from nmt.data.batch import Batch, pad, shift_right
from nmt.evaluation.metrics import bleu, bleu_tokenizer
from nmt.models.seq2seq import Seq2Seq
from nmt.search.search import search_batch
from nmt.text.tokenizer import Tokenizers


@final
class MinimumRisk:
    """The expected cost of translations  (Shen et al., 2016; Q as in Edunov et al., 2018).

        risk(x) = sum_k Q(y_k) cost(y_k),    Q(y_k) = exp(u_k) / sum_l exp(u_l),    u_k = log p(y_k | x) / |y_k|

    y_1 ... y_n are the best translations that beam search finds, those of equal text counted once; |y| includes eos.
    The cost is 1 - BLEU of the sentence, from 0 to 1, with one added to the counts of its n-grams of two and more words
    (Lin & Och, 2004). The gradient is that of Q: the search itself, and the cost, have none.
    """

    def __init__(self, config: TrainConfig, tokenizers: Tokenizers) -> None:
        self.num_candidates = config.trainer.minimum_risk.candidates
        self.search = config.search
        self.tokenizer = tokenizers.target
        self.bleu = bleu(bleu_tokenizer(config), config.lowercase, of_sentences=True)

    def __call__(self, model: Seq2Seq, batch: Batch) -> Float[Tensor, ""]:
        """Return sum_x |y| risk(x), y being the reference: a sentence counts as much as in the cross-entropy.

        All candidates, and their logits, are in memory at once.
        """
        references = [row[mask][:-1].tolist() for row, mask in zip(batch.target_out, batch.target_mask, strict=True)]
        found = [self.by_text(hypotheses) for hypotheses in self.translate(model, batch)]
        scores = mean_log_probs(model, batch, [list(ids_of_text.values()) for ids_of_text in found])
        risks = [
            u.softmax(dim=0) @ u.new_tensor(self.costs(ids_of_text, reference))
            for u, ids_of_text, reference in zip(scores, found, self.tokenizer.decode(references), strict=True)
        ]
        return (batch.target_mask.sum(dim=1) * torch.stack(risks)).sum()

    def by_text(self, hypotheses: list[list[int]]) -> dict[str, list[int]]:
        """Return ids by their text; of equal texts those that come first."""
        found: dict[str, list[int]] = {}
        for text, ids in zip(self.tokenizer.decode(hypotheses), hypotheses, strict=True):
            found.setdefault(text, ids)
        return found

    def costs(self, texts: Iterable[str], reference: str) -> list[float]:
        """Return 1 - BLEU of each text."""
        return [1.0 - self.bleu.sentence_score(text, [reference]).score / 100.0 for text in texts]

    @torch.no_grad()
    def translate(self, model: Seq2Seq, batch: Batch) -> list[list[list[int]]]:
        """Return the ids of the best translations of each sentence, without dropout."""
        inputs = batch.source, batch.source_mask, batch.source_lengths
        model.eval()
        try:
            found = search_batch(model, *inputs, self.search, n=self.num_candidates, sampling=None, with_unk=False)
        finally:  # where memory does not suffice, smaller batches follow
            model.train()
        # Older releases of PyTorch go on with the 16-bit copies of weights that are made here, without gradient
        # (https://github.com/pytorch/pytorch/issues/158232).
        torch.clear_autocast_cache()
        return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


def mean_log_probs(
    model: Seq2Seq, batch: Batch, targets: list[list[list[int]]]
) -> tuple[Float[Tensor, " candidates"], ...]:
    """Return log p(y | x) / |y| of targets, ids without eos, for each sentence of a batch, which is encoded once."""
    device, counts = batch.source.device, [len(each) for each in targets]
    rows = [np.asarray(ids, dtype=np.int32) for each in targets for ids in each]
    target_out, mask, lengths = (tensor.to(device) for tensor in pad(rows))
    sentences = torch.arange(len(batch)).repeat_interleave(torch.tensor(counts)).to(device)
    state = model.start(batch.source, batch.source_mask, batch.source_lengths).keep(sentences)
    features = model.decoder(shift_right(target_out, mask), state.memory, state.decoder).features
    logits = at_least_fp32(model.project(features[mask]))
    log_probs = -cross_entropy(logits, target_out[mask], reduction="none")
    sums = log_probs.new_zeros(mask.shape).masked_scatter(mask, log_probs).sum(dim=1)
    return (sums / lengths).split(counts)
