"""Training and translating on a GPU.

Run with `python -m pytest -m gpu` on a machine with a CUDA device; the same paths are tested on the CPU by
test_train.py, test_translator.py and training/test_trainer.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from nmt.fast.accelerate import accelerate, decelerate
from nmt.training.distributed import COLLECTIVE_TIMEOUT, MultiProcess
from nmt.training.objective import token_loss
from nmt.training.torchrun_env import RankEnvironment
from tests.fast.equality import run
from tests.models.small import random_batch, small_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "gnmt"])
def test_the_fast_path_equals_the_readable_one(decoder: str, cell: str):
    """As tests/fast/test_recurrence.py, which explains it, on the GPU: torch's own layers there are cuDNN."""
    batch = random_batch([(5, 4), (1, 7), (9, 1)]).to("cuda")
    model = small_model(decoder=decoder, cell=cell, num_layers=2).to("cuda")
    found = []
    for fast in (False, True):
        (accelerate if fast else decelerate)(model)
        model.zero_grad()
        token_loss(model, model(batch), batch, label_smoothing=0.1).objective.backward()
        found.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "gnmt"])
def test_so_it_does_in_two_passes_through_dropout(decoder: str):
    """As tests/fast/test_dropout.py: masks for all steps, or words, are drawn in the same order."""
    rates = {"dropout": 0.4, "word_dropout": 0.2, "locked_dropout": True}
    model = small_model(decoder=decoder, num_layers=2, **rates).to("cuda")
    model.encoder.rnn.dropout = model.decoder.stack.dropout.p = 0.0
    batch = random_batch([(5, 4), (1, 7), (9, 1)]).to("cuda")
    expected, found = (run(model, batch, fast=fast, consistency=2.0) for fast in (False, True))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15"])
def test_deterministic_kernels_have_all_that_training_needs(normalizer: str):
    batch, model = random_batch([(5, 4), (1, 7), (9, 1)]).to("cuda"), small_model(normalizer=normalizer).to("cuda")
    losses = []
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic)
        try:
            loss = token_loss(model, model(batch), batch, label_smoothing=0.1).objective
            loss.backward()
        finally:
            torch.use_deterministic_algorithms(False)
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "gnmt"])
def test_training_on_a_gpu_learns(tmp_path: Path, decoder: str, precision: str):
    options = (
        "trainer.device=cuda trainer.max_steps=300 trainer.max_epochs=null trainer.max_minutes=null "
        f"trainer.precision={precision} model={decoder} model.num_layers=2 data.grammar.train_size=2000 "
        "data.grammar.test_size=50 data.grammar.long_size=20 data.grammar.validation_size=50"
    ).split()
    command = [sys.executable, "-m", "nmt.train", f"run_dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path}", *options]
    subprocess.run(command, check=True)
    from nmt.translator import Translator

    torch.backends.cudnn.allow_tf32 = False  # so that the two may be compared
    on_gpu, on_cpu = (Translator.load(tmp_path / "run", device=device) for device in ("cuda", "cpu"))
    lines = ["The small cat sleeps.", "They never saw the old garden."]
    assert [each.text for each in on_gpu.translate(lines)] == [each.text for each in on_cpu.translate(lines)]


def test_collective_calls_and_gradients_of_tensors_on_a_gpu_use_nccl(tmp_path: Path):
    """In a group of one: several need a GPU each."""
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=store, rank=0, world_size=1)
    try:
        group = MultiProcess(RankEnvironment(), dist.new_group(timeout=COLLECTIVE_TIMEOUT))
        device = group.device("cuda")
        tensors = [torch.ones(3, device=device), torch.arange(4, device=device)]
        assert [group.all_reduce_(tensor).tolist() for tensor in tensors] == [[1.0] * 3, [0, 1, 2, 3]]
        module = torch.nn.Linear(3, 2, device=device)
        group.data_parallel(module)(tensors[0]).sum().backward()
        assert module.weight.grad.tolist() == [[1.0] * 3] * 2
        assert group.sum_over_ranks(2) == 2.0
        (gathered,) = group.all_gather(torch.cuda.get_rng_state(device))
        assert torch.equal(gathered, torch.cuda.get_rng_state(device))
    finally:
        dist.destroy_process_group()
