"""Guided alignment: the term against a loop over words; what it does to training; what a user may get wrong."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from nmt.alignment.targets import target_attention
from nmt.config.schema import (
    AttentionConfig,
    DataConfig,
    GuidedAlignmentConfig,
    ModelConfig,
    SplitConfig,
    TrainConfig,
    TrainerConfig,
)
from nmt.data.batch import Batch, collate
from nmt.errors import UserError
from nmt.models.build import build_model
from nmt.training.guided_alignment import KINDS, guided_alignment_loss, guided_alignment_weight
from nmt.training.prepare import check_guided_alignment, check_run

Pair = tuple[list[int], list[int], dict[int, set[int]]]

GUIDED = "trainer.guided_alignment.weight=1"


@st.composite
def guided_pairs(draw: st.DrawFn) -> Pair:
    """How many pieces each word has, and to which source words each target word is linked; many to none."""
    source, target = (draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in range(2))
    words = st.sets(st.integers(0, len(source) - 1), max_size=2)
    return source, target, {j: draw(words) for j in range(len(target))}


def batch_of(pairs: list[Pair]) -> Batch:
    """A batch of such pairs, their ids of no importance."""
    sources, targets, attention = [], [], []
    for source, target, links in pairs:
        words = [np.repeat(np.arange(len(side)), side) for side in (source, target)]
        line = " ".join(f"{i}-{j}" for j, linked in links.items() for i in linked)
        attention.append(target_attention(line, words[0], words[1]))
        sources.append(np.arange(4, 4 + sum(source), dtype=np.int32))
        targets.append(np.arange(4, 4 + sum(target), dtype=np.int32))
    return collate(sources, targets, np.arange(len(pairs)), attention)


def attended(batch: Batch, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Weights of attention such as a model might pay: 0 on padding, and anything for target padding."""
    scores = torch.randn(*batch.target_out.shape, batch.source.shape[1], dtype=dtype)
    return scores.masked_fill(~batch.source_mask[:, None], float("-inf")).softmax(dim=-1)


def by_words(pairs: list[Pair], weights: torch.Tensor, kind: str) -> float:
    """The term, word by word and piece by piece."""
    total = 0.0
    for (source, target, links), rows in zip(pairs, weights.tolist(), strict=True):
        for j, linked in links.items():
            if not linked:
                continue
            gold = [i in linked for i, count in enumerate(source) for _ in range(count)]
            before = sum(target[:j])
            for row in rows[before : before + target[j]]:
                for column, weight in enumerate(row):
                    wanted = 1 / sum(gold) if column < len(gold) and gold[column] else 0.0
                    distance = (weight - wanted) ** 2 / 2
                    total += distance if kind == "squared" else -wanted * math.log(weight + 1e-6)
    return total


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(guided_pairs(), min_size=1, max_size=4))
def test_the_term_equals_a_loop_over_words(kind: str, pairs: list[Pair]) -> None:
    batch = batch_of(pairs)
    weights = attended(batch)
    assert batch.alignment is not None
    found = guided_alignment_loss(weights, batch.alignment, kind).item()
    assert found == pytest.approx(by_words(pairs, weights, kind), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_irrelevant(kind: str) -> None:
    pairs: list[Pair] = [
        ([1, 2], [2], {0: {1}}),
        ([1, 1, 3, 1], [2, 1, 3], {0: {0}, 1: set(), 2: {2, 3}}),
        ([2], [1], {0: set()}),
    ]
    batch = batch_of(pairs)
    weights = attended(batch)
    assert batch.alignment is not None
    together = guided_alignment_loss(weights, batch.alignment, kind)
    apart = torch.zeros((), dtype=torch.float64)
    for row, pair in enumerate(pairs):
        alone = batch_of([pair])
        assert alone.alignment is not None
        _, num_targets, num_sources = alone.alignment.shape
        apart += guided_alignment_loss(weights[row : row + 1, :num_targets, :num_sources], alone.alignment, kind)
    torch.testing.assert_close(together, apart)
    weights[~batch.target_mask] = 0.5
    torch.testing.assert_close(guided_alignment_loss(weights, batch.alignment, kind), together)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str) -> None:
    batch = batch_of([([1, 2], [2], {0: {1}}), ([1, 3, 1], [2, 1], {0: {0, 2}, 1: set()})])
    assert batch.alignment is not None
    alignment = batch.alignment.double()
    weights = attended(batch).clamp(min=1e-3).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: guided_alignment_loss(w, alignment, kind), (weights,))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_of_exactly_zero_are_borne(kind: str, dtype: torch.dtype) -> None:
    """A sparse normalizer that looks at one wrong piece: dear, but finite, and so is its gradient."""
    batch = batch_of([([1, 1, 1], [1, 1], {0: {1}, 1: {2}})])
    assert batch.alignment is not None
    weights = torch.zeros(1, 3, 4, dtype=dtype)
    weights[..., 0] = 1.0
    weights.requires_grad_()
    loss = guided_alignment_loss(weights, batch.alignment, kind)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(2 * (-math.log(1e-6) if kind == "cross_entropy" else 1.0))
    loss.backward()
    assert weights.grad is not None
    assert weights.grad.isfinite().all()
    assert not weights.grad[:, 2].any()  # the end mark is not taught


