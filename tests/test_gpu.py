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

from nmt.config.schema import AttentionConfig
from nmt.fast.recording import OF_DECODERS
from nmt.training.distributed import WAITING, Group
from nmt.training.objective import token_loss
from nmt.training.torchrun_env import Launch
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
        model.encoder.fast = model.decoder.fast = fast
        model.zero_grad()
        token_loss(model, model(batch), batch, label_smoothing=0.1).objective.backward()
        found.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("attention", [{}, {"score": "general"}, {"normalizer": "entmax15"}])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_recorded_chains_equal_the_readable_path(decoder: str, attention: dict):
    """As tests/fast/test_recording.py, with CUDA graphs in the place of its tape."""
    model = small_model(decoder=decoder, num_layers=2, attention=AttentionConfig(**attention)).to("cuda")
    for lengths in ([(5, 4), (1, 7), (9, 1)],) * 3 + ([(8, 6), (2, 3), (7, 5), (1, 1)],) * 2:
        batch = random_batch(lengths, seed=len(lengths)).to("cuda")
        found = []
        for fast in (False, True):
            model.decoder.fast = fast
            model.zero_grad()
            token_loss(model, model(batch), batch, label_smoothing=0.1).objective.backward()
            found.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
        for name, gradient in found[0].items():
            torch.testing.assert_close(found[1][name], gradient, rtol=1e-7, atol=1e-9)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    (of_device,) = OF_DECODERS[model.decoder].values()
    assert len([each for each in of_device.recordings.values() if each is not None]) == 1


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


def test_what_processes_say_of_tensors_on_a_gpu_is_said_by_nccl(tmp_path: Path):
    """By a group of one: several need a GPU each."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    try:
        group = Group(Launch(), dist.new_group(timeout=WAITING))
        device = group.device("cuda")
        tensors = [torch.ones(3, device=device), torch.arange(4, device=device)]
        group.add_up(tensors)
        group.copy_from_first(tensors)
        assert [tensor.tolist() for tensor in tensors] == [[1.0] * 3, [0, 1, 2, 3]]
        assert group.total(2) == [2.0]
        assert torch.equal(*group.gather(torch.cuda.get_rng_state(device)), torch.cuda.get_rng_state(device))
    finally:
        dist.destroy_process_group()
