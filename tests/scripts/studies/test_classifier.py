"""The classifier of sentences: padding, empty sentences, saliency against finite differences, REINFORCE's loss."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt.attention.attention import Attended
from nmt.attention.normalizers import SampledAttention
from nmt.errors import UserError
from nmt.text.vocabulary import PAD

SENTENCES = [["a", "b", "c", "d", "e"], ["d"], ["a", "zzz"], []]
EVERY = [
    "last",
    "mean",
    "additive-softmax-global",
    "dot-entmax15-global",
    "location-sparsemax-local_p",
    "cosine-hard-global",
]


@pytest.fixture
def module(script: Callable[[str], Any]) -> Any:
    return script("studies.classifier")


def build(module: Any, pooling: str) -> Any:
    torch.manual_seed(1)
    vocabulary = module.WordVocabulary(["abcdeabcde"])
    return module.Classifier(vocabulary, 3, pooling).double().eval()


@pytest.mark.parametrize("pooling", EVERY)
def test_padding_changes_nothing(module: Any, pooling: str) -> None:
    model = build(module, pooling)
    batch = model.vocabulary.batch(SENTENCES)
    scores, attended = model(batch)
    important = module.saliency(model, batch)
    with torch.no_grad():
        model.encoder.embedding.weight[PAD] = 5.0
    torch.testing.assert_close(model(batch)[0], scores, rtol=0, atol=0)
    for row, words in enumerate(SENTENCES):
        alone = model.vocabulary.batch([words])
        end = max(len(words), 1)
        torch.testing.assert_close(model(alone)[0][0], scores[row])
        torch.testing.assert_close(module.saliency(model, alone)[0], important[row, :end])
        assert (important[row, end:] == 0).all()
        if attended is not None:
            torch.testing.assert_close(model(alone)[1].weights[0, 0], attended.weights[row, 0, :end])


@pytest.mark.parametrize("pooling", EVERY)
def test_sentences_without_words_and_of_one(module: Any, pooling: str) -> None:
    """Both are one state, which has all the weight; that of no words is an unknown word's."""
    model = build(module, pooling)
    empty, one, unknown = module.predict(model, [module.LabeledSentence(words, 0) for words in ([], ["a"], ["zzz"])])
    assert empty.probabilities == pytest.approx(unknown.probabilities)
    assert one.probabilities.sum() == pytest.approx(1)
    assert one.saliency == pytest.approx([1.0])
    if one.weights is not None and "local_p" not in pooling:
        assert one.weights == pytest.approx([1.0])


def test_predictions_keep_the_order_of_the_sentences(module: Any) -> None:
    model = build(module, "mean")
    examples = [module.LabeledSentence(list("abcde")[:length], length) for length in (3, 1, 5, 2, 4)]
    predictions = module.predict(model, examples, size=2)
    assert [each.example for each in predictions] == examples
    assert [len(each.weights) for each in predictions] == [3, 1, 5, 2, 4]
    for each in predictions:
        assert each.probabilities == pytest.approx(module.predict(model, [each.example])[0].probabilities)


@pytest.mark.parametrize("pooling", ["last", "mean", "additive-softmax-global"])
def test_saliency_is_the_derivative_of_the_log_odds(module: Any, pooling: str) -> None:
    model, words = build(module, pooling), list("abcde")
    batch, step = model.vocabulary.batch([words]), 1e-6

    def log_odds(scores: torch.Tensor) -> float:
        p = scores[0].softmax(dim=0)[predicted].item()
        return float(torch.tensor(p / (1 - p), dtype=torch.float64).log())

    with torch.no_grad():
        predicted = int(model(batch)[0][0].argmax())
        derivatives = []
        for word in words:  # each occurs once, so that its vector fades with its row of the table
            row = model.encoder.embedding.weight[model.vocabulary.ids[word]]
            row *= 1 + step
            high = log_odds(model(batch)[0])
            row *= (1 - step) / (1 + step)
            low = log_odds(model(batch)[0])
            row /= 1 - step
            derivatives.append(abs(high - low))
    expected = [each / sum(derivatives) for each in derivatives]
    assert module.saliency(model, batch)[0].tolist() == pytest.approx(expected, rel=1e-4)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_sampled_weights_learn_by_reinforce(module: Any) -> None:
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    log_prob, entropy = torch.tensor([[-0.5], [-1.5]], requires_grad=True), torch.tensor([[0.3], [0.7]])
    nothing = torch.zeros(2, 1, 1)
    attended = Attended(nothing, nothing, nothing, SampledAttention(log_prob, entropy))
    batch = SimpleNamespace(batch=lambda sentences: sentences)
    model = type("Model", (), {"vocabulary": batch, "__call__": lambda self, batch: (scores, attended)})()
    loss = module.loss_of(model, [module.LabeledSentence(["a"], 0), module.LabeledSentence(["b"], 0)])
    losses = [-scores[0].log_softmax(0)[0].item(), -scores[1].log_softmax(0)[0].item()]
    mean = sum(losses) / 2
    terms = [
        loss - (mean - loss) * chosen - 0.01 * bonus
        for loss, chosen, bonus in zip(losses, (-0.5, -1.5), (0.3, 0.7), strict=True)
    ]
    assert loss.item() == pytest.approx(sum(terms) / 2)
    loss.backward()
    # The sentence that did better than the mean: its draw becomes likelier.
    assert log_prob.grad[:, 0].tolist() == pytest.approx([-(mean - losses[0]) / 2, -(mean - losses[1]) / 2])


def test_every_pooling_learns_which_word_decides(module: Any) -> None:
    """Sentences of three words, of which `a` or `b` decides; hard attention too, by REINFORCE."""
    texts = [f"{'cd'[:i]}{word}{'ec'[i:]}" for i in range(3) for word in "ab"]
    examples = [module.LabeledSentence(list(text), int("a" in text)) for text in texts] * 40
    for pooling in ("last", "general-hard-global"):
        torch.manual_seed(2)
        model = module.Classifier(module.WordVocabulary(texts * 2), 2, pooling)
        reports: list[str] = []
        module.train(model, examples, 12, reports.append)
        assert all(each.is_correct for each in module.predict(model, examples[:6])), pooling
        assert reports[-1].startswith("epoch 12 of 12, batch 4 of 4, loss ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("first", "unknown pooling 'first': choose last, mean or SCORE-NORMALIZER-WINDOW"),
        ("dot-softmax", "unknown pooling 'dot-softmax'"),
        ("dot-sofmax-global", "did you mean 'softmax'?"),
        ("dot-softmax-local_m", "unknown window of a pooling 'local_m': choose one of global, local_p"),
    ],
)
def test_poolings_that_do_not_exist(module: Any, name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        module.build_pooling(name)
    assert message in str(caught.value)
