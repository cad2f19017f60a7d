"""The studies: what they write, at tiny size; and what they compute, against what is too simple to be wrong."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nmt.config.file import save_config
from nmt.config.schema import DataConfig, GrammarConfig, TrainConfig, TrainerConfig
from nmt.errors import UserError
from tests.scripts.running import PNG, ROOT, study, table

STEPS = ("--steps", "6", "--seed", "3")
# Enough sentences for one with an adjective behind its noun.
SENTENCES = ("data.grammar.validation_size=60", "trainer.log_every=2")
ATTENTION = ("score", "normalizer", "window", "bleu", "aer", "attention_entropy", "exact_zeros", "tokens_per_second")
EFFORT = ("parameters", "updates", "minutes")


# --- study_attention ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def attention_study(tmp_path_factory: pytest.TempPathFactory, tiny_options: list[str]) -> Path:
    """A folder in which two runs of the study are finished."""
    folder = tmp_path_factory.mktemp("attention")
    chosen = ("--scores", "additive", "dot", "--normalizers", "sparsemax", "--windows", "global", "--workers", "2")
    done = study("study_attention", *tiny_options, *SENTENCES, *STEPS, *chosen, cwd=folder)
    assert "sparsemax" in done.stdout
    return folder


def test_attention_writes_a_row_a_composition(attention_study: Path) -> None:
    output = attention_study / "outputs/study_attention"
    rows = table(output)
    assert tuple(rows[0]) == (*ATTENTION, *EFFORT)
    assert [(row["score"], row["normalizer"], row["window"]) for row in rows] == [
        ("additive", "sparsemax", "global"),
        ("dot", "sparsemax", "global"),
    ]
    additive, dot = rows
    size, queries = 64, 64
    assert int(additive["parameters"]) - int(dot["parameters"]) == size * (queries + size + 2)
    assert (additive["updates"], dot["updates"]) == ("6", "6")
    assert all(0 < float(row["exact_zeros"]) < 1 and float(row["tokens_per_second"]) > 0 for row in rows)
    assert (output / "figure.png").read_bytes().startswith(PNG)
    scores = json.loads((output / "runs/dot-sparsemax-global/evaluation/test/metrics.json").read_text())
    assert float(dot["aer"]) == pytest.approx(scores["aer"], rel=1e-5)


def test_attention_goes_on_where_it_stopped(
    attention_study: Path, tiny_options: list[str], call: Callable[..., int]
) -> None:
    output = attention_study / "outputs/study_attention"
    weights = output / "runs/additive-sparsemax-global/checkpoints/best/model.safetensors"
    before, stamp = table(output), weights.stat().st_mtime_ns
    chosen = ("--scores", "additive", "linear", "--normalizers", "sparsemax", "--windows", "global", "--workers", "1")
    assert call("study_attention", *tiny_options, *SENTENCES, *STEPS, *chosen, cwd=attention_study) == 0
    assert weights.stat().st_mtime_ns == stamp
    after = table(output)
    assert [row["score"] for row in after] == ["additive", "dot", "linear"]
    assert after[:2] == before


def test_attention_of_another_seed_is_not_that_of_the_first(
    attention_study: Path, tiny_options: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even where the runs asked for are new: the table would hold both."""
    before = {file: file.stat().st_mtime_ns for file in attention_study.rglob("*")}
    for score in ("additive", "gaussian"):
        chosen = ("--scores", score, "--normalizers", "sparsemax", "--windows", "global", "--workers", "1")
        line = ("study_attention", *tiny_options, *SENTENCES, "--steps", "6", "--seed", "4", *chosen)
        assert call(*line, cwd=attention_study) == 2
        output, error = capfd.readouterr()
        run = "outputs/study_attention/runs/additive-sparsemax-global"
        assert f"error: {run} was trained with seed=3, not 4: give another --output" in error
        assert output == ""
    assert {file: file.stat().st_mtime_ns for file in attention_study.rglob("*")} == before


