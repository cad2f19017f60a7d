"""Nearest neighbors: words of a text whose contexts are like the present one (Khandelwal et al., 2021).

    p(y | h) = (1 - w) p_model(y | h) + w p_neighbors(y | h)
    p_neighbors(y | h) = sum_j [y_j = y] exp(-|h - h_j|^2 / (T s)) / sum_j exp(-|h - h_j|^2 / (T s))

h are the features that the output layer reads. A datastore holds the pair (h_j, y_j) of every target token of a text
that the model has read, and the sums are over the k pairs nearest to h. w is `search.neighbor_weight`, T is
`search.neighbor_temperature`, k is `search.neighbors`, and s is how far neighbors are in this datastore, so that the
same T suits every model. Nothing is trained.

The index is faiss's. Features are stored in a byte for each number. Those of a larger text are divided into about
sqrt(tokens) cells, of which the `PROBES` nearest to h are searched: the k pairs are the nearest of `CANDIDATES` k,
which are those nearest by a product quantizer (Jegou et al., 2011) with a byte for eight numbers.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int, Int32, UInt8
from torch import Tensor

from nmt.config.schema import SearchConfig
from nmt.data.batch import Int64Array, collate
from nmt.data.sentence_batches import plan_sentences
from nmt.data.tables import ProgressLog, Ragged, digest_of, temporary_folder
from nmt.errors import UserError, write_errors
from nmt.models.checkpoint import Checkpoint, place_for, read_unreplaced, replace_folder
from nmt.models.seq2seq import Seq2Seq

ABOUT = "datastore.json"  # beside FILES, with their digests
FILES = INDEX, PLACES, PAIRS = "index.faiss", "places.npy", "pairs.jsonl"
BATCH = 4096  # target subwords that are read at once
SMALL = 10_000  # target subwords; in fewer, h is compared with all
PROBES = 8  # cells
CANDIDATES = 4  # for each of the k
TO_DIVIDE = 64  # pairs for each cell, by which features are divided
SAMPLE, RANK = 1000, 16  # s is the median distance of so many pairs to their 16th neighbor
SEED = 1


@dataclass(frozen=True, eq=False)
class Datastore:
    """Features, and where in the text each is from."""

    index: Any
    places: Int32[np.ndarray, "token 3"]  # of each target token: the token, its sentence pair, its position
    scale: float  # s of the module's docstring
    text: UInt8[np.ndarray, " byte"] | None = None  # of `PAIRS`, mapped, so that it stays where the file is replaced

    @cached_property
    def tokens(self) -> Int[Tensor, " token"]:
        return torch.from_numpy(self.places[:, 0]).long()

    def nearest(
        self, features: Float[Tensor, "row feature"], search: SearchConfig
    ) -> tuple[Float[Tensor, "row k"], Int[Tensor, "row k"]]:
        """Return the weights of the pairs nearest to each row, which sum to 1, and their rows of `places`.

        Where the searched cells hold fewer than k, the weight of the others is 0; where they hold none, of all.
        """
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())  # of the calling thread, as torch's
        squared, rows = self.index.search(features.detach().float().cpu().numpy(), search.neighbors)
        distances = torch.from_numpy(squared).double()  # in float32 their quotients overflow where T s is small
        weights = torch.softmax(-distances / (search.neighbor_temperature * self.scale), dim=1).float()
        places = torch.from_numpy(rows)  # -1 of the others
        return weights * (places >= 0), places.clamp(min=0)

    def sentence_pair(self, row: int) -> tuple[str, str]:
        """Return the source and the target of a row of `places`."""
        source, target = json.loads(self._pairs[self.places[row, 1]])
        return source, target

    @cached_property
    def _pairs(self) -> list[str]:
        assert self.text is not None, "a datastore that has been loaded"
        return self.text.tobytes().decode().split("\n")


def build(model: Seq2Seq, source: Ragged, target: Ragged, rows: Int64Array) -> Datastore:
    """Read the pairs of some rows with a model (forced decoding), and return the datastore of their target tokens.

    Batches are read in random order, so that the first ones are a sample of the text, by which features are divided.
    """
    import faiss

    model.eval()
    lengths = np.zeros_like(target.lengths)
    lengths[rows] = target.lengths[rows] + 1  # those of 0 are in no batch
    batches = plan_sentences(lengths, lengths, unit="tokens", size=BATCH, memory=BATCH)
    cells, size = max(1, round(math.sqrt(lengths.sum()))), model.output.in_features
    index: Any
    if lengths.sum() < SMALL:
        index = faiss.index_factory(size, "SQ8")
    else:
        index = faiss.index_factory(size, f"IVF{cells},PQ{size // math.gcd(size, 4)}x4fs,Refine(SQ8)")
        index.k_factor, faiss.extract_index_ivf(index).nprobe = CANDIDATES, PROBES
    waiting, places = [], []
    with ProgressLog("reading", len(rows)) as progress, torch.inference_mode():
        for number in np.random.default_rng(SEED).permutation(len(batches)):
            chosen = batches[number]
            batch = collate([source[row] for row in chosen], [target[row] for row in chosen], np.array(chosen))
            batch = batch.to(next(model.parameters()).device)
            waiting.append(model(batch).features[batch.target_mask].float().cpu().numpy())
            tokens = batch.target_out[batch.target_mask].cpu().numpy()
            pairs, positions = np.nonzero(batch.target_mask.cpu().numpy())
            places.append(np.stack([tokens, batch.rows[pairs], positions], axis=1).astype(np.int32))
            progress.add(len(chosen))
            if index.is_trained or sum(map(len, waiting)) >= TO_DIVIDE * cells:
                add_waiting(index, waiting)
        add_waiting(index, waiting)
    return Datastore(index, np.concatenate(places), scale_of(index))


def add_waiting(index: Any, waiting: list[npt.NDArray[np.float32]]) -> None:
    """Add the features that wait to the index, and empty the list; the first ones divide the cells."""
    if waiting:
        features = np.concatenate(waiting)
        if not index.is_trained:
            index.train(features)
        index.add(features)
        waiting.clear()


def scale_of(index: Any) -> float:
    """Return the median squared distance of a sample of the features to their 16th neighbor."""
    sample = np.random.default_rng(SEED).permutation(index.ntotal)[:SAMPLE]
    features = np.stack([index.reconstruct(int(place)) for place in sample])
    distances, places = index.search(features, RANK + 1)  # the first is the feature itself
    farthest = np.where(places < 0, 0, distances).max(axis=1)
    return float(np.median(farthest)) or 1.0


def use_neighbors(model: Seq2Seq, datastore: Datastore, search: SearchConfig) -> None:
    """Let a model mix the neighbors' words into its predictions from here on."""
    model.predict = partial(predict, model.predict, datastore, search)  # type: ignore[method-assign]


