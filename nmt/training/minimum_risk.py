"""Minimum-risk training: of its own translations, a model learns to prefer those that score well."""

from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from nmt.attention.shapes import at_least_fp32
from nmt.config.schema import TrainConfig
from nmt.data.batch import Batch, pad, shifted
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

        It takes the memory of as many translations, and of their logits.
        """
        numbers, tokens, costs = self.candidates(model, batch)
        sentences = torch.from_numpy(numbers[:, 0]).to(batch.source.device)
        scores = mean_log_probs(model, batch, sentences, tokens)
        places = sentences, torch.from_numpy(numbers[:, 1]).to(sentences.device)
        shape = len(batch), self.num_candidates
        table = scores.new_full(shape, -torch.inf).index_put(places, scores)
        cost_table = scores.new_zeros(shape).index_put(places, scores.new_tensor(costs))
        risk = (table.softmax(dim=1) * cost_table).sum(dim=1)
        return (batch.target_mask.sum(dim=1) * risk).sum()

    def candidates(self, model: Seq2Seq, batch: Batch) -> tuple[np.ndarray, list[np.ndarray], list[float]]:
        """Return the translations of a batch: (sentence, number) of each as rows, its ids without eos, and its cost."""
        references = self.tokenizer.decode([row[:-1].tolist() for row in real_tokens(batch)])
        numbers, tokens, costs = [], [], []
        for sentence, (hypotheses, reference) in enumerate(zip(self.translate(model, batch), references, strict=True)):
            texts = self.tokenizer.decode(hypotheses)
            of_text: dict[str, list[int]] = {}
            for text, ids in zip(texts, hypotheses, strict=True):
                of_text.setdefault(text, ids)
            for number, (text, ids) in enumerate(of_text.items()):
                numbers.append((sentence, number))
                tokens.append(np.asarray(ids, dtype=np.int32))
                costs.append(1.0 - self.bleu.sentence_score(text, [reference]).score / 100.0)
        return np.asarray(numbers), tokens, costs

    @torch.no_grad()
    def translate(self, model: Seq2Seq, batch: Batch) -> list[list[list[int]]]:
        """Return the ids of the best translations of each sentence, without dropout."""
        inputs = batch.source, batch.source_mask, batch.source_lengths
        model.eval()
        found = search_batch(model, *inputs, self.search, n=self.num_candidates, sampling=None, with_unk=False)
        model.train()
        # Older releases of PyTorch go on with the 16-bit copies of weights that are made here, without gradient
        # (https://github.com/pytorch/pytorch/issues/158232).
        torch.clear_autocast_cache()
        return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


def mean_log_probs(
    model: Seq2Seq, batch: Batch, sentences: Tensor, targets: list[np.ndarray]
) -> Float[Tensor, " candidates"]:
    """Return log p(y | x) / |y| of targets, each of one of the sentences, which are encoded once."""
    target_out, mask, lengths = (tensor.to(sentences.device) for tensor in pad(targets))
    state = model.start(batch.source, batch.source_mask, batch.source_lengths).keep(sentences)
    features = model.decoder(shifted(target_out, mask), state.memory, state.decoder).features
    logits = at_least_fp32(model.project(features[mask]))
    log_probs = -cross_entropy(logits, target_out[mask], reduction="none")
    return log_probs.new_zeros(mask.shape).masked_scatter(mask, log_probs).sum(dim=1) / lengths


def real_tokens(batch: Batch) -> list[Tensor]:
    """Return the ids of each target, with eos."""
    return [row[mask] for row, mask in zip(batch.target_out, batch.target_mask, strict=True)]
