"""The expected cost of a model's own translations, in value and gradient, and what training on it does."""

import copy
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import TrainConfig, TrainerConfig
from nmt.data.batch import collate
from nmt.fast.accelerate import accelerate
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from nmt.text.tokenizer import Tokenizers
from nmt.text.vocabulary import Vocabulary
from nmt.training.minimum_risk import MinimumRisk
from nmt.training.objective import TrainingStep, token_loss
from nmt.training.reinforce import Reinforce
from tests.models.small import random_batch, small_model
from tests.runs import QUIET, records

CANDIDATES = 6
WORDS = Vocabulary(b"a@@\nb\nab\nc\nd\ne\nf\n")  # 11 pieces with the special ones; `a@@ b` and `ab` are the same text
BATCH = random_batch([(5, 4), (1, 7), (9, 2)])


def minimum_risk(weight: float = 1.0) -> MinimumRisk:
    config = TrainConfig(bleu_tokenize="none")
    config.trainer.minimum_risk.candidates, config.trainer.minimum_risk.weight = CANDIDATES, weight
    config.search.max_length_ratio, config.search.max_length_offset = 1.0, 3
    return MinimumRisk(config, Tokenizers(WORDS, WORDS))


def sentence_bleu(hypothesis: list[str], reference: list[str]) -> float:
    """BLEU of a sentence, with one added to the counts of two and more words (Lin & Och, 2004), written out."""
    precisions = []
    for n in range(1, 5):
        ours, theirs = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (hypothesis, reference))
        added = int(n > 1)
        precisions.append((sum((ours & theirs).values()) + added) / max(1, sum(ours.values()) + added))
    if not hypothesis or min(precisions) == 0:
        return 0.0
    brevity = min(1.0, math.exp(1 - len(reference) / len(hypothesis)))
    return brevity * math.exp(sum(map(math.log, precisions)) / 4)


def written_out(model: Seq2Seq) -> torch.Tensor:
    """sum_x |y| sum_k Q(y_k) (1 - BLEU(y_k)), one sentence and one translation after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(BATCH)):
        one = BATCH.part(slice(row, row + 1))
        source, reference = one.source[0, :-1].numpy(), one.target_out[0, :-1].tolist()
        limit = torch.tensor([len(source) + 1 + 3])
        inputs = one.source, one.source_mask, one.source_lengths
        (found,) = beam_search(
            model, *inputs, beam_size=CANDIDATES, n_best=CANDIDATES, max_lengths=limit, length_penalty=1.0, unk=1
        )
        texts: dict[str, list[int]] = {}
        for hypothesis in found:
            texts.setdefault(WORDS.decode([hypothesis.tokens])[0], hypothesis.tokens)
        scores = []
        for tokens in texts.values():
            pair = collate([source], [torch.tensor(tokens, dtype=torch.int32).numpy()], one.rows)
            scores.append(model.log_probs(pair).sum() / (len(tokens) + 1))
        costs = [1 - sentence_bleu(text.split(), WORDS.decode([reference])[0].split()) for text in texts]
        risk = torch.stack(scores).softmax(dim=0) @ torch.tensor(costs, dtype=torch.float64)
        total = total + (len(reference) + 1) * risk
    return total


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
@pytest.mark.parametrize("is_fast", [False, True])
def test_it_is_the_formula(decoder: str, is_fast: bool) -> None:
    model = small_model(decoder=decoder).eval()
    expected = written_out(model)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    trained = copy.deepcopy(model).train()  # without dropout
    trained = accelerate(trained) if is_fast else trained
    risk = minimum_risk()(trained, BATCH)
    torch.testing.assert_close(risk, expected)
    torch.testing.assert_close(torch.autograd.grad(risk, list(trained.parameters())), gradients)
    assert trained.training


def test_equal_texts_are_one_translation() -> None:
    """`a@@ b` is `ab` in other pieces: the better of both stays."""
    risk = minimum_risk()
    assert list(risk.by_text([[6], [4, 5], [7]]).values()) == [[6], [7]]
    assert list(risk.by_text([[4, 5], [6], []]).values()) == [[4, 5], []]


def test_dropout_goes_on_where_memory_was_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("nmt.training.minimum_risk.search_batch", fail)
    model = small_model()
    with pytest.raises(MemoryError):
        minimum_risk()(model, BATCH)
    assert model.training


def test_a_perfect_translation_costs_nothing() -> None:
    risk = minimum_risk()
    reference = [row[mask][:-1].tolist() for row, mask in zip(BATCH.target_out, BATCH.target_mask, strict=True)]
    risk.translate = lambda *_: [[ids] for ids in reference]  # type: ignore[method-assign]
    assert risk(small_model(), BATCH).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_the_objective_is_a_mean_with_the_cross_entropy(weight: float) -> None:
    model, config = small_model(), TrainerConfig(label_smoothing=0.1)
    config.minimum_risk.weight = weight
    step = TrainingStep(model, token_loss, Reinforce(config.reinforce), config, minimum_risk())
    losses = step(BATCH, 0.0)
    loss = token_loss(model, model(BATCH), BATCH, label_smoothing=0.1)
    risk = minimum_risk()(model, BATCH)
    torch.testing.assert_close(losses.objective, (1 - weight) * loss.objective + weight * risk)
    assert losses.reported.keys() == {"loss", "risk"}
    torch.testing.assert_close(losses.reported["risk"], risk.detach())


def test_translations_get_better() -> None:
    """Of a model that knows nothing of the references."""
    model = small_model()
    risk = minimum_risk()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    values = []
    for _ in range(40):
        value = risk(model, BATCH)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item() / BATCH.num_target_tokens)
    assert sum(values[-5:]) / 5 < values[0] - 0.2, values


def test_weights_in_16_bits_have_gradients() -> None:
    """Also where autocast keeps the copies that the search made without gradient, as older releases of PyTorch do."""
    model = small_model().float()
    with torch.autocast("cpu", torch.bfloat16):
        minimum_risk()(model, BATCH).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_run_is_trained_further(
    call: Callable[..., Any], tiny_run: Path, tiny_options: list[str], tmp_path: Path
) -> None:
    """Stopped and resumed it is what it would have been, and it reports the risk."""
    options = [f"trainer.initialize_from={tiny_run}", "trainer.minimum_risk.weight=1", "model.dropout=0.3"]
    options += ["trainer.minimum_risk.candidates=3", "optimizer.learning_rate=0.001", "batch.size=60"]
    for run, *limits in (("straight", 4), ("parted", 2, 4)):
        for limit in limits:
            done = call("train", f"run_dir={run}", *tiny_options, *QUIET, *options, f"trainer.max_steps={limit}")
            assert done.returncode == 0, done.stderr
    weights = [(tmp_path / run / "checkpoints/last/model.safetensors").read_bytes() for run in ("straight", "parted")]
    assert weights[0] == weights[1]
    risks = [record["risk"] for record in records(tmp_path / "straight", "train")]
    assert len(risks) == 4
    assert all(0 < risk < 1 for risk in risks)


def test_attention_that_is_drawn_is_refused(call: Callable[..., Any], tiny_options: list[str]) -> None:
    options = ["trainer.minimum_risk.weight=0.5", "model.attention.normalizer=hard", "trainer.max_steps=1"]
    done = call("train", *tiny_options, *options)
    assert done.returncode == 2
    assert done.stderr.startswith("error: trainer.minimum_risk.weight=0.5 needs probabilities of translations, and ")
