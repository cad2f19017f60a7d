"""The model card: what the hub and a person read of a run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from omegaconf import OmegaConf

from nmt.config.file import load_config
from nmt.config.schema import DataConfig, HubConfig, SplitConfig, TrainConfig, changes
from nmt.errors import UserError
from nmt.evaluation.model_card import data_description, front_matter, is_edited, setting_lines, write_card
from nmt.models.checkpoint import CARD, PICTURE, load_checkpoint


def metrics_of(run: Path, split: str) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((run / "evaluation" / split / "metrics.json").read_text())
    return metrics


def test_the_hub_reads_the_scores(run: Path, best: Path) -> None:
    card = ModelCard.load(best / CARD)
    assert card.data.to_dict()["language"] == ["en", "fr"]
    assert (card.data.library_name, card.data.pipeline_tag, card.data.license) == ("nmt", "translation", "unknown")
    assert card.data.model_name == "nmt-en-fr"
    found = {(each.dataset_split, each.metric_type): each for each in card.data.eval_results or ()}
    assert {name for _, name in found} == set(card.data.metrics or ()) == {"bleu", "chrf", "ter"}
    assert {split for split, _ in found} == {"test", "test_long"}
    for (split, name), result in found.items():
        metrics = metrics_of(run, split)
        assert result.metric_value == pytest.approx(metrics[name], abs=0.006)
        assert result.metric_args == {"signature": metrics["signature"][name]}
        assert result.task_type == "translation"


def test_a_person_reads_scores_data_and_settings(run: Path, best: Path) -> None:
    text = (best / CARD).read_text(encoding="utf-8")
    metrics = metrics_of(run, "test")
    low, high = metrics["bleu_ci95"]
    row = f"| BLEU | {metrics['bleu']:.2f} | 95% interval {low:.1f} to {high:.1f} | "
    signatures = (metrics["signature"][name].replace("|", "\\|") for name in ("bleu", "bleu_ci95"))
    assert row + ", ".join(f"`{each}`" for each in signatures) + " |" in text
    search = "beam 2 · length penalty 1.0 · at most 2 x source + 5 subwords · fp32"
    assert f"{metrics['sentences']} sentences of `test`, {search}:" in text
    assert "speed" not in text
    log = (run / "train.log").read_text(encoding="utf-8")
    for split in ("train", "validation"):
        (line,) = (line for line in text.splitlines() if line.startswith(f"- {split}: kept"))
        assert line.removeprefix("- ") in log
    assert "--checkpoint hub:USER/NAME" in text
    assert 'Translator.load("hub:USER/NAME")' in text
    assert (best / PICTURE).read_bytes() in [path.read_bytes() for path in run.glob("evaluation/test/heatmaps/*.png")]
    assert f"]({PICTURE})" in text


def test_the_settings_of_a_card_are_those_of_the_run(best: Path) -> None:
    """Put into the defaults, they make the same configuration, but for the machine."""
    block = (best / CARD).read_text(encoding="utf-8").split("## Settings")[1].split("```")[1]
    told = OmegaConf.to_object(
        OmegaConf.merge(OmegaConf.structured(TrainConfig), OmegaConf.from_dotlist(block.strip().splitlines()))
    )
    assert set(changes(told, load_config(best / "config.yaml"))) == {"run_dir", "threads", "data.cache_dir"}


def test_a_card_may_be_edited(best: Path, run: Path, call: Callable[..., Any]) -> None:
    written = (best / CARD).read_text(encoding="utf-8")
    assert not is_edited(best / CARD)
    (best / CARD).write_text("outdated", encoding="utf-8")
    assert is_edited(best / CARD)
    edited = written.replace("license: unknown", "license: mit")
    (best / CARD).write_text(edited, encoding="utf-8")
    (best / PICTURE).unlink()
    write_card(best, run, {})
    assert (best / CARD).read_text(encoding="utf-8") == edited
    assert load_checkpoint(best).step == 100
    assert call("doctor", str(run)).returncode == 0


def test_a_card_that_nobody_edited_is_written_anew(best: Path, run: Path) -> None:
    written = (best / CARD).read_text(encoding="utf-8")
    shutil.rmtree(run / "evaluation")
    write_card(best, run, {})
    text = (best / CARD).read_text(encoding="utf-8")
    assert text != written
    assert "The run has scored no test text." in text
    assert (PICTURE in text, (best / PICTURE).exists()) == (False, False)
    assert "model-index" not in ModelCard(text).data.to_dict()
    assert not is_edited(best / CARD)
    write_card(best, run, {})
    assert (best / CARD).read_text(encoding="utf-8") == text
    assert {path.name for path in best.iterdir() if path.name.startswith(".")} == set()


def test_a_card_names_the_text_that_was_scored(
    run: Path, best: Path, call: Callable[..., Any], tiny_options: list[str]
) -> None:
    """Test text may be given, or changed, after the best checkpoint was saved."""
    done = call("train", f"run_dir={run}", *tiny_options, "trainer.max_steps=100", "data.grammar.test_size=5")
    assert done.returncode == 0, done.stderr
    text = (best / CARD).read_text(encoding="utf-8")
    assert ("5 sentences of `test`" in text, "data.grammar.test_size=5" in text) == (True, True)


def test_scores_of_another_update_are_left_out(best: Path, run: Path) -> None:
    path = run / "evaluation" / "test" / "metrics.json"
    path.write_text(json.dumps(metrics_of(run, "test") | {"step": 50}))
    write_card(best, run, {})
    text = (best / CARD).read_text(encoding="utf-8")
    assert ("`test`" in text, "`test_long`" in text) == (False, True)


def test_a_damaged_evaluation_is_left_out(best: Path, run: Path) -> None:
    (run / "evaluation" / "test" / "metrics.json").write_bytes(b'{"step": 100, \xff')
    write_card(best, run, {})
    text = (best / CARD).read_text(encoding="utf-8")
    assert ("`test`" in text, "`test_long`" in text) == (False, True)


def test_there_is_no_card_without_a_checkpoint(tmp_path: Path) -> None:
    write_card(tmp_path / "best", tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_cannot_be_written(best: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (best / CARD).unlink()

    def refuse(place: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nmt.evaluation.model_card.temporary_folder", refuse)
    with pytest.raises(UserError, match=r"cannot write .*best/README\.md: No space left on device; free some space"):
        write_card(best, run, {})


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("no", "zh_TW", ["no", "zh"]),
        ("en", "en", ["en"]),
        ("Source", "x", None),
        ("pt-BR", "gsw", ["pt", "gsw"]),
    ],
)
def test_languages_are_codes_that_the_hub_accepts(source: str, target: str, languages: list[str] | None) -> None:
    config = TrainConfig(data=DataConfig(source_language=source, target_language=target))
    text = yaml.safe_dump(front_matter(config, {}))
    assert yaml.safe_load(text).get("language") == languages  # `no` has not become false


def test_where_text_comes_from_is_told_without_paths(tmp_path: Path) -> None:
    secret = str(tmp_path / "secret")
    split = SplitConfig(source=[f"{secret}/a.en", f"{secret}/b.en.gz"], target=f"{secret}/a.de")
    data = DataConfig(kind="text", train=split, test=SplitConfig(source=f"{secret}/t.en", target=f"{secret}/t.de"))
    assert data_description(data) == "Files of text; train text: `a.en`, `b.en.gz`, `a.de`; test text: `t.en`, `t.de`."
    config = TrainConfig(run_dir=secret, data=data)
    config.tokenizer.source_model = config.trainer.initialize_from = f"{secret}/x.model"
    data.cache_dir = secret
    told = list(setting_lines(config))
    assert "tokenizer.source_model=x.model" in told
    assert not any("secret" in line for line in [*told, json.dumps(front_matter(config, {}))])
    config.tokenizer.vocab_size = 4_000
    assert "tokenizer.vocab_size=4000" in setting_lines(config)
    config.tokenizer.target_model = "y.model"
    assert not [line for line in setting_lines(config) if "vocab_size" in line]  # the models have sizes of their own
    config.trainer.initialize_from = "hub:me/toy"
    assert "trainer.initialize_from=hub:me/toy" in setting_lines(config)


def test_a_data_set_of_the_hub_is_named(tmp_path: Path) -> None:
    data = DataConfig(kind="hub", hub=HubConfig(path="owner/set", name="de-en", revision="v1"))
    assert data_description(data) == "The data set `owner/set`, name `de-en`, revision `v1`."
    assert front_matter(TrainConfig(data=data), {})["datasets"] == ["owner/set"]
    data.hub = HubConfig(path=str(tmp_path / "secret"))
    assert data_description(data) == "The data set `secret`."
    assert "datasets" not in front_matter(TrainConfig(data=data), {})
