"""A run as the server exposes it: translations, next words and validations as JSON values."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from nmt.config.file import load_config
from nmt.errors import UserError
from nmt.evaluation.neighbors import nearest_places
from nmt.evaluation.records import ALIGNMENTS, finite, read_records
from nmt.evaluation.saliency import Explainer, obstacle_to_saliency
from nmt.models.checkpoint import CONFIG, find_checkpoint, run_of, run_of_checkpoint
from nmt.models.hub import is_address
from nmt.serving.forced_search import ForcedSearch
from nmt.serving.prefix import next_words, prefix_ids, translate_with
from nmt.serving.requests import TranslationRequest
from nmt.text.words import characters_of
from nmt.translator import Translation, Translator
from nmt.view.alignment import round_weights

PLACES = 5  # of a datastore, that are told beside the next words


@final
@dataclass(eq=False)
class ServedRun:
    """A translator and the facts that the server reports about it."""

    path: str  # as it was given
    translator: Translator
    languages: tuple[str, str]  # of source and target
    max_subwords: int  # of a sentence

    @classmethod
    def load(cls, path: str, *, max_subwords: int, **settings: Any) -> "ServedRun":
        """Load a run, a checkpoint or a model of the hub; settings as for `Translator.load`."""
        path = path if is_address(path) else str(run_of(Path(path)))
        data = load_config(find_checkpoint(path) / CONFIG).data
        languages = data.source_language, data.target_language
        return cls(path, Translator.load(path, **settings), languages, max_subwords)

    def describe(self) -> dict[str, Any]:
        """Return what the page and `/health` report about the run."""
        search = self.translator.search
        return {
            "path": self.path,
            "step": self.translator.step,
            "source_language": self.languages[0],
            "target_language": self.languages[1],
            "beam_size": search.beam_size,
            "length_penalty": search.length_penalty,
            "neighbors": search.neighbors,
            "precision": self.translator.precision,
            "saliency": obstacle_to_saliency(self.translator) is None,
        }

    def translate(self, request: TranslationRequest) -> dict[str, Any]:
        """Return the best translation that begins with the prefix, the n best, and where asked for the search's tree
        and the saliency, but not of a text in parts; raise UserError as `_prefix` does, or if there is no saliency.
        """
        started = time.perf_counter()
        explainer = Explainer(self.translator) if request.saliency else None
        prefix = self._prefix(request)
        # A record is of one search: a text in parts has several at a time.
        is_whole = bool(prefix) or len(self.translator.parts_of(request.text)) <= 1
        search = ForcedSearch(self.translator.model, prefix, records=request.tree and is_whole)
        translations = translate_with(self.translator, search, request.text, prefix, request.n_best)
        best = self._answer(translations[0])
        if explainer is not None:
            (saliency,) = explainer.translations(translations[:1])
            best |= {} if saliency is None else {"saliency": round_weights(saliency.weights)}
        if search.records:
            best["tree"] = self._tree(search, translations)
        n_best = [self._answer(translation) for translation in translations]
        best |= {"run": request.run, "forced": len(prefix), "n_best": n_best}
        return best | {"seconds": round(time.perf_counter() - started, 4)}

    def next(self, request: TranslationRequest) -> dict[str, Any]:
        """Return the `n_best` most probable words after the prefix, and of a run that uses neighbors the nearest places
        of its datastore; raise UserError as `_prefix` does.
        """
        prefix = self._prefix(request)
        words = next_words(self.translator, request.text, prefix, request.n_best)
        answer = {"run": request.run, "words": [word._asdict() for word in words]}
        if self.translator.datastore is not None:
            places = nearest_places(self.translator, request.text, prefix, PLACES)[-1] if words else []
            answer["neighbors"] = [asdict(place) | {"weight": round(place.weight, 4)} for place in places]
        return answer

    def _prefix(self, request: TranslationRequest) -> list[int]:
        """Return the ids of the prefix, none where there is nothing to translate; raise UserError if sentence or prefix
        is too long, or the prefix cannot be forced.
        """
        source, target = self.translator.tokenizers.source, self.translator.tokenizers.target
        text = source.encode([request.text])[0]
        prefix = prefix_ids(target, request.prefix, allow_unknown=self.translator.replaces_unknown)
        for name, ids in (("text", text), ("prefix", prefix)):
            if len(ids) > self.max_subwords:
                limit = f"at most {self.max_subwords:,} (max_subwords)"
                raise UserError(f"{name} is too long: it has {len(ids):,} subwords; {limit}")
        return prefix if text else []

    def _tree(self, search: ForcedSearch, translations: Sequence[Translation]) -> dict[str, Any]:
        """Return the hypotheses that were in the beam, and where the translations that were found end among them."""
        target = self.translator.tokenizers.target
        pieces = target.pieces(node.token for node in search.nodes)
        nodes = [
            {"parent": node.parent, "piece": piece, "log_prob": round(node.log_prob, 4), "step": node.step}
            for node, piece in zip(search.nodes, pieces, strict=True)
        ]
        ends = [
            {"node": search.end_of(target.ids_of(translation.pieces)), "score": translation.score}
            for translation in translations
            if nodes
        ]
        return {"nodes": nodes, "ends": ends}

    def _answer(self, translation: Translation) -> dict[str, Any]:
        return translation.to_dict() | {"pieces": translation.pieces, "starts": word_starts(translation)}


def word_starts(translation: Translation) -> list[int]:
    """Return the index of the piece in which each target word begins; characters cut from one word begin with it."""
    if translation.is_unaligned:
        return []
    words, word_of_piece = translation.words
    # Words of East Asian characters are shown one character at a time.
    return [word_of_piece.index(number) for number, word in enumerate(words) for _ in characters_of(word)]


def validations(path: str) -> list[dict[str, Any]]:
    """Return the sample sentences of a run at each update at which training has kept them, in that order.

    Each is `{"step": N, "samples": [...]}`; a sample has the fields of a line of `alignments.jsonl`.
    """
    folder = Path(path)
    steps: dict[int, dict[int, Any]] = {}
    for record in read_records((run_of_checkpoint(folder) or folder) / ALIGNMENTS):
        if isinstance(record.get("sample"), int):
            steps.setdefault(record["step"], {})[record["sample"]] = finite(record)
    return [
        {"step": step, "samples": [steps[step][number] for number in sorted(steps[step])]} for step in sorted(steps)
    ]
