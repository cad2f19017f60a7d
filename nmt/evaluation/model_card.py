"""The model card of a run: README.md beside its best checkpoint, beginning with what the Hugging Face hub reads."""

import contextlib
import hashlib
import importlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.config.schema import DataConfig, TrainConfig, changes
from nmt.data.corpus import CleaningReport
from nmt.data.tables import SIDES, TEST_SPLITS, temporary_folder
from nmt.errors import write_errors
from nmt.evaluation.registry import OF_THE_MACHINE, Values, shown_metrics
from nmt.evaluation.report import decoding_summary, template
from nmt.models.checkpoint import CARD, PICTURE, WEIGHTS, load_checkpoint
from nmt.models.hub import is_address
from nmt.models.summary import summarize

HUB_METRICS = ("bleu", "chrf", "ter")  # names that the hub uses as well
OMITTED_KEYS = ("run_dir", "resume", "threads", "automatic", "data.")  # of the machine, or described under `Data`
SHOWN_DATA_KEYS = ("data.kind", "data.grammar.", "data.cleaning.")
# How subwords are learned.
LEARNING_KEYS = tuple(
    f"tokenizer.{name}" for name in ("vocab_size", "character_coverage", "normalization", "learning_pairs")
)
PATH_KEYS = ("tokenizer.source_model", "tokenizer.target_model", "trainer.initialize_from")


def write_card(best: Path, run: Path, cleaning: Mapping[str, CleaningReport], data: DataConfig | None = None) -> None:
    """Write the model card of a run's best checkpoint into its folder, with a heatmap, or raise UserError.

    Nothing is written if there is no such checkpoint, or if its card was edited. `cleaning` holds, for each split where
    it is known, what cleaning dropped; `data` is the text that was scored, if not that of the checkpoint's settings.
    """
    import yaml

    if not (best / WEIGHTS).is_file() or is_edited(best / CARD):
        return
    checkpoint = load_checkpoint(best)
    config = replace(checkpoint.config, data=data or checkpoint.config.data)
    evaluations = dict(evaluations_of(run, checkpoint.step))
    picture = typical_heatmap(run / "evaluation" / next(iter(evaluations), ""))
    text = template("model_card.md.j2", autoescape=False).render(
        front=yaml.safe_dump(front_matter(config, evaluations), sort_keys=False, allow_unicode=True),
        version=importlib.import_module("nmt").__version__,  # the root is above all layers
        data=config.data,
        step=checkpoint.step,
        summary=summarize(checkpoint.model),
        evaluations=evaluations,
        score_rows=score_rows,
        decoding_summary=decoding_summary,
        format_signatures=format_signatures,
        picture=PICTURE if picture is not None else None,
        data_description=data_description(config.data),
        cleaning=cleaning,
        settings=list(setting_lines(config)),
    )
    with write_errors(best / CARD), temporary_folder(best / CARD) as folder:
        (folder / CARD).write_text(text + signature_line(text), encoding="utf-8")
        (best / PICTURE).unlink(missing_ok=True)  # of an earlier card
        if picture is not None:
            shutil.copyfile(picture, folder / PICTURE)
            (folder / PICTURE).replace(best / PICTURE)
        (folder / CARD).replace(best / CARD)


def signature_line(text: str) -> str:
    """Return the last line of a card: a digest of its text, by which an edited card is recognized."""
    return f"\n<!-- written by nmt, {hashlib.sha256(text.encode()).hexdigest()[:16]} -->\n"


def is_edited(card: Path) -> bool:
    """Return whether there is a card that was edited after it was written."""
    if not card.exists():
        return False
    text = card.read_text(encoding="utf-8", errors="replace")
    body = text[: text.rfind("\n<!-- written by nmt")]
    return text != body + signature_line(body)


def evaluations_of(run: Path, step: int) -> Iterator[tuple[str, Values]]:
    """Yield the test splits and scores that a run holds of its checkpoint of an update."""
    for split in TEST_SPLITS:
        metrics: Any = None
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is damaged
            metrics = json.loads((run / "evaluation" / split / "metrics.json").read_text(encoding="utf-8"))
        if isinstance(metrics, dict) and metrics.get("step") == step:
            yield split, metrics


