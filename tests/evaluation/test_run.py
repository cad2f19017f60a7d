import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.file import load_config
from nmt.config.schema import (
    DataConfig,
    EvaluateConfig,
    EvaluationDataConfig,
    ModelConfig,
    SearchConfig,
    SplitConfig,
    TokenizerConfig,
    TrainConfig,
)
from nmt.data.corpus import load_split
from nmt.data.tables import temporary_folder
from nmt.errors import UserError
from nmt.evaluation.run import (
    check_languages,
    choose_data,
    choose_views,
    evaluate,
    evaluation_folder,
    output_folder,
    unshared,
)
from nmt.models.build import build_model
from nmt.serving.served_run import ServedRun
from nmt.text.tokenizer import build_tokenizers
from nmt.training.run import link_latest
from nmt.translator import Translator

FILES = SplitConfig(source="a.en", target="a.de")


def config(split: str = "test", **data: SplitConfig) -> EvaluateConfig:
    return EvaluateConfig(split=split, data=EvaluationDataConfig(**data))


def test_the_runs_own_data_is_the_default() -> None:
    own = DataConfig(kind="hub", test=SplitConfig(name="test"))
    for split in ("test", "validation", "test_long"):
        assert choose_data(config(split), own) is own


@pytest.mark.parametrize("split", ["test", "validation"])
def test_files_replace_the_split_of_any_run(split: str) -> None:
    own = DataConfig(kind="grammar", source_language="en", target_language="de")
    data = choose_data(config(split, **{split: FILES}), own)
    assert (data.kind, getattr(data, split), data.target_language) == ("text", FILES, "de")


def test_gold_of_the_run_does_not_go_with_other_files() -> None:
    own = DataConfig(kind="text", test=SplitConfig(source="b", target="b", alignment="b.gold"))
    assert choose_data(config(test=FILES), own).test.alignment is None


def test_gold_can_be_added_to_the_runs_files() -> None:
    own = DataConfig(kind="text", test=FILES)
    data = choose_data(config(test=SplitConfig(alignment="gold")), own)
    assert data.test == SplitConfig(source="a.en", target="a.de", alignment="gold")
    assert own.test.alignment is None


