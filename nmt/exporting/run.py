"""An export from beginning to end: graphs, their check, quantization, and the files beside them."""

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmt.data.tables import remove_leftovers, temporary_folder
from nmt.errors import UserError, write_errors
from nmt.exporting.check import largest_differences, signature
from nmt.exporting.graphs import OPSET, quantize_graph, write_graphs
from nmt.models.checkpoint import SUBWORDS, Checkpoint, load_checkpoint, place_for
from nmt.models.summary import count_parameters
from nmt.text.sentencepiece_model import parse
from nmt.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from nmt.text.vocabulary import Vocabulary

FORMAT = 1
MODEL = "model.json"
EXAMPLE = Path(__file__).with_name("translate.py")
GRAPHS = {
    "fp32": {"encoder": "encoder.onnx", "step": "step.onnx"},
    "int8": {"encoder": "encoder.int8.onnx", "step": "step.int8.onnx"},
}
GRAPH_FILES = [name for names in GRAPHS.values() for name in names.values()]
REPLACED = (*GRAPH_FILES, *SUBWORDS, EXAMPLE.name)  # files that an export removes, besides `model.json`
SEARCH = ("beam_size", "length_penalty", "coverage_penalty", "patience", "max_length_ratio", "max_length_offset")
PACKAGES = ("nmt", "torch", "onnx", "onnxruntime", "sentencepiece")
BATCHES = 30  # that graphs are compared with the model on
# Rounding makes up to 2e-5 of a log-probability of trained models, and up to 1e-5 of other outputs.
LOG_PROB_TOLERANCE = 1e-4
TOLERANCE = 1e-3


def export(run: str, output: str | None, *, int8: bool) -> None:
    """Export a run or a checkpoint, and print what is written; raise UserError if there is no checkpoint, the model has
    no fixed graph, the graphs do not compute what it does, or the folder has other files or cannot be written.
    """
    checkpoint = load_checkpoint(run)
    folder = place_for("onnx", run, checkpoint.folder) if output is None else Path(output)
    remove_leftovers(folder / MODEL)
    check_output(folder)
    # Written within the folder: what is beside it may be another disk, or forbidden.
    with write_errors(folder), remove_if_empty(folder), temporary_folder(folder / MODEL) as staging:
        content = write_export(staging, checkpoint, int8)
        replace_export(staging, folder)
    for precision, files in content["graphs"].items():
        sizes = ", ".join(f"{name} {(folder / name).stat().st_size / 1e6:.1f} MB" for name in files.values())
        difference = f"{content['largest_difference'][precision]['log_probs']:.1e}"
        print(f"{precision}: {sizes}; log-probabilities differ by at most {difference}, on {BATCHES} random batches")
    print(f"written to {folder}" + (f": see {folder / EXAMPLE.name}" if (folder / EXAMPLE.name).exists() else ""))


@contextlib.contextmanager
def remove_if_empty(folder: Path) -> Iterator[None]:
    """Remove a folder that the block has made and, because of an error, put nothing into."""
    is_new = not folder.exists()
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def replace_export(staging: Path, folder: Path) -> None:
    """Move the files of an export into a folder, in place of those of an earlier one.

    Killed meanwhile, it leaves a folder that translates nothing, as graphs are missing, and that is known as an export.
    """
    for name in REPLACED:
        (folder / name).unlink(missing_ok=True)
    for path in sorted(staging.iterdir(), key=lambda path: (path.name in GRAPH_FILES, path.name != MODEL)):
        path.replace(folder / path.name)


def check_output(folder: Path) -> None:
    """Raise UserError unless a folder is new, empty or an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder} is a file: give a folder")
    if folder.is_dir() and any(folder.iterdir()) and not is_of_export(folder / MODEL):
        raise UserError(f"{folder} has other files, and no {MODEL} of an earlier export: give --output a new folder")
    for path in (folder / name for name in REPLACED):
        if path.is_dir():
            raise UserError(f"{path} is a folder, and a file of this name is to be written: give --output a new folder")


def is_of_export(path: Path) -> bool:
    """Return whether a file is the `model.json` of an export."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "graphs" in content


def write_export(folder: Path, checkpoint: Checkpoint, int8: bool) -> dict[str, Any]:
    """Write all files into a folder; return the content of `model.json`."""
    encoder, step = (folder / name for name in GRAPHS["fp32"].values())
    write_graphs(checkpoint.model, encoder, step)
    differences = {"fp32": largest_differences(checkpoint.model, encoder, step, BATCHES)}
    check_differences(differences["fp32"])
    if int8:
        int8_encoder, int8_step = (folder / name for name in GRAPHS["int8"].values())
        quantize_graph(encoder, int8_encoder)
        quantize_graph(step, int8_step)
        differences["int8"] = largest_differences(checkpoint.model, int8_encoder, int8_step, BATCHES)
    checkpoint.tokenizers.save(folder)
    if isinstance(checkpoint.tokenizers.source, Tokenizer):
        (folder / EXAMPLE.name).write_bytes(EXAMPLE.read_bytes())
    content = {
        "format": FORMAT,
        "graphs": {precision: GRAPHS[precision] for precision in differences},
        "largest_difference": differences,
        **{name: signature(folder / graph) for name, graph in GRAPHS["fp32"].items()},
        **describe(checkpoint),
    }
    (folder / MODEL).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return content


def check_differences(differences: dict[str, float]) -> None:
    """Raise UserError if an output differs from the model's by more than rounding."""
    for name, difference in differences.items():
        allowed = LOG_PROB_TOLERANCE if name == "log_probs" else TOLERANCE
        if not difference <= allowed:  # it may be NaN
            raise UserError(
                f"{name} of the graphs differs from the model's by {difference:.1e}, and {allowed} is allowed, so "
                "nothing is written: try other versions of torch and onnxruntime"
            )


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what a program has to know beside the graphs, and where they come from."""
    config, model, tokenizers = checkpoint.config, checkpoint.model, checkpoint.tokenizers
    sides = tokenizers.source, tokenizers.target
    search = {name: getattr(config.search, name) for name in SEARCH}
    search["patience"] = None if math.isinf(config.search.patience) else config.search.patience  # JSON has no infinity
    names = ("joint", "joint") if tokenizers.joint else ("source", "target")
    return {
        "subwords": [f"{name}{side.suffix}" for name, side in zip(names, sides, strict=True)],
        "text": [text_settings(side) for side in sides],
        "special_ids": {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS},
        "search": search,
        "source_language": config.data.source_language,
        "target_language": config.data.target_language,
        "model": {
            "encoder": str(model.encoder),
            "decoder": str(model.decoder),
            "attention": str(model.decoder.attention),
            "parameters": count_parameters(model),
            "updates": checkpoint.step,
            "longest_source": checkpoint.longest_source,
        },
        "versions": {name: sys.modules[name].__version__ for name in PACKAGES} | {"opset": OPSET},
    }


def text_settings(side: Tokenizer | Vocabulary) -> dict[str, str]:
    """Return how the text of a side is segmented, and what normalization does to it before."""
    if isinstance(side, Vocabulary):
        return {"segmentation": "whitespace", "normalization": "identity", "case": "kept"}
    name = parse(side.model).normalizer_spec.name
    return {
        "segmentation": "sentencepiece",
        "normalization": name,
        "case": "folded" if name.endswith("_cf") else "kept",
    }
