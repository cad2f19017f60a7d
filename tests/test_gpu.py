"""Training and translating on a GPU.

Run with `python -m pytest -m gpu` on a machine with a CUDA device; the same paths are tested on the CPU by
test_train.py, test_translator.py and training/test_trainer.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from nmt.config.schema import AttentionConfig
from nmt.fast.accelerate import accelerate, decelerate, replaced_methods
from nmt.fast.recurrence import RECORDER
from nmt.training.distributed import COLLECTIVE_TIMEOUT, MultiProcess
from nmt.training.objective import token_loss
from nmt.training.torchrun_env import RankEnvironment
from tests.fast.equality import run
from tests.models.small import name_of, random_batch, small_model, variants

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic kernels; read when first used

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


@pytest.mark.parametrize("variant", [each for each in variants() if each.get("decoder") != "gnmt"], ids=name_of)
def test_recordings_equal_the_readable_path_batch_after_batch(variant: dict):
    """As tests/fast/test_recording.py, which explains it, by real CUDA graphs."""
    model = small_model(**variant).to("cuda")
    for seed, lengths in enumerate([[(5, 4), (1, 7), (9, 1)], [(7, 9), (2, 3)], [(6, 5), (2, 6), (8, 2)], [(1, 1)]]):
        batch = random_batch(lengths, seed=seed).to("cuda")
        expected, found = (run(model, batch, fast=fast) for fast in (False, True))
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-9)
    if "unroll" in replaced_methods(model.decoder):
        recordings = vars(model.decoder)[RECORDER].recordings
        assert len(recordings) == 3
        assert None not in recordings.values()


def test_recording_draws_no_random_numbers():
    """A resumed run records again what an undisturbed one has recorded long before; both draw the same masks."""
    batch, found = random_batch([(5, 4), (1, 7), (9, 1)]).to("cuda"), []
    for is_recorded in (False, True):
        model = accelerate(small_model(decoder="luong", num_layers=2, dropout=0.4).to("cuda"))
        model.encoder.rnn.dropout = 0.0  # cuDNN has a generator of its own
        if is_recorded:
            model(batch)
        torch.cuda.manual_seed(1)
        found.append([model(batch).features.sum().item() for _ in range(3)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


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
    batch, model = (
        random_batch([(5, 4), (1, 7), (9, 1)]).to("cuda"),
        small_model(attention=AttentionConfig(normalizer=normalizer)).to("cuda"),
    )
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
        "trainer.device=cuda trainer.max_steps=150 trainer.max_epochs=null trainer.max_minutes=null "
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


def test_a_run_that_was_ended_goes_on_exactly(tmp_path: Path):
    """What is recorded anew, and when, changes nothing."""
    options = (
        "trainer.device=cuda trainer.max_epochs=null trainer.max_minutes=null deterministic=true model=luong "
        "schedule=constant data.grammar.train_size=500 data.grammar.validation_size=20 data.grammar.test_size=20 "
        "data.grammar.long_size=5"
    )

    def train(run: str, steps: int) -> bytes:
        folders = [f"run_dir={tmp_path / run}", f"data.cache_dir={tmp_path / 'cache'}"]
        command = [sys.executable, "-m", "nmt.train", *folders, *options.split(), f"trainer.max_steps={steps}"]
        subprocess.run(command, check=True)
        return (tmp_path / run / "checkpoints/last/model.safetensors").read_bytes()

    train("parted", 25)
    assert train("parted", 60) == train("straight", 60)


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
        wrapped = group.data_parallel(module)
        wrapped(tensors[0]).sum().backward()
        assert module.weight.grad.tolist() == [[1.0] * 3] * 2
        assert group.sum_over_ranks(2) == 2.0
        (gathered,) = group.all_gather(torch.cuda.get_rng_state(device))
        assert torch.equal(gathered, torch.cuda.get_rng_state(device))
    finally:
        dist.destroy_process_group()