def test_another_split_of_the_runs_hub_corpus() -> None:
    own = DataConfig(kind="hub", test=SplitConfig(name="test"))
    data = choose_data(config(test=SplitConfig(name="test[:9]")), own)
    assert (data.kind, data.test.name) == ("hub", "test[:9]")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (config("test", validation=FILES), "data.validation is given, but split=test is scored: add split=validation"),
        (config("test_long", test=FILES), "data.test is given, but split=test_long"),
        (config(test=SplitConfig(source="a")), "data.test.target is missing"),
        (config(test=SplitConfig(target="a", alignment="b")), "data.test.source is missing"),
        (
            config(test=SplitConfig(alignment="gold")),
            "data.test.alignment is given, and the run's data=grammar does not",
        ),
        (config(test=SplitConfig(name="test")), "data.test.name is given, and the run's data=grammar does not use it"),
    ],
)
def test_data_that_would_be_ignored_is_refused(given: EvaluateConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        choose_data(given, DataConfig())


@pytest.mark.parametrize(("kind", "ignored"), [("hub", "alignment"), ("text", "name")])
def test_one_key_that_the_run_uses_does_not_hide_another(kind: str, ignored: str) -> None:
    given = config(test=SplitConfig(name="test2", alignment="gold"))
    with pytest.raises(UserError, match=f"data.test.{ignored} is given, and the run's data={kind} does not use it"):
        choose_data(given, DataConfig(kind=kind, test=SplitConfig(source="a", target="b")))


def test_a_reverse_run_translates_back() -> None:
    run = DataConfig(source_language="en", target_language="de")
    given = EvaluateConfig(checkpoint="runs/a", reverse="runs/b")
    check_languages(given, run, "reverse", DataConfig(source_language="de", target_language="en"))
    message = (
        "reverse=runs/b translates en to de, but checkpoint=runs/a translates en to de: give a run trained from de"
    )
    with pytest.raises(UserError, match=message):
        check_languages(given, run, "reverse", run)
    with pytest.raises(UserError, match="translates de to fr"):
        check_languages(given, run, "reverse", DataConfig(source_language="de", target_language="fr"))


def test_evaluations_lie_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "runs" / "a"
    for name in ("best", "last"):
        (run / "checkpoints" / name).mkdir(parents=True)
    (tmp_path / "latest").symlink_to(run)
    assert evaluation_folder(run, "test") == run / "evaluation/test"
    assert evaluation_folder(tmp_path / "latest", "test").resolve() == run / "evaluation/test"
    assert evaluation_folder(run / "checkpoints/best", "test") == run / "evaluation/test"
    assert evaluation_folder(run / "checkpoints/last", "test") == run / "evaluation/test-last"
    assert evaluation_folder(tmp_path / "latest/checkpoints/last", "validation") == run / "evaluation/validation-last"
    assert evaluation_folder(tmp_path / "checkpoints/a", "test") == tmp_path / "evaluation/test-a"
    (tmp_path / "checkpoints/a/checkpoints").mkdir(parents=True)  # a run in a folder of that name
    assert evaluation_folder(tmp_path / "checkpoints/a", "test") == tmp_path / "checkpoints/a/evaluation/test"
    (run / "checkpoints").rename(tmp_path / "large")  # on another disk
    (run / "checkpoints").symlink_to(tmp_path / "large")
    assert evaluation_folder(run / "checkpoints/last", "test") == run / "evaluation/test-last"
    monkeypatch.chdir(run)
    assert evaluation_folder(Path("checkpoints/last"), "test") == run / "evaluation/test-last"
    (run / "checkpoints").unlink()
    (tmp_path / "large").rename(run / "checkpoints")
    (run / "checkpoints/last").rename(tmp_path / "moved")  # one alone
    (run / "checkpoints/last").symlink_to(tmp_path / "moved")
    assert evaluation_folder(run / "checkpoints/last", "test") == run / "evaluation/test-last"
    (run / "checkpoints/last").unlink()
    (tmp_path / "moved").rename(run / "checkpoints/last")
    monkeypatch.chdir(run / "checkpoints/last")
    assert evaluation_folder(Path(), "test") == run / "evaluation/test-last"
    assert evaluation_folder(Path("mine"), "test") == Path("mine/evaluation/test")  # a checkpoint by itself


def test_the_validation_pairs_that_training_left_out_are_not_scored(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def with_short_sentences(path: Path) -> TrainConfig:
        config = load_config(path)
        config.data.cleaning.max_length = 6
        return config

    monkeypatch.setattr("nmt.evaluation.run.load_config", with_short_sentences)
    all_pairs = load_split(load_config(run / "config.yaml").data, "validation")
    short = [pair for pair in all_pairs if max(len(pair[side].split()) for side in ("source", "target")) <= 6]
    assert 0 < len(short) < len(all_pairs)
    evaluate(EvaluateConfig(checkpoint=str(run), split="validation", device="cpu", num_heatmaps=0))
    metrics = json.loads((run / "evaluation/validation/metrics.json").read_text(encoding="utf-8"))
    assert metrics["sentences"] == len(short)
    assert f"validation: kept {len(short)} of {len(all_pairs)} pairs; dropped" in capsys.readouterr().out
    files = {side: str(tmp_path / side) for side in ("source", "target")}
    for side, file in files.items():
        Path(file).write_text("".join(f"{line}\n" for line in all_pairs[side]), encoding="utf-8")
    given = EvaluationDataConfig(validation=SplitConfig(**files))
    evaluate(
        EvaluateConfig(checkpoint=str(run), split="validation", data=given, output="all", device="cpu", num_heatmaps=0)
    )
    assert json.loads(Path("all/metrics.json").read_text(encoding="utf-8"))["sentences"] == len(all_pairs)


def test_an_evaluation_stays_with_the_run_that_the_newest_one_was(
    tiny_run: Path, tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it translates, another run may become outputs/latest. Files are made within the folder itself."""
    runs = [Path(shutil.copytree(tiny_run, tmp_path / name)) for name in ("first", "second")]
    monkeypatch.chdir(tmp_path)
    link_latest(runs[0])
    places: list[Path] = []
    translate = Translator.translate

    def interrupted(self: Translator, sentences: Any) -> Any:
        link_latest(runs[1])
        return translate(self, sentences)

    def noting(place: Path) -> Any:
        places.append(place)
        return temporary_folder(place)

    monkeypatch.setattr(Translator, "translate", interrupted)
    monkeypatch.setattr("nmt.evaluation.output.temporary_folder", noting)
    served = ServedRun.load("outputs/latest", max_subwords=9, device="cpu")
    done = call("evaluate", "num_heatmaps=0", "split=validation")
    assert done.returncode == 0, done.stderr
    assert (runs[0] / "evaluation/validation/metrics.json").is_file()
    assert not (runs[1] / "evaluation/validation").exists()
    assert [place.parent.resolve() for place in places] == [runs[0] / "evaluation/validation"]
    assert Path(served.path).resolve() == runs[0]


def test_words_between_spaces(tiny_run: Path, tmp_path: Path, call: Callable[..., Any]) -> None:
    found = {}
    for words in ("split", "spaces"):
        line = (f"checkpoint={tiny_run}", f"alignment.words={words}", f"output={words}", "num_heatmaps=0")
        assert call("evaluate", *line).returncode == 0
        found[words] = (tmp_path / words / "alignments.words").read_text(encoding="utf-8")
    assert re.search(r"\w\.", found["spaces"])
    assert not re.search(r"\w\.", found["split"])


def test_a_threshold_needs_its_method(tiny_run: Path, call: Callable[..., Any]) -> None:
    done = call("evaluate", f"checkpoint={tiny_run}", "output=new", "device=cpu", "alignment.threshold=0.2")
    assert done.returncode == 2
    assert done.stderr == "error: alignment.threshold=0.2 is for alignment.method=threshold: set that, too\n"


def test_every_job_of_a_sweep_has_a_folder() -> None:
    given = EvaluateConfig(checkpoint="runs/a")
    swept = ["search.beam_size=5", "baseline=runs/b"]
    data = DataConfig()
    assert output_folder(given, [], data) == Path("runs/a/evaluation/test")
    assert output_folder(given, swept, data) == Path("runs/a/evaluation/test-search.beam_size=5,baseline=runs_b")
    assert output_folder(given, ["checkpoint=runs/a", "split=test"], data) == Path("runs/a/evaluation/test")
    named = EvaluateConfig(checkpoint="runs/a", output="mine/here")
    assert output_folder(named, [], data) == Path("mine/here")
    assert output_folder(named, ["checkpoint=runs/a"], data) == Path("mine/here/checkpoint=runs_a")


@pytest.mark.parametrize(
    ("kind", "reverse_kind", "expected"),
    [("whitespace", "whitespace", True), ("whitespace", "bpe", False), ("bpe", "whitespace", False)],
)
def test_a_reverse_run_reads_pieces_where_the_text_of_both_is_segmented(
    kind: str, reverse_kind: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translator(kind: str) -> Translator:
        lines = ["the old river runs", "a small cat sleeps"] * 20
        tokenizers = build_tokenizers(lines, lines, TokenizerConfig(kind=kind, vocab_size=300))
        model = build_model(ModelConfig(embedding_size=4, hidden_size=4), len(tokenizers.source), 300, joint=False)
        return Translator(model, tokenizers, SearchConfig(), torch.device("cpu"))

    monkeypatch.setattr(Translator, "load", lambda *arguments, **settings: translator(reverse_kind))
    assert choose_views(EvaluateConfig(checkpoint="a"), translator(kind)).reverse_reads_pieces is False
    config = EvaluateConfig(checkpoint="a", reverse="b")
    assert choose_views(config, translator(kind)).reverse_reads_pieces is expected


@pytest.mark.parametrize(
    ("split", "folder"),
    [
        (SplitConfig(source="new.en"), "test-of-new.en"),
        (SplitConfig(source="2014/test.en"), "test-of-2014_test.en"),
        (SplitConfig(source="./2015/test.en"), "test-of-2015_test.en"),
        (SplitConfig(source="/a/test.en"), "test-of-a_test.en"),
        (SplitConfig(source=["one.en", "two.en"]), "test-of-one.en+two.en"),
        (SplitConfig(source="日本" * 60 + ".en"), "test-of-" + "日本" * 32 + "-78ad40fe"),
        (SplitConfig(name="train[:20]"), "test-of-train[:20]"),
        (SplitConfig(name="test"), "test"),  # the run's own
        (SplitConfig(alignment="gold"), "test"),
    ],
)
def test_scores_of_other_text_have_a_folder(split: SplitConfig, folder: str) -> None:
    """The run's own scores stay as they are, and so do those of another file of the same name."""
    trained_on = DataConfig(kind="hub", test=SplitConfig(name="test"))
    given = EvaluateConfig(checkpoint="runs/a")
    given.data.test = split
    found = output_folder(given, [], trained_on)
    assert found == Path("runs/a/evaluation", folder)
    assert len(os.fsencode(found.name)) < 220


def test_scores_of_other_references_do_not_replace_those_that_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "test-of-new.en"
    assert unshared(folder, "1234567890") == folder
    folder.mkdir()
    for text, free in (('{"corpus": "1234567890"}', True), ('{"corpus": "other"}', False), ("{", True), ("[]", True)):
        (folder / "metrics.json").write_text(text, encoding="utf-8")
        expected = folder if free else tmp_path / "test-of-new.en-12345678"
        assert unshared(folder, "1234567890") == expected


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("checkpoint=nowhere", "no checkpoint at nowhere"),
        ("splt=test", "split"),
        ("model=luong", "unknown key 'model' (--cfg job lists all keys)"),
        ("search=greedy", "search is a group of keys, no value: set one of them, such as search.beam_size="),
        ("split=train", "unknown split 'train'"),
        ("search.beam_size=0", "search.beam_size=0 is out of range"),
        ("alignment.method=argmin", "unknown alignment.method 'argmin': choose one of argmax, threshold; did you mean"),
        ("alignment.threshold=0", "alignment.threshold=0.0 is out of range: it must be above 0"),
        ("search.coverage_penalty=inf", "search.coverage_penalty=inf is out of range: it must be at most 10"),
        ("precision=int4", "unknown precision 'int4': choose one of bf16, fp32, int8"),
        ("saliency=maybe", "saliency='maybe' has the wrong type: it must be bool"),
    ],
)
def test_wrong_options_are_one_line_and_leave_nothing(
    call: Callable[..., Any], tmp_path: Path, override: str, message: str
) -> None:
    done = call("evaluate", override)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