@pytest.mark.parametrize("kind", KINDS)
def test_the_gold_itself_is_the_cheapest(kind: str) -> None:
    batch = batch_of([([2, 1], [1, 2], {0: {0}, 1: {0, 1}})])
    assert batch.alignment is not None
    least = guided_alignment_loss(batch.alignment, batch.alignment, kind)
    for _ in range(20):
        assert guided_alignment_loss(attended(batch, torch.float32), batch.alignment, kind) > least


def test_an_unlinked_batch_costs_nothing() -> None:
    batch = batch_of([([2, 1], [1, 2], {})])
    assert batch.alignment is not None
    for kind in KINDS:
        assert guided_alignment_loss(attended(batch), batch.alignment, kind) == 0.0


def test_the_weight_decays_over_epochs() -> None:
    config = GuidedAlignmentConfig(weight=0.8, decay=0.25)
    assert [guided_alignment_weight(config, epochs) for epochs in (0.0, 0.5, 1.0, 2.0)] == [0.8, 0.4, 0.2, 0.05]
    assert guided_alignment_weight(GuidedAlignmentConfig(weight=0.8), 7.3) == 0.8


def test_the_gradient_reaches_the_attention() -> None:
    """The loss by itself turns the attention of a small model to where the links point."""
    torch.manual_seed(1)
    model = build_model(ModelConfig(embedding_size=16, hidden_size=32, dropout=0.0), 12, 12, joint=True)
    batch = batch_of([([1, 1, 1], [1, 1, 1], {0: {2}, 1: {0}, 2: {1}})])
    assert batch.alignment is not None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        guided_alignment_loss(model(batch).weights, batch.alignment, "cross_entropy").backward()
        optimizer.step()
    assert model(batch).weights[0].argmax(dim=1).tolist()[:3] == [2, 0, 1]
    assert (model(batch).weights * batch.alignment).sum() > 2.8


# --- in a run -----------------------------------------------------------------------------------------------


Call = Callable[..., Any]
RUN = (
    "trainer.evaluate=false",
    "trainer.num_samples=0",
    "trainer.log_every=1",
    "trainer.validate_every_steps=1000",
    "tokenizer.sampling=0.2",
)


def train(call: Call, tiny_options: list[str], run_dir: Path, *options: str) -> list[dict[str, Any]]:
    done = call("train", f"run_dir={run_dir}", *tiny_options, *RUN, *options)
    assert done.returncode == 0, done.stderr
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == "train"]


def parameters(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "checkpoints" / "last" / "model.safetensors")


