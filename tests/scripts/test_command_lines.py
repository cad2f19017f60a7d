"""Wrong options of the scripts, and their help."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["study_attention", "--scores", "aditive"], "unknown score 'aditive': choose one of"),
        (["study_attention", "--windows", "local"], "did you mean 'local_"),
        (["study_attention", "trainer.max_step=3"], "did you mean 'trainer.max_steps'"),
        (["study_length", "--models", "bahdanau"], "unknown model 'bahdanau'"),
        (["study_alignment", "data=text"], "data.validation.source"),
        (["study_kernel_regression", "--points", "2"], "--points 2 are too few"),
        (["study_kernel_regression", "--noise", "1e20"], "--noise 1e+20 leaves nothing of the curve"),
        (["study_classification", "--test", "a.csv"], "--test belongs to --data"),
        (["study_entailment", "--test-split", "dev"], "--test-split belongs to --data"),
        (["benchmark", "train", "--precision", "bf16"], "--precision belongs to translate"),
        (["draw_sharpening", "a", "--output", "a.jpg"], "a.jpg names no format of animated pictures"),
        (["draw_sharpening", "a", "--milliseconds", "200000"], "more than a picture can hold: 131,070"),
        (["diversify", "--forward", "a", "--output", "b", "--original-share", "inf"], "--original-share is infinite"),
        (["diversify", "--backward", "a", "--output", "b", "--original-share=0", "--backward-share=0"], "all shares"),
        (["draw_attention_gallery"], "make some with scripts/study_attention.py"),
        (["draw_attention_gallery", "--run", "outputs/a"], "write NAME=RUN"),
    ],
)
def test_mistakes_are_told_in_one_line(
    line: list[str], message: str, tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(*line) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        ["study_kernel_regression", "--quick", "--output", "file"],
        ["study_classification", "--quick", "--output", "file"],
        ["study_attention", "--workers", "1", "--output", "file"],
        ["study_length", "--output", "file"],
        ["benchmark", "startup", "--json", "file/figures.json"],
        ["benchmark", "scaling", "--output", "file"],
        ["benchmark_fast_path", "--quick", "--output", "file/speeds.csv"],
    ],
    ids=" ".join,
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    line: list[str],
    tmp_path: Path,
    call: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_: pytest.fail("the work has begun"))
    assert call(*line) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert "file" in error


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("study_attention", ["Tables 4 and 6", "--quick"]),
        ("study_length", ["Figure 2", "--quick"]),
        ("study_alignment", ["Figure 3", "--quick"]),
        ("study_kernel_regression", ["Nadaraya", "--quick"]),
        ("study_classification", ["Yang et al.", "--quick"]),
        ("study_entailment", ["Parikh et al., 2016", "--quick"]),
        ("diversify", ["Nguyen et al., 2020", "Kim & Rush, 2016"]),
    ],
)
def test_help_names_the_source(
    name: str, expected: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(name, "--help") == 0
    text = capfd.readouterr().out
    assert all(each in text for each in expected)
