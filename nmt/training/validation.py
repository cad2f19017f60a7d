"""Validation: the loss of the references, and the quality and alignments of translations."""

import math
from dataclasses import dataclass, replace
from typing import final

import torch

from nmt.alignment.aer import check_comparable
from nmt.alignment.links import LinkRule, word_links
from nmt.alignment.pharaoh import parse_pharaoh
from nmt.alignment.weights import attention_entropy, coverage_deficit
from nmt.config.schema import TrainConfig
from nmt.data.encoded import EncodedCorpus
from nmt.data.loader import fixed_batches
from nmt.evaluation.metrics import bleu_tokenizer, quick_scores, repetition_rate
from nmt.evaluation.views import gold_scores
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers
from nmt.training.objective import token_loss
from nmt.training.reporting import Sample
from nmt.translator import Translation, Translator


@dataclass(frozen=True)
class Validation:
    """What a validation found."""

    metrics: dict[str, float]
    samples: list[Sample]


@final
class Validator:
    """Measures a model on the validation split."""

    def __init__(
        self, encoded: EncodedCorpus, tokenizers: Tokenizers, config: TrainConfig, device: torch.device
    ) -> None:
        self.encoded = encoded
        self.tokenizers = tokenizers
        self.batch_size = config.batch.size if config.batch.unit == "tokens" else 4_096
        self.search = replace(config.search, beam_size=config.trainer.validation_beam_size)
        self.num_samples = config.trainer.num_samples
        self.tokenize, self.lowercase = bleu_tokenizer(config), config.lowercase
        self.device = device
        if config.trainer.metric == "aer":
            check_comparable("aer", tokenizers, list(encoded.corpus["source"]), list(encoded.corpus["target"]))

    @torch.inference_mode()
    def __call__(self, model: Seq2Seq) -> Validation:
        """Return loss, perplexity, the quality of translations and of their attention; the model is left in eval mode.

        The alignment error rate is there where gold is, and entropy, coverage and repetition where there are words.
        """
        model.eval()
        loss = self._loss(model)
        translator = Translator(model, self.tokenizers, self.search, self.device)
        corpus = self.encoded.corpus
        translations = translator.translate(list(corpus["source"]))
        references = translator.plain(list(corpus["target"]))
        hypotheses = [each.text for each in translations]
        scores = quick_scores(hypotheses, references, tokenize=self.tokenize, lowercase=self.lowercase)
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 100.0)), **scores}
        return Validation(
            metrics | self._aer(translator) | attention(translations), self._samples(translations, references)
        )

    def _loss(self, model: Seq2Seq) -> float:
        """Mean cross-entropy of a target token, in nats, without label smoothing."""
        total, tokens = 0.0, 0
        for batch in fixed_batches(self.encoded, self.batch_size):
            batch = batch.to(self.device)
            total += token_loss(model, model(batch), batch, label_smoothing=0.0).cross_entropy.item()
            tokens += batch.num_target_tokens
        return total / tokens

    def _aer(self, translator: Translator) -> dict[str, float]:
        """Alignment error rate of the attention to the references, where gold exists."""
        corpus = self.encoded.corpus
        if "alignment" not in corpus.column_names:
            return {}
        sources, references = list(corpus["source"]), list(corpus["target"])
        links = word_links(translator.align(sources, references), sources, references, LinkRule())
        gold = [parse_pharaoh(line or "") for line in corpus["alignment"]]
        aer = gold_scores(links, gold)["aer"]
        return {"aer": math.nan if aer is None else aer}

    def _samples(self, translations: list[Translation], references: list[str]) -> list[Sample]:
        """The same few sentences every time, of middling length so that a heatmap can be read."""
        words = [len(each.source.split()) for each in translations]
        middling = [row for row, count in enumerate(words) if 6 <= count <= 18] or list(range(len(words)))
        stride = max(1, len(middling) // max(1, self.num_samples))
        return [sample(translations[row], references[row]) for row in middling[::stride][: self.num_samples]]


def attention(translations: list[Translation]) -> dict[str, float]:
    """Return what can be said of the attention of translations without gold, as far as they have words."""
    weights = [each.weights for each in translations]
    found = {
        "attention_entropy": attention_entropy(weights),
        "coverage_deficit": coverage_deficit(weights),
        "repetition_rate": repetition_rate([each.text for each in translations]),
    }
    return {name: value for name, value in found.items() if value is not None}


def sample(translation: Translation, reference: str) -> Sample:
    """Return what the report shows of a translation."""
    return Sample(
        source=translation.source,
        reference=reference,
        hypothesis=translation.text,
        weights=translation.weights,
        source_words=translation.source_words,
        target_words=translation.target_words,
    )
