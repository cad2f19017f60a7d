"""The recipes of CONTRIBUTING.md can be followed: their code, put where they say, works."""

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from nmt.attention import scores
from nmt.config.schema import AttentionConfig, DataConfig
from nmt.data.corpus import CORPORA, load_split
from nmt.evaluation import registry
from nmt.models import decoder
from nmt.search.beam import beam_search
from nmt.training.objective import token_loss
from tests.models.small import random_batch, small_model

PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def recipe(title: str, module: ModuleType | None = None) -> dict[str, Any]:
    """Run the code of a recipe, at the end of a module or in a new one, and return the names that it can see."""
    section = PAGE.split(f"### {title}\n")[1].split("\n### ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    names = {} if module is None else dict(vars(module))
    exec(code, names)
    return names


@pytest.mark.parametrize("part", ["score", "decoder"])
def test_a_part_of_the_model_learns_and_is_searched(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scores.SCORES, "bilinear", recipe("A score", scores)["Bilinear"])
    monkeypatch.setitem(decoder.DECODERS, "unfed", recipe("A decoder", decoder)["Unfed"])
    changes: Any = {"score": {"attention": AttentionConfig(score="bilinear")}, "decoder": {"decoder": "unfed"}}[part]
    model, batch = small_model(**changes), random_batch([(5, 4), (1, 7), (9, 1)])
    token_loss(model, model(batch), batch, label_smoothing=0.0).objective.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    limits = torch.full((len(batch),), 5)
    found = beam_search(model, batch.source, batch.source_mask, batch.source_lengths, beam_size=2, max_lengths=limits)
    assert len(found) == len(batch)


def test_a_metric_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    names = recipe("A metric", registry)
    (entry,) = re.findall(r'entry of `METRICS`: `"length_ratio": (.+)`\. It', PAGE)
    monkeypatch.setitem(registry.METRICS, "length_ratio", eval(entry, names))
    outcome: Any = SimpleNamespace(hypotheses=["a b", "c"], references=["a", "b c d e f"])
    assert registry.METRICS["length_ratio"].measure(outcome) == 0.5


def test_a_corpus_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CORPORA, "reversed", recipe("A corpus kind")["Reversed"])
    corpus = load_split(DataConfig(kind="reversed"), "validation")
    assert corpus[1] == {"source": "9 0 0 1", "target": "1 0 0 9", "alignment": "0-3 1-2 2-1 3-0"}
