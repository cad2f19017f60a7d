"""Notes for newcomers at the end of a run: each is one line that says what was found and what to do."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc

from nmt.config.schema import DataConfig, TrainConfig
from nmt.data.tables import LINES_AT_ONCE
from nmt.evaluation.records import RECORDS, read_records
from nmt.evaluation.registry import METRICS
from nmt.text.words import is_spaceless

# Beyond these a note is made.
MIN_UPDATES = 300
MIN_BLEU = 1.0
MIN_CHRF = 30.0  # with a lower one a low BLEU is the model's
MAX_COPIED_FRACTION = 0.5  # of the translations
MAX_OVERLAP_FRACTION = 0.01  # of the test sentences
MAX_RELATIVE_GAIN = 0.02  # of the watched metric, by the last validation over the best before
MAX_RELATIVE_RISE = 0.03  # of the validation loss above its minimum
MAX_WORD_LENGTH = 12  # characters between spaces, on average; German has 6
MAX_SPACELESS_WORD_LENGTH = 6  # the same in scripts without spaces: segmented Chinese has 2, Thai 5
LIMIT_KEYS = ("max_minutes", "max_epochs", "max_steps")


def training_notes(
    config: TrainConfig,
    step: int,
    vocab_size: int,
    scores: Mapping[str, Any],
    train: datasets.Dataset,
    tests: Mapping[str, datasets.Dataset],
) -> list[str]:
    """Return notes on a run that ended after `step` updates: each says what was found and what to do.

    The run's folder holds the records of its validations, and the evaluation; without one, `scores` are empty.
    `vocab_size` is that of the target.
    """
    run_dir = Path(config.run_dir)
    validations = [record for record in read_records(run_dir / RECORDS) if record.get("event") == "validation"]
    # The text or the settings may have changed when the run was resumed.
    validations = [record for record in validations if record.get("digest") == validations[-1].get("digest")]
    limit_keys = [f"trainer.{name}" for name in LIMIT_KEYS if getattr(config.trainer, name)]
    longer = f"train longer ({', '.join(limit_keys)})"
    notes = [
        few_updates(step, config.schedule.warmup_steps, longer),
        still_improving(validations, config.trainer.metric, longer),
        overfitting(validations),
        diverged(validations, vocab_size),
    ]
    if scores:
        test = tests[scores["split"]]
        sources = list(test["source"])
        low = low_bleu(scores["bleu"], scores.get("chrf"), longer)
        notes.append(unspaced(list(test["target"]), scores["bleu_tokenize"]) or low)
        hypotheses = (run_dir / "evaluation" / scores["split"] / "hypotheses.txt").read_bytes().decode()
        notes.append(copies(sources, hypotheses.split("\n")[:-1]))
        notes.append(overlap(train, sources))
    return [note for note in notes if note]


def few_updates(step: int, warmup_steps: int, longer: str) -> str | None:
    """Return a note on a training that ended within its warm-up, or soon after."""
    if step < warmup_steps:
        return f"{step} updates, warm-up unfinished ({warmup_steps}): {longer}, or lower batch.size"
    return f"only {step} updates: {longer}, or lower batch.size" if step < MIN_UPDATES else None


def still_improving(validations: Sequence[Mapping[str, Any]], metric: str, longer: str) -> str | None:
    """Return a note on a watched metric of which the last validation is much the best."""
    values = [record[metric] for record in validations if record.get(metric) is not None]
    if len(values) < 2:
        return None
    is_lower_better, last = METRICS[metric].better == "lower", values[-1]
    previous = min(values[:-1]) if is_lower_better else max(values[:-1])
    gain = previous - last if is_lower_better else last - previous
    if gain <= MAX_RELATIVE_GAIN * abs(last):
        return None
    label, digits = METRICS[metric].table_display.label, METRICS[metric].table_display.digits
    start, end = f"{previous:.{digits}f}", f"{last:.{digits}f}"
    return None if start == end else f"{label} was still improving at the end, from {start} to {end}: {longer}"


def overfitting(validations: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a note on a validation loss that ended well above its minimum."""
    losses = [(record["loss"], record["step"]) for record in validations if record.get("loss") is not None]
    if not losses or losses[-1][0] <= (1 + MAX_RELATIVE_RISE) * min(losses)[0]:
        return None
    (least, step), (last, _) = min(losses), losses[-1]
    return (
        f"the validation loss rose from {least:.3f} at update {step} to {last:.3f}, the model learns the training text "
        "by heart: raise model.dropout, lower model.hidden_size, stop earlier (trainer.patience=3), or add text"
    )