def test_a_guided_run_goes_on_exactly_where_it_stopped(call: Call, tiny_options: list[str], tmp_path: Path) -> None:
    options = (GUIDED, "trainer.guided_alignment.decay=0.5", "trainer.accumulate=2", "model.dropout=0.3")
    straight = train(call, tiny_options, tmp_path / "straight", *options, "trainer.max_steps=4")
    train(call, tiny_options, tmp_path / "parted", *options, "trainer.max_steps=2")
    parted = train(call, tiny_options, tmp_path / "parted", *options, "trainer.max_steps=4")
    left, right = (parameters(tmp_path / name) for name in ("straight", "parted"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    losses = [
        [(record["step"], record["loss"], record["alignment_loss"]) for record in run] for run in (straight, parted)
    ]
    assert losses[0] == losses[1]


def test_guidance_teaches_and_is_reported(call: Call, tiny_options: list[str], tmp_path: Path) -> None:
    """The first update's loss is the same with and without, and what is off leaves no trace."""
    runs = {}
    for weight, steps in ((0.0, 1), (1.0, 20)):
        options = (f"trainer.guided_alignment.weight={weight}", f"trainer.max_steps={steps}")
        runs[weight] = train(call, tiny_options, tmp_path / str(weight), *options)
    assert all("alignment_loss" not in record for record in runs[0.0])
    assert runs[0.0][0]["loss"] == runs[1.0][0]["loss"]
    assert runs[0.0][0]["gradient_norm"] != runs[1.0][0]["gradient_norm"]
    guided = [record["alignment_loss"] for record in runs[1.0]]
    assert sum(guided[-10:]) < sum(guided[:10])  # single batches differ in length, and so in loss


def text_options(folder: Path, alignment: str | None) -> list[str]:
    """A corpus of twenty pairs in files."""
    (folder / "t.en").write_text("the old river\na window\n" * 10, encoding="utf-8")
    (folder / "t.fr").write_text("la vieille rivière\nune fenêtre\n" * 10, encoding="utf-8")
    sides = [
        f"data.{split}.{side}={folder}/t.{end}"
        for split in ("train", "validation")
        for side, end in (("source", "en"), ("target", "fr"))
    ]
    options = ["data=text", *sides, f"data.cache_dir={folder}/cache", "trainer.max_steps=2", *RUN]
    options += ["tokenizer.vocab_size=310", "model.hidden_size=16", "model.embedding_size=16"]
    if alignment is not None:
        (folder / "t.links").write_text(alignment, encoding="utf-8")
        options.append(f"data.train.alignment={folder}/t.links")
    return options


def test_links_may_come_from_a_file_and_be_missing_in_lines(call: Call, tmp_path: Path) -> None:
    done = call("train", "run_dir=run", *text_options(tmp_path, "0-0 1-1 2?2\n\n" * 10), GUIDED)
    assert done.returncode == 0, done.stderr
    assert "alignment_loss" in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        (
            None,
            "trainer.guided_alignment.weight=1 needs gold alignments of the training text: "
            "set data.train.alignment=FILE, or the weight to 0",
        ),
        ("0-0\n" * 19, "{0}/t.links has 19 lines but {0}/t.en has 20: line 20 is the first without a counterpart"),
        (
            "0-0\n1-2\n" * 10,
            "{0}/t.links, line 2: link 1-2 points outside the pair, which has 2 source and 2 target words: positions "
            "count from 0 and come as source-target; check that the files are in step",
        ),
        (
            "\n" * 20,
            "trainer.guided_alignment has nothing to teach: the gold alignments of the training text hold no links; "
            "look at data.train.alignment, or set trainer.guided_alignment.weight=0",
        ),
    ],
    ids=["none", "fewer lines", "outside", "no links"],
)
def test_a_mistake_is_told_in_one_line(call: Call, tmp_path: Path, alignment: str | None, message: str) -> None:
    done = call("train", f"run_dir={tmp_path}/run", *text_options(tmp_path, alignment), GUIDED)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {message.format(tmp_path)}"
    assert not (tmp_path / "run").exists()


TEXT = SplitConfig(source="a", target="b")


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        (DataConfig(kind="text", train=TEXT, validation=TEXT), ModelConfig(), "set data.train.alignment=FILE, or"),
        (DataConfig(kind="hub"), ModelConfig(), "gold alignments, which data=hub lacks: use data=text, or"),
        (DataConfig(), ModelConfig(attention=AttentionConfig(normalizer="hard")), "normalizer=hard do not: choose"),
        (DataConfig(), ModelConfig(decoder="fixed_context"), "model=fixed_context lacks: choose another"),
    ],
)
def test_what_cannot_be_guided_is_told_before_any_work(data: DataConfig, model: ModelConfig, message: str) -> None:
    guided = GuidedAlignmentConfig(weight=0.5)
    config = TrainConfig(data=data, model=model, trainer=TrainerConfig(max_steps=1, guided_alignment=guided))
    with pytest.raises(UserError, match=rf"trainer\.guided_alignment\.weight=0\.5 needs .*{message}"):
        check_guided_alignment(config)


def test_without_guidance_nothing_is_asked_of_the_corpus() -> None:
    check_run(
        TrainConfig(data=DataConfig(kind="text", train=TEXT, validation=TEXT), trainer=TrainerConfig(max_steps=1))
    )
