"""Several models that translate together."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.config.schema import TokenizerConfig
from nmt.data.batch import collate
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.translator import Translator
from tests.sentences import SENTENCES


@pytest.fixture(scope="module")
def other_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run as if it had learned somewhat else."""
    folder = tmp_path_factory.mktemp("other") / "best"
    shutil.copytree(tiny_run / "checkpoints" / "best", folder)
    generator = torch.Generator().manual_seed(5)
    weights = load_file(folder / "model.safetensors")
    noisy = {name: each + 0.1 * torch.randn(each.shape, generator=generator) for name, each in weights.items()}
    save_file(noisy, folder / "model.safetensors", metadata={"step": "7"})
    (folder / "manifest.json").unlink()
    return folder


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_ensemble_says_what_its_members_find_likely_together(
    tiny_run: Path, other_run: Path, precision: str
) -> None:
    """The log-probability of a translation is that of the members' mean, token by token."""
    together = Translator.load(tiny_run, "cpu", precision, ensemble=[other_run], beam_size=1)
    assert together.ensemble == [other_run]
    assert (
        together.longest_source == Translator.load(tiny_run, "cpu").longest_source
    )  # the least: of the other it is not known
    assert together.longest_source < Translator.load(other_run, "cpu").longest_source
    assert Translator.load(other_run, "cpu", ensemble=[tiny_run]).longest_source == together.longest_source
    found = together.translate(SENTENCES)
    alone = [Translator.load(run, "cpu", precision, beam_size=1) for run in (tiny_run, other_run)]
    assert [each.text for each in found] != [each.text for each in alone[1].translate(SENTENCES)]
    source, target = together.tokenizers.source, together.tokenizers.target
    for each in found:
        (ids,) = source.encode([each.source])
        tokens = np.array(target.ids_of(each.pieces))
        batch = collate([np.array(ids)], [tokens], np.arange(1))
        with torch.inference_mode():
            log_probs = torch.stack([member.model.log_probs(batch)[0].double() for member in alone])
        expected = log_probs.exp().mean(dim=0).log()
        search = together.search
        limit = (len(ids) + 1) * search.max_length_ratio + search.max_length_offset
        cut = len(tokens) == int(limit)  # the end mark was not produced
        # Integers are rounded by the range of all vectors that are multiplied at once.
        tolerance = 1e-4 if precision == "fp32" else 0.02
        assert each.log_prob == pytest.approx(float(expected[: -1 if cut else None].sum()), rel=tolerance)


def test_members_of_an_ensemble_have_the_same_subwords(tiny_run: Path, other_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "third"
    shutil.copytree(other_run, folder)
    config = TokenizerConfig(vocab_size=300)
    build_tokenizers(SENTENCES * 9, SENTENCES * 9, config).save(folder)
    weights = load_file(folder / "model.safetensors")
    size = len(Tokenizers.load(folder).source)
    smaller = {name: each[:size] if len(each) > 300 else each for name, each in weights.items()}
    save_file({name: each.contiguous() for name, each in smaller.items()}, folder / "model.safetensors")
    with pytest.raises(UserError, match="have different subwords and cannot translate together"):
        Translator.load(tiny_run, "cpu", ensemble=[folder])