def predict(
    predict_alone: Callable[[Tensor], Tensor],
    datastore: Datastore,
    search: SearchConfig,
    features: Float[Tensor, "*batch feature"],
) -> Float[Tensor, "*batch vocab"]:
    """Return log p(y | h) of the module's docstring. The neighbors pass no gradient on."""
    log_probs = predict_alone(features) + math.log1p(-search.neighbor_weight)
    rows = log_probs.flatten(0, -2)
    weights, places = datastore.nearest(features.flatten(0, -2), search)
    tokens, weights = datastore.tokens[places].to(rows.device), weights.to(rows)
    near = torch.zeros_like(rows).scatter_add_(1, tokens, search.neighbor_weight * weights)
    mixed = torch.logaddexp(rows.gather(1, tokens), near.gather(1, tokens).log())  # equal tokens, equal sums
    return rows.scatter(1, tokens, mixed).view_as(log_probs)


def check_installed() -> None:
    """Raise UserError unless faiss is installed."""
    if find_spec("faiss") is None:
        raise UserError("search.neighbors and nmt.datastore need faiss: pip install -e '.[neighbors]'")


def digest_of_weights(model: Seq2Seq) -> str:
    """Return the SHA-256 of a model's parameters in hexadecimal: a datastore is that of one model."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(parameter.cpu().numpy().tobytes())
    return digest.hexdigest()


def check_place(run: str, checkpoint: Checkpoint) -> None:
    """Raise UserError where something else than a datastore is in the place of that of a checkpoint, found at `run`."""
    place = place_for("datastore", run, checkpoint.folder)
    has_others = place.is_dir() and any(path.name not in (ABOUT, *FILES) for path in place.iterdir())
    if has_others or (place.exists() and not place.is_dir()):
        raise UserError(f"{place} is not a datastore, and would be replaced by one: move it away")


def save_datastore(
    run: str, checkpoint: Checkpoint, datastore: Datastore, pairs: Iterable[tuple[str, str]], about: dict[str, Any]
) -> Path:
    """Write the datastore of a checkpoint, found at `run`, in place of an earlier one, and return its folder; raise
    UserError if it cannot be written. `pairs` are the sources and targets that it was built from.
    """
    import faiss

    folder = place_for("datastore", run, checkpoint.folder)
    with write_errors(folder, "free some space and start again"), temporary_folder(folder) as staging:
        new = staging / folder.name
        new.mkdir()
        with (new / INDEX).open("wb") as file:  # faiss's own writer does not tell whether the end was written
            writer = faiss.PyCallbackIOWriter(file.write)  # type: ignore[attr-defined]
            faiss.write_index(datastore.index, writer)
        np.save(new / PLACES, datastore.places)
        with (new / PAIRS).open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
        digests = {name: digest_of(new / name) for name in FILES}
        content = {"model": digest_of_weights(checkpoint.model), **about, "scale": datastore.scale, "digests": digests}
        (new / ABOUT).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        replace_folder(new, folder)
    return folder


def load_datastore(run: str | Path, checkpoint: Checkpoint) -> Datastore:
    """Read the datastore of a checkpoint, found at `run`, and again if another replaces it meanwhile; raise UserError
    if there is none, it is damaged, it is of other weights, or faiss is not installed.
    """
    check_installed()
    place = place_for("datastore", run, checkpoint.folder)
    make = f"make it anew with python -m nmt.datastore {run}"

    def find() -> Path:
        if not (place / ABOUT).is_file():
            raise UserError(f"search.neighbors needs a datastore, and there is no {place}: {make}")
        return place

    return read_unreplaced(find, lambda folder: read_datastore(folder, checkpoint, make))


def read_datastore(folder: Path, checkpoint: Checkpoint, make: str) -> Datastore:
    """Read a folder of `save_datastore`; raise UserError, which says how to `make` it, if it is not as it was saved, or
    of other weights than the checkpoint's.
    """
    import faiss

    about = verified(folder)
    if about is None:
        raise UserError(f"the datastore {folder} is damaged: {make}")
    if about["model"] != digest_of_weights(checkpoint.model):
        raise UserError(f"the datastore {folder} is of other weights than {checkpoint.folder}: {make}")
    text = np.memmap(folder / PAIRS, mode="r")
    return Datastore(faiss.read_index(str(folder / INDEX)), np.load(folder / PLACES), about["scale"], text)


def verified(folder: Path) -> dict[str, Any] | None:
    """Return what `ABOUT` says of a datastore: `model`, `tokens`, `scale`; None unless it is as it was saved."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        known = {"model": str(about["model"]), "tokens": int(about["tokens"]), "scale": float(about["scale"])}
        return known if all(digest_of(folder / name) == about["digests"][name] for name in FILES) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
