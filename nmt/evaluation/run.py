"""An evaluation as configured: which text is scored, by which translators, and where the files go."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import torch

from nmt.config.file import load_config
from nmt.config.schema import DataConfig, EvaluateConfig, LinksConfig, SplitConfig
from nmt.data.corpus import clean, load_split, open_corpus
from nmt.errors import UserError
from nmt.evaluation.baseline import Baseline, baseline_of, corpus_digest, stable_path
from nmt.evaluation.evaluator import evaluate_split
from nmt.evaluation.metrics import bleu, bleu_tokenizer
from nmt.evaluation.report import PipeConsole, print_table
from nmt.evaluation.saliency import Explainer
from nmt.evaluation.views import AlignmentViews
from nmt.models.checkpoint import CONFIG, find_checkpoint, local, place_in_run, run_of
from nmt.models.hub import is_address, results_folder
from nmt.text.vocabulary import Vocabulary
from nmt.translator import Translator

MAX_NAME_BYTES = 200  # of a folder; file systems allow 255


def evaluate(config: EvaluateConfig, swept: Sequence[str] = ()) -> None:
    """Translate and score a split, print a table and write the files; raise UserError if runs, settings and text do not
    fit together. `swept` is passed to `output_folder`.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if not is_address(config.checkpoint):
        config.checkpoint = str(run_of(local(config.checkpoint)))
    config.ensemble = [each if is_address(each) else str(run_of(local(each))) for each in config.ensemble]
    run_config = load_config(find_checkpoint(config.checkpoint) / CONFIG)
    for option, path in (("reverse", config.reverse), ("baseline", config.baseline)):
        if path is not None:
            check_languages(config, run_config.data, option, load_config(find_checkpoint(path) / CONFIG).data)
    tokenize = config.bleu_tokenize or bleu_tokenizer(run_config)
    bleu(tokenize)  # raises UserError if the tokenizer is missing
    corpus = load_split(choose_data(config, run_config.data), config.split)
    is_other = other_text(config, run_config.data)
    if config.split == "validation" and not is_other:  # the pairs that training has validated with
        corpus, cleaning = clean(corpus, run_config.data.cleaning)
        if cleaning.kept < cleaning.total:
            print(f"validation: {cleaning}")
    translator = Translator.load(
        config.checkpoint,
        config.device,
        config.precision,
        ensemble=config.ensemble,
        words=config.alignment.words,
        **dataclasses.asdict(config.search),
    )
    folder = output_folder(config, swept, run_config.data)
    if config.output is None and is_other:
        folder = unshared(folder, corpus_digest(list(corpus["source"]), list(corpus["target"])))
    views = choose_views(config, translator)  # before the baseline, which takes as long as all the rest
    with PipeConsole(stderr=True).status(f"Translating {len(corpus):,} sentences of {config.split} ..."):
        metrics = evaluate_split(
            translator,
            corpus,
            folder,
            split=config.split,
            bleu_tokenize=tokenize,
            lowercase=run_config.lowercase if config.lowercase is None else config.lowercase,
            num_heatmaps=config.num_heatmaps,
            baseline=choose_baseline(config, translator, corpus),
            views=views,
        )
    print_table(metrics)
    print(f"written to {stable_path(folder)}: look at {stable_path(folder / 'report.html')}")


def check_languages(config: EvaluateConfig, run: DataConfig, option: str, other: DataConfig) -> None:
    """Raise UserError, naming both runs' languages, unless `reverse` translates back, or `baseline` the same way."""
    expected, advice = (run.source_language, run.target_language), "of the same languages"
    if option == "reverse":
        expected, advice = expected[::-1], f"trained from {run.target_language} to {run.source_language}"
    if (other.source_language, other.target_language) != expected:
        raise UserError(
            f"{option}={getattr(config, option)} translates {other.direction}, but "
            f"checkpoint={config.checkpoint} translates {run.direction}: give a run {advice}"
        )


def choose_baseline(config: EvaluateConfig, translator: Translator, corpus: datasets.Dataset) -> Baseline | None:
    """Return the translations to compare with, found with the translator's search settings, no neighbors."""
    if config.baseline is None:
        return None
    search = dataclasses.asdict(translator.search) | {"neighbors": 0}
    translator = Translator.load(config.baseline, device=config.device, precision=config.precision, **search)
    return baseline_of(Path(config.baseline), translator, corpus)


def choose_views(config: EvaluateConfig, translator: Translator) -> AlignmentViews:
    """Return how sentence pairs are aligned, besides the attention; raise UserError if saliency is requested where it
    cannot be computed, or a threshold is given without its method.
    """
    method, threshold = config.alignment.method, config.alignment.threshold
    if method != "threshold" and threshold != LinksConfig().threshold:
        raise UserError(f"alignment.threshold={threshold:g} is for alignment.method=threshold: set that, too")
    reverse = None
    if config.reverse is not None:
        unit, size = config.search.batch_unit, config.search.batch_size
        reverse = Translator.load(config.reverse, device=config.device, batch_unit=unit, batch_size=size)
    return AlignmentViews(
        links=config.alignment,
        reverse=reverse,
        reverse_run=config.reverse,
        reverse_reads_pieces=reverse is not None
        and isinstance(translator.tokenizers.target, Vocabulary)
        and isinstance(reverse.tokenizers.source, Vocabulary),
        explainer=Explainer(translator) if config.saliency else None,
    )