def test_gallery(attention_study: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    page = attention_study / "attention.md"
    text = (ROOT / "docs/attention.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    runs = attention_study / "outputs/study_attention/runs"
    arguments = ("--page", str(page), "--runs", str(runs), "--run", f"dots={runs / 'dot-sparsemax-global'}")
    assert call("draw_attention_gallery", *arguments, cwd=attention_study) == 0
    assert "no run of additive-softmax-global" in capfd.readouterr().err
    pictures = {file.name: file.stat().st_size for file in (attention_study / "attention").iterdir()}
    assert pictures.keys() == {"additive-sparsemax-global.png", "dots.png"}
    assert max(pictures.values()) < 12_000
    drawn = page.read_text(encoding="utf-8")
    assert "(attention/dots.png)" in drawn
    assert "Not drawn yet" not in drawn
    before, after = text.split("<!-- gallery")[0], text.split("<!-- end of gallery -->")[1]
    assert drawn.startswith(before)
    assert drawn.endswith(after)
    assert call("draw_attention_gallery", *arguments, cwd=attention_study) == 0
    assert page.read_text(encoding="utf-8") == drawn


def choices(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"scores": None, "normalizers": None, "windows": None, "quick": False, **given})


def test_all_compositions_are_chosen_once(script: Callable[[str], Any]) -> None:
    module = script("study_attention")
    compositions = module.chosen(choices())
    assert len(set(compositions)) == len(compositions) == 8 * 4 * 3
    assert {each.score for each in module.chosen(choices(scores=["concat"]))} == {"concat"}
    quick = module.chosen(choices(quick=True))
    assert set(quick) < set(compositions)
    assert len(quick) == 8 + 3 + 2
    assert [{each[part] for each in quick} for part in range(3)] == [
        {each[part] for each in compositions} for part in range(3)
    ]


def test_compositions_that_cannot_be_are_left_out(
    script: Callable[[str], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    module, base = script("study_attention"), TrainConfig()
    base.model.attention.coverage = "accumulated"
    compositions = module.chosen(choices(normalizers=["softmax"], windows=["global"]))
    assert [each.score for each in module.trainable(base, compositions)] == ["additive"]
    assert "left out dot x softmax x global: model.attention.coverage=accumulated" in capfd.readouterr().err
    with pytest.raises(UserError, match="no composition is left"):
        module.trainable(base, module.chosen(choices(scores=["dot"])))


@pytest.mark.parametrize("workers", [1, 2, 64])
@pytest.mark.parametrize(("minutes", "runs"), [(20.0, 96), (3.0, 13), (20.0, 3), (384.0, 96)])
def test_runs_share_the_time(script: Callable[[str], Any], minutes: float, runs: int, workers: int) -> None:
    settings = {"output": Path("o"), "quick": False, "steps": None, "common": [], "overrides": []}
    study = script("studies.study").Study(minutes=minutes, workers=workers, **settings)
    rounds = -(-runs // workers)
    assert 0.25 * minutes <= rounds * study.training_minutes(runs) < minutes
    assert study.training_minutes(runs, overhead=0.01) >= study.training_minutes(runs)


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_side_by_side_have_a_thread_each(script: Callable[[str], Any], workers: int) -> None:
    module = script("studies.study")
    parser = module.build_parser("", minutes=1.0)
    module.add_workers(parser)
    study = module.Study.of(parser.parse_args(["--workers", str(workers)]), "x")
    assert study.configure().threads == (None if workers == 1 else 1)
    assert module.Study.of(parser.parse_args(["--threads", "3", "--workers", "2"]), "x").configure().threads == 3


@pytest.fixture
def checked(
    script: Callable[[str], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[[dict[str, Any], dict[str, Any]], str]:
    """What `check_settings` says of a run and a configuration that differ from the defaults in these keys."""
    module = script("studies.study")

    def run(before: dict[str, Any], now: dict[str, Any], **options: bool) -> str:
        configs = []
        for changes in (before, now):
            composed = OmegaConf.structured(TrainConfig(run_dir=str(tmp_path)))
            for name, value in changes.items():
                OmegaConf.update(composed, name, value)
            configs.append(OmegaConf.to_object(composed))
        save_config(configs[0], tmp_path / "config.yaml")
        module.check_settings([configs[1]], **options)
        return capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("seed", 1, 2),
        ("model.attention.radius", 2, 5),
        ("data.grammar.max_length", 7, 60),
        ("trainer.max_steps", None, 9),
        ("optimizer.betas", [0.9, 0.98], [0.9, 0.999]),
        ("data.train.source", None, ["a.en", "b.en"]),
    ],
)
def test_other_settings_are_refused(checked: Any, tmp_path: Path, name: str, before: Any, now: Any) -> None:
    assert checked({name: now}, {name: now}) == ""
    message = rf"{tmp_path} was trained with {name}={before}, not {now}: give another --output".replace("[", r"\[")
    with pytest.raises(UserError, match=message):
        checked({name: before}, {name: now}, shares_may_differ=True)


def test_shares_of_time_may_differ_where_that_is_said(checked: Any) -> None:
    before: dict[str, Any] = {"trainer.max_minutes": 0.5, "trainer.max_epochs": 5, "threads": 1}
    now = {"trainer.max_minutes": 5.0, "trainer.max_epochs": None, "threads": 2}
    said = "another share of time (trainer.max_epochs=5, trainer.max_minutes=0.5)"
    assert said in checked(before, now, shares_may_differ=True)
    before["trainer.max_epochs"] = None
    with pytest.raises(UserError, match=r"trained with trainer\.max_minutes=0\.5, not 5\.0"):
        checked(before, now)
    assert checked({"threads": 1, "data.cache_dir": "a"}, {"threads": None, "data.cache_dir": "b"}) == ""


# --- study_length ---------------------------------------------------------------------------------------------


def test_length(
    tmp_path: Path, tiny_options: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    lengths = ("data.grammar.max_length=14", "data.grammar.long_length=12", "data.grammar.test_size=40")
    done = study("study_length", *tiny_options, *SENTENCES, *lengths, *STEPS, cwd=tmp_path)
    output = tmp_path / "outputs/study_length"
    rows = table(output)
    assert tuple(rows[0]) == ("model", "min_words", "max_words", "sentences", "bleu", *EFFORT)
    assert [(row["model"], row["min_words"], row["max_words"]) for row in rows] == [
        (model, *span) for model in ("fixed_context", "additive", "local_p") for span in (("1", "10"), ("11", "20"))
    ]
    # Both test splits, each sentence in one bucket.
    assert [sum(int(row["sentences"]) for row in rows[i : i + 2]) for i in (0, 2, 4)] == [43, 43, 43]
    assert (output / "figure.png").read_bytes().startswith(PNG)
    assert "kept" in done.stdout
    assert not (tmp_path / "outputs/latest").is_symlink()
    assert call("study_length", *tiny_options, *SENTENCES, *lengths, "--steps", "7", "--seed", "3") == 2
    assert "runs/fixed_context was trained with trainer.max_steps=6, not 7" in capfd.readouterr().err


# --- study_alignment ------------------------------------------------------------------------------------------


def test_alignment(
    tmp_path: Path, tiny_options: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    line = ("study_alignment", *tiny_options, *SENTENCES, "--output", "out")
    study(*line, "--steps", "20", cwd=tmp_path)
    rows = table(tmp_path / "out")
    figures = ("bleu", "aer", "attention_entropy", "adjective_weight", "noun_weight")
    assert tuple(rows[0]) == ("updates", "minutes", *figures)
    assert [int(row["updates"]) for row in rows] == [1, 2, 4, 9, 20]
    assert (tmp_path / "out/figure.png").read_bytes().startswith(PNG)
    assert all(0.0 < float(row["adjective_weight"]) < 1.0 for row in rows)
    minutes = [float(row["minutes"]) for row in rows]
    assert minutes == sorted(minutes)
    (tmp_path / "out/moment5.json").unlink()  # half-done
    for other, told in ((("--seed", "2"), "seed=1, not 2"), (("--steps", "40"), "trainer.max_steps=20, not 40")):
        assert call(*line, "--steps", "20", *other) == 2
        assert f"error: out was trained with {told}" in capfd.readouterr().err
    assert not (tmp_path / "out/moment5.json").exists()


def test_the_sentence_has_an_adjective_behind_its_noun(script: Callable[[str], Any], tmp_path: Path) -> None:
    module = script("study_alignment")
    data = DataConfig(cache_dir=str(tmp_path), grammar=GrammarConfig(validation_size=200, max_length=12))
    pair = module.crossing(data)
    (adjective, after), (noun, before) = pair.links
    source, target = pair.source.split(), pair.target.split()
    assert (noun, after) == (adjective + 1, before + 1)
    assert source[adjective] not in {"small", "big", "old", "beautiful", "new", "good", "young", "bad"}
    assert 5 <= len(source) <= 10
    assert max(after, before) < len(target)
    data.grammar.max_length = 3
    data.grammar.validation_size = 5
    with pytest.raises(UserError, match=r"data\.grammar\.validation_size=500"):
        module.crossing(data)


@pytest.mark.parametrize(("steps", "minutes"), [(None, 10.0), (1_000, None), (5, None), (7, 1.0)])
def test_moments_divide_the_training(script: Callable[[str], Any], steps: int | None, minutes: float | None) -> None:
    parts = script("study_alignment").parts(TrainConfig(trainer=TrainerConfig(max_steps=steps, max_minutes=minutes)))
    for limits, whole in (
        ([part.trainer.max_steps for part in parts], steps),
        ([part.trainer.max_minutes for part in parts], minutes),
    ):
        if whole is None:
            assert limits == [None] * 5
        else:
            assert limits == sorted(set(limits))
            assert limits[-1] == whole


# --- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["study_attention", "--scores", "aditive"], "unknown score 'aditive': choose one of"),
        (["study_attention", "--windows", "local"], "did you mean 'local_"),
        (["study_attention", "trainer.max_step=3"], "did you mean 'trainer.max_steps'"),
        (["study_length", "--models", "bahdanau"], "unknown model 'bahdanau'"),
        (["study_alignment", "data=text"], "data.validation.source"),
        (["study_kernel_regression", "--points", "2"], "--points 2 are too few"),
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


@pytest.mark.parametrize("name", ["attention", "length", "alignment", "kernel_regression"])
def test_help_names_the_source(name: str, call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert call(f"study_{name}", "--help") == 0
    text = capfd.readouterr().out
    sources = {"attention": "Table 4", "length": "Figure 2", "alignment": "Figure 3", "kernel_regression": "Nadaraya"}
    assert sources[name] in text
    assert "--quick" in text