def typical_heatmap(evaluation: Path) -> Path | None:
    """Return the heatmap of an evaluation that has the median size; None if there are none."""
    pictures = sorted((evaluation / "heatmaps").glob("*.png"), key=lambda path: (path.stat().st_size, path.name))
    return pictures[len(pictures) // 2] if pictures else None


def front_matter(config: TrainConfig, evaluations: Mapping[str, Values]) -> dict[str, Any]:
    """Return what the hub reads of a card, by its specification of model cards."""
    data = config.data
    languages = [code.lower().replace("_", "-").split("-")[0] for code in (data.source_language, data.target_language)]
    # The hub refuses what is not a code of ISO 639.
    codes = [code for code in dict.fromkeys(languages) if re.fullmatch("[a-z]{2,3}", code)]
    data_set = hub_data_set(data)
    results = [
        {
            "task": {"type": "translation", "name": f"Translation from {data.direction}"},
            "dataset": {"name": data_set or data.kind, "type": data_set or data.kind, "split": split},
            "metrics": [
                {"type": name, "value": round(scores[name], 2), "name": label, "args": {"signature": signature}}
                for name, label, _, _ in score_rows(scores)
                if name in HUB_METRICS and (signature := scores["signature"].get(name))
            ],
        }
        for split, scores in evaluations.items()
    ]
    return {
        **({"language": codes} if codes else {}),
        "license": "unknown",
        "library_name": "nmt",
        "pipeline_tag": "translation",
        "tags": ["translation", "recurrent-neural-network", "attention", "word-alignment"],
        **({"datasets": [data_set]} if data_set else {}),
        **({"metrics": list(HUB_METRICS)} if results else {}),
        **({"model-index": [{"name": f"nmt-{'-'.join(languages)}", "results": results}]} if results else {}),
    }


def score_rows(scores: Values) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, label, number and note of each score that an evaluation has, without those of the machine."""
    for name, metric in shown_metrics(scores).items():
        if scores.get(name) is not None and name not in OF_THE_MACHINE:
            yield name, *metric.table_display.as_cells(name, scores)


def format_signatures(scores: Values, name: str) -> str:
    """Return the signatures of a score and of its interval, in Markdown."""
    signatures = (scores["signature"].get(key) for key in (name, f"{name}_ci95"))
    return ", ".join(f"`{signature}`".replace("|", "\\|") for signature in signatures if signature)


def data_description(data: DataConfig) -> str:
    """Say where the text of a run comes from; of files the names alone."""
    if data.kind == "grammar":
        return "The built-in grammar corpus: sentences that a program makes, with gold alignments."
    if data.kind == "hub":
        parts = [f"{key} `{value}`" for key in ("name", "revision") if (value := getattr(data.hub, key))]
        data_set = hub_data_set(data) or Path(str(data.hub.path)).name
        return f"The data set {', '.join([f'`{data_set}`', *parts])}."
    files = [
        f"{split} text: {', '.join(f'`{Path(str(path)).name}`' for path in paths)}"
        for split in ("train", "validation", "test")
        if (paths := [path for side in SIDES for path in getattr(data, split).files(side)])
    ]
    return f"Files of text; {'; '.join(files)}." if files else f"A corpus of the kind `{data.kind}`."


def hub_data_set(data: DataConfig) -> str | None:
    """Return the name of the hub's data set that a run was trained on; None for anything else."""
    path = data.hub.path if data.kind == "hub" else None
    return path if path and re.fullmatch(r"[\w.-]+/[\w.-]+", path) and not Path(path).exists() else None


def setting_lines(config: TrainConfig) -> Iterator[str]:
    """Yield key=value of what differs from the defaults and has an effect, without the machine's settings; of paths the
    names alone.
    """
    has_given_subwords = config.tokenizer.source_model is not None and config.tokenizer.target_model is not None
    for name, (_, value) in changes(TrainConfig(), config).items():
        if has_given_subwords and name in LEARNING_KEYS:
            continue
        if name in PATH_KEYS and value is not None and not is_address(value):
            value = Path(value).name
        if not name.startswith(OMITTED_KEYS) or name.startswith(SHOWN_DATA_KEYS):
            yield f"{name}={'null' if value is None else value}"