def diverged(validations: Sequence[Mapping[str, Any]], vocab_size: int) -> str | None:
    """Return a note on a loss at the end that is well above ln(vocab_size), that of equal probabilities."""
    losses = [record["loss"] for record in validations if record.get("loss") is not None]
    uniform_loss = math.log(vocab_size)
    if not losses or losses[-1] <= 1 + uniform_loss:
        return None
    return (
        f"the validation loss is {losses[-1]:.3f}, and to guess any subword alike has at most {uniform_loss:.3f}: "
        "training has diverged, lower optimizer.learning_rate"
    )


def low_bleu(bleu: float | None, chrf: float | None, longer: str) -> str | None:
    """Return a note on a BLEU near 0."""
    if bleu is None or bleu >= MIN_BLEU:
        return None
    if chrf is not None and chrf >= MIN_CHRF:
        return (
            f"BLEU is {bleu:.2f} although chrF is {chrf:.2f}: BLEU counts four words in a row, which short sentences "
            "lack; set trainer.metric=chrf"
        )
    return f"BLEU is {bleu:.2f}, nothing has been learned: {longer}, and look whether the two sides are in step"


def copies(sources: Sequence[str], hypotheses: Sequence[str]) -> str | None:
    """Return a note on translations that equal their source."""
    pairs = [(source.split(), line.split()) for source, line in zip(sources, hypotheses, strict=True) if source.split()]
    num_copies = sum(source == line for source, line in pairs)
    if num_copies <= MAX_COPIED_FRACTION * len(pairs):
        return None
    return (
        f"{num_copies:,} of {len(pairs):,} translations are the source unchanged: look whether the target files "
        "(data.train.target) are in the target language"
    )


def unspaced(references: Sequence[str], tokenize: str) -> str | None:
    """Return a note on a BLEU that takes sentences without spaces for single words."""
    words = [word for reference in references for word in reference.split()]
    length = sum(map(len, words)) / max(1, len(words))
    most = MAX_SPACELESS_WORD_LENGTH if is_spaceless(references) else MAX_WORD_LENGTH
    if tokenize not in ("13a", "intl") or length <= most:
        return None
    return (
        f"the references have {length:.0f} characters between spaces, which BLEU with bleu_tokenize={tokenize} takes "
        "for words: set data.target_language (zh, ja and ko have tokenizers of their own), or bleu_tokenize=char"
    )


def other_language(data: DataConfig) -> str | None:
    """Return a note on a training file whose name ends in the code of another language than that of its side."""
    for side in ("source", "target"):
        file, language = next(iter(data.train.files(side)), ""), getattr(data, f"{side}_language")
        code = Path(file.removesuffix(".gz")).suffix[1:].lower()
        if len(code) == 2 and code.isalpha() and not language.lower().startswith(code):
            return (
                f"{file} seems to be {code}, but data.{side}_language={language}: BLEU's tokenizer, the model card and "
                f"comparisons go by that; set data.{side}_language={code}"
            )
    return None


def overlap(train: datasets.Dataset, sources: Sequence[str]) -> str | None:
    """Return a note on test sentences whose source occurs in the training text."""
    wanted = pa.array(sources)
    in_training: set[str] = set()
    for part in train.select_columns(["source"]).with_format("arrow").iter(LINES_AT_ONCE):
        column = part.column("source")
        in_training.update(column.filter(pc.is_in(column, value_set=wanted.cast(column.type))).to_pylist())
    num_seen = sum(source in in_training for source in sources)
    if num_seen < MAX_OVERLAP_FRACTION * len(sources) or not num_seen:
        return None
    return (
        f"{num_seen:,} of {len(sources):,} test sentences ({num_seen / len(sources):.0%}) stand in the training text "
        "too, so the scores are better than those of new text: remove them from one of the two"
    )
