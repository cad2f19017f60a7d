"""Score a trained run: `python -m nmt.evaluate checkpoint=RUN [split=validation] [key.path=value ...]`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.cli import hydra_main
from nmt.config import DataConfig, EvaluateConfig, SplitConfig
from nmt.errors import UserError

if TYPE_CHECKING:
    from nmt.evaluation.agreement import Views
    from nmt.translator import Translator


@hydra_main("evaluate", EvaluateConfig)
def main(config: EvaluateConfig) -> None:
    """Translate and score a split, print a table and write `evaluation/<split>/` in the run."""
    # torch and the rest load only once the options are known to be right
    import torch
    from rich.console import Console

    from nmt.config_file import load_config
    from nmt.data.corpus import load_split
    from nmt.evaluation.evaluator import evaluate_split, print_table, stored_baseline, translated_baseline
    from nmt.models.checkpoint import CONFIG, find_checkpoint
    from nmt.translator import Translator

    if config.threads is not None:
        torch.set_num_threads(config.threads)
    run_config = load_config(find_checkpoint(config.checkpoint) / CONFIG)
    if config.reverse is not None:
        check_reverse(config, run_config.data, load_config(find_checkpoint(config.reverse) / CONFIG).data)
    corpus = load_split(choose_data(config, run_config.data), config.split)
    search = dataclasses.asdict(config.search)
    translator = Translator.load(config.checkpoint, device=config.device, precision=config.precision, **search)
    with Console(stderr=True).status(f"Translating {len(corpus):,} sentences of {config.split} ..."):
        baseline = None
        if config.baseline is not None:
            run = Path(config.baseline)
            baseline = stored_baseline(run, config.split, corpus) or translated_baseline(
                run, Translator.load(run, device=config.device, **search), corpus
            )
        folder = evaluation_folder(Path(config.checkpoint), config.split)
        metrics = evaluate_split(
            translator,
            corpus,
            folder,
            split=config.split,
            bleu_tokenize=config.bleu_tokenize,
            lowercase=config.lowercase,
            num_heatmaps=config.num_heatmaps,
            baseline=baseline,
            views=choose_views(config, translator),
        )
    print_table(metrics)
    print(f"written to {folder}: look at {folder / 'report.html'}")


def check_reverse(config: EvaluateConfig, run: DataConfig, reverse: DataConfig) -> None:
    """Refuse a reverse run that does not translate the run's languages back.

    Raises:
        UserError: naming the languages of both.
    """
    if (reverse.source_language, reverse.target_language) != (run.target_language, run.source_language):
        raise UserError(
            f"reverse={config.reverse} translates {reverse.source_language} to {reverse.target_language}, but "
            f"checkpoint={config.checkpoint} translates {run.source_language} to {run.target_language}: give a run "
            f"trained from {run.target_language} to {run.source_language}"
        )


def choose_views(config: EvaluateConfig, translator: "Translator") -> "Views":
    """Return how sentence pairs are to be looked at, beside the attention.

    Raises:
        UserError: integers are to be differentiated.
    """
    from nmt.evaluation.agreement import Views
    from nmt.evaluation.alignment import LinkRule
    from nmt.evaluation.saliency import Explainer
    from nmt.translator import Translator

    if config.saliency and config.precision == "int8":
        raise UserError("saliency=true needs gradients, and precision=int8 has none: choose one of the two")
    reverse = None
    if config.reverse is not None:
        reverse = Translator.load(config.reverse, device=config.device, batch_size=config.search.batch_size)
    return Views(
        rule=LinkRule(config.alignment.method, config.alignment.threshold),
        reverse=reverse,
        reverse_run=config.reverse,
        explainer=Explainer(translator) if config.saliency else None,
    )


def evaluation_folder(checkpoint: Path, split: str) -> Path:
    """Return where an evaluation goes: into the run, or into a checkpoint folder that was given by itself."""
    return checkpoint / "evaluation" / split


def choose_data(config: EvaluateConfig, trained_on: DataConfig) -> DataConfig:
    """Return where the split comes from: the run's own data, or what `data.<split>.*` gives instead.

    Files given by `source` and `target` stand for themselves. `alignment` alone adds gold links to the run's own
    text files; `name` alone chooses another split of the run's hub corpus.

    Raises:
        UserError: data is given for a split that is not scored, or only one side is given, or it does not fit the run.
    """
    splits: dict[str, SplitConfig] = {"test": config.data.test, "validation": config.data.validation}
    for name, given in splits.items():
        if name != config.split and given != SplitConfig():
            raise UserError(f"data.{name} is given, but split={config.split} is scored: add split={name}")
    given = splits.get(config.split, SplitConfig())
    if given == SplitConfig():
        return trained_on
    if given.source is not None or given.target is not None:
        if given.source is None or given.target is None:
            missing = "source" if given.source is None else "target"
            raise UserError(f"data.{config.split}.{missing} is missing: give files for both source and target")
        changed: dict[str, Any] = {"kind": "text", config.split: given}
        return dataclasses.replace(trained_on, **changed)
    kept = {"alignment": given.alignment} if trained_on.kind == "text" else {"name": given.name}
    if trained_on.kind != "grammar" and all(kept.values()):
        changed = {config.split: dataclasses.replace(getattr(trained_on, config.split), **kept)}
        return dataclasses.replace(trained_on, **changed)
    raise UserError(
        f"data.{config.split} does not fit the run's data={trained_on.kind}: give both data.{config.split}.source and "
        f"data.{config.split}.target"
    )


if __name__ == "__main__":
    main()
