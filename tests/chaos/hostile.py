"""Files that an attacker, a broken disk or a mistake may leave: by name, what is written over which file."""

import gzip
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable

import numpy as np
import torch
from safetensors.torch import load, save

Change = Callable[[bytes], bytes]


class Attack:
    """What pickle would run."""

    def __reduce__(self):
        return exec, ("open('attacked', 'w').close()",)


def bomb() -> bytes:
    """Return a YAML file of aliases that would become 10^9 words."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines).encode()


def header(length: int, text: bytes = b"{}") -> bytes:
    """Return a file of weights whose header says to have a length."""
    return struct.pack("<Q", length) + text


def entry(shape: list[int], offsets: list[int], dtype: str = "F32") -> bytes:
    """Return a file of weights with one tensor that is said to be somewhere."""
    text = json.dumps({"encoder.rnn.weight_ih_l0": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()
    return header(len(text), text) + b"\0" * 16


def weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Return what changes every tensor in a file of weights."""
    return lambda content: save({name: change(value).contiguous() for name, value in load(content).items()})


def archive(name: str, content: bytes) -> bytes:
    """Return a zip file with one member."""
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w") as file:
        file.writestr(name, content)
    return place.getvalue()


def setting(name: str, value: str) -> Change:
    """Return what gives a key of a configuration another value."""

    def change(content: bytes) -> bytes:
        lines = content.decode().splitlines()
        (number,) = (n for n, line in enumerate(lines) if line.strip().startswith(f"{name}:"))
        lines[number] = f"{lines[number].split(':')[0]}: {value}"
        return "\n".join(lines).encode()

    return change


def always(content: bytes) -> Change:
    return lambda before: content


NOISE = np.random.default_rng(1).bytes(5_000)
FIRST_NAN = weights(lambda value: value.index_fill(0, torch.tensor([0]), float("nan")) if value.ndim else value)

# Of a checkpoint, which has no manifest then: what `nmt.translate` and a resume must refuse.
CHECKPOINT: dict[str, tuple[str, Change]] = {
    "configuration: aliases": ("config.yaml", always(bomb())),
    "configuration: five megabytes": ("config.yaml", lambda content: content + b"\n#" + b"x" * 5_000_000),
    "configuration: empty": ("config.yaml", always(b"")),
    "configuration: noise": ("config.yaml", always(NOISE)),
    "configuration: a list": ("config.yaml", always(b"[1, 2, 3]")),
    "configuration: Python's objects": ("config.yaml", always(b"!!python/object/apply:os.system ['touch attacked']")),
    "configuration: nested 100,000 deep": ("config.yaml", always(b"[" * 100_000)),
    "configuration: an unknown key": ("config.yaml", lambda content: content + b"\nunknown: 1\n"),
    "configuration: many layers": ("config.yaml", setting("num_layers", "100000")),
    "configuration: a large state": ("config.yaml", setting("hidden_size", "1000000000")),
    "configuration: a negative size": ("config.yaml", setting("embedding_size", "-3")),
    "configuration: a size that is no number": ("config.yaml", setting("hidden_size", "many")),
    "configuration: another cell": ("config.yaml", setting("cell", "lstm")),
    "configuration: half of it": ("config.yaml", lambda content: content[: len(content) // 2]),
    "weights: empty": ("model.safetensors", always(b"")),
    "weights: noise": ("model.safetensors", always(NOISE)),
    "weights: half of them": ("model.safetensors", lambda content: content[: len(content) // 2]),
    "weights: a header of 2^63 bytes": ("model.safetensors", always(header(2**63 - 1))),
    "weights: a header of 90 MB": ("model.safetensors", always(header(90_000_000))),
    "weights: no tensors": ("model.safetensors", always(header(2))),
    "weights: beyond the end": ("model.safetensors", always(entry([4, 1 << 40], [0, 1 << 44]))),
    "weights: a negative shape": ("model.safetensors", always(entry([-4, 4], [0, 16]))),
    "weights: of another kind": ("model.safetensors", always(entry([4], [0, 16], dtype="X9"))),
    "weights: not finite": ("model.safetensors", FIRST_NAN),
    "weights: one row less": ("model.safetensors", weights(lambda value: value[:-1] if value.ndim == 2 else value)),
    "weights: pickled": ("model.safetensors", always(pickle.dumps(Attack()))),
    "subwords: empty": ("joint.model", always(b"")),
    "subwords: noise": ("joint.model", always(NOISE)),
    "subwords: half of them": ("joint.model", lambda content: content[: len(content) // 2]),
    "manifest: a list": ("manifest.json", always(b"[]")),
    "manifest: of the future": ("manifest.json", always(b'{"format": 99, "files": {}}')),
    "manifest: of a file elsewhere": (
        "manifest.json",
        always(b'{"format": 1, "files": {"../../../model.safetensors": {"sha256": "0"}}}'),
    ),
    "manifest: nested 100,000 deep": ("manifest.json", always(b"[" * 100_000)),
}

# Of a checkpoint: what a resume must refuse, and translation does not read.
TRAINING_STATE: dict[str, tuple[str, Change]] = {
    "training: pickled": ("training_state.pt", always(pickle.dumps(Attack()))),
    "training: pickled in an archive": ("training_state.pt", always(archive("a/data.pkl", pickle.dumps(Attack())))),
    "training: noise": ("training_state.pt", always(NOISE)),
    "training: empty": ("training_state.pt", always(b"")),
    "training: half of it": ("training_state.pt", lambda content: content[: len(content) // 2]),
}

# Of parallel text: what training must refuse.
TEXT: dict[str, bytes] = {
    "text: a gzip bomb": gzip.compress(b"a b\n" * 10_000_000, mtime=0),
    "text: half of a gzip": gzip.compress(b"a b\n" * 1000, mtime=0)[:40],
    "text: Latin-1": "é\n".encode("latin-1") * 100,
    "text: UTF-16": ("a b\n" * 100).encode("utf-16"),
    "text: noise": NOISE,
    "text: empty": b"",
    "text: one line less": b"a b\n" * 99,
}