def output_folder(config: EvaluateConfig, swept: Sequence[str], trained_on: DataConfig) -> Path:
    """Return the folder to write to: `output`, else a folder of the run. An ensemble, other text than that of the run,
    and each job of a sweep, which differs from the others by the overrides `swept`, have their own.
    """
    if config.output is not None:
        return Path(config.output, ",".join(override.replace("/", "_") for override in swept))
    parts = [f"with-{member.strip('/').replace('/', '_')}" for member in config.ensemble]
    if text := other_text(config, trained_on):
        parts.append(f"of-{text}")
    parts += [override.replace("/", "_") for override in swept if not override.startswith(("checkpoint=", "split="))]
    checkpoint = results_folder(config.checkpoint) if is_address(config.checkpoint) else Path(config.checkpoint)
    folder = evaluation_folder(checkpoint, config.split)
    return folder.with_name(short_name(f"{folder.name}-{','.join(parts)}")) if parts else folder


def other_text(config: EvaluateConfig, trained_on: DataConfig) -> str | None:
    """Return a name of the text that is scored, for a folder; None if it is the run's own.

    Files are named with their folders, since many test sets have a file of the same name.
    """
    split = getattr(config.data, config.split, SplitConfig())
    if files := split.files("source"):
        name = "+".join(str(Path(file)).strip("/") for file in files)
    elif split.name not in (None, getattr(trained_on, config.split, SplitConfig()).name):
        name = split.name
    else:
        return None
    return name.replace("/", "_")


def unshared(folder: Path, corpus: str) -> Path:
    """Return the folder, or one with the corpus's digest in its name where that holds the scores of another.

    The same source has several references, and `a/b` and `a_b` one name.
    """
    try:
        held = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["corpus"]
    except (OSError, ValueError, KeyError, TypeError):  # no evaluation, or a damaged one
        return folder
    return folder if held == corpus else folder.with_name(f"{folder.name}-{corpus[:8]}")


def short_name(name: str) -> str:
    """Return a name for a folder, cut where it is too long, with a digest of what it was."""
    encoded = os.fsencode(name)
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    return f"{encoded[:MAX_NAME_BYTES].decode(errors='ignore')}-{hashlib.sha256(encoded).hexdigest()[:8]}"


def evaluation_folder(checkpoint: Path, split: str) -> Path:
    """Return the folder of an evaluation of a run or a checkpoint.

    Evaluations of a run's checkpoint are written in the run, because training replaces the folders of checkpoints; that
    of the best checkpoint is that of the run.
    """
    place = place_in_run(checkpoint)
    if place is None:
        return checkpoint / "evaluation" / split
    return place.parents[1] / "evaluation" / (split if place.name == "best" else f"{split}-{place.name}")


def choose_data(config: EvaluateConfig, trained_on: DataConfig) -> DataConfig:
    """Return the configuration of the split: the run's own data, or that given by `data.<split>.*`.

    Files given by `source` and `target` replace all of it. `alignment` alone adds gold links to the run's own
    text files; `name` alone chooses another split of the run's hub corpus. Anything else is a UserError.
    """
    splits = vars(config.data)
    for name, files in splits.items():
        if name != config.split and files != SplitConfig():
            raise UserError(f"data.{name} is given, but split={config.split} is scored: add split={name}")
    files = splits.get(config.split, SplitConfig())
    if files == SplitConfig():
        return trained_on
    if files.source is not None or files.target is not None:
        if files.source is None or files.target is None:
            missing = "source" if files.source is None else "target"
            raise UserError(f"data.{config.split}.{missing} is missing: give files for both source and target")
        changed: dict[str, Any] = {"kind": "text", config.split: files}
        return dataclasses.replace(trained_on, **changed)
    usable = [key for key in open_corpus(trained_on).split_keys if key not in ("source", "target")]
    for key, value in vars(files).items():
        if value is not None and key not in usable:
            raise UserError(f"data.{config.split}.{key} is given, and the run's data={trained_on.kind} does not use it")
    values = {key: getattr(files, key) for key in usable}
    if values and all(values.values()):
        changed = {config.split: dataclasses.replace(getattr(trained_on, config.split), **values)}
        return dataclasses.replace(trained_on, **changed)
    raise UserError(
        f"data.{config.split} does not fit the run's data={trained_on.kind}: give both data.{config.split}.source and "
        f"data.{config.split}.target"
    )
