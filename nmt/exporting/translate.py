"""Translate the lines of standard input by the graphs beside this file: python translate.py [--beam-size N] [--int8].
By numpy, sentencepiece and onnxruntime alone. The search is that of nmt.search.beam without its penalty for coverage.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from sentencepiece import SentencePieceProcessor


class Translator:
    """Encoder, step of the search, subwords and settings, as nmt.export has written them into a folder."""

    def __init__(self, folder: Path, graphs: str = "fp32", threads: int = 1) -> None:
        self.model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        if graphs not in self.model["graphs"]:
            sys.exit(f"error: this export has no {graphs} graphs")
        options, files = SessionOptions(), self.model["graphs"][graphs]
        options.intra_op_num_threads = threads
        self.encoder, self.step = (InferenceSession(folder / files[name], options) for name in ("encoder", "step"))
        self.longest_source = self.model["model"]["longest_source"]
        self.source, self.target = (SentencePieceProcessor(str(folder / name)) for name in self.model["subwords"])

    def translate(self, line: str, beam: int = 0) -> tuple[str, list[Any]]:
        """Return the translation, and what each of its subwords, and its end, attended to. A beam of 1 is greedy."""
        ids, eos = self.source.encode(line), self.model["special_ids"]["eos"]
        if not ids:
            return "", []
        _, tokens, weights = self.search([*ids, eos], beam or self.model["search"]["beam_size"])
        notices = {
            "is far longer than what the model was trained on: give it a sentence at a time": len(ids)
            > 2 * self.longest_source,
            "has a translation that was cut at the longest length allowed": tokens[-1] != eos,
        }
        for notice in filter(notices.get, notices):
            print(f"notice: the line that begins with {line[:40]!r} {notice}", file=sys.stderr)
        return self.target.decode([i for i in tokens if i != eos]).translate(dict.fromkeys(b"\n\r\t", " ")), weights

    def search(self, source: list[int], beam: int) -> tuple[Any, list[int], list[Any]]:
        """Return the best hypothesis: its score, its tokens, and what each of them attended to."""
        special, settings = self.model["special_ids"], self.model["search"]
        alpha, enough = settings["length_penalty"], beam * (settings["patience"] or np.inf)
        max_length = int(len(source) * settings["max_length_ratio"] + settings["max_length_offset"])
        state = run(self.encoder, {"source": np.array([source]), "lengths": np.array([len(source)])})
        running: list[Any] = [(np.float32(0), [special["bos"]], [])]  # hypotheses: log-probability, tokens, weights
        finished, greedy = [], running[0][1]
        for length in range(1, max_length + 1):
            last = np.array([[tokens[-1] for _, tokens, _ in running]])
            outputs = run(self.step, state | {"tokens": last, "position": np.array([length - 1])})
            outputs["log_probs"][:, :, [special["pad"], special["bos"], special["unk"]]] = -np.inf
            sums = np.array([[total] for total, _, _ in running]) + outputs["log_probs"][0]
            index = np.argpartition(-sums, min(2 * beam, sums.size - 1), axis=None)[: 2 * beam]
            ranked = np.divmod(index[np.argsort(-sums.flat[index], kind="stable")], sums.shape[1])
            previous, running, parents, best = running, [], [], None
            for rank, (n, word) in enumerate(zip(ranked[0].tolist(), ranked[1].tolist(), strict=True)):
                tokens, weights = [*previous[n][1], word], [*previous[n][2], outputs["weights"][0, n]]
                best = tokens if best is None and previous[n][1] is greedy else best  # as greedy search would go on
                if rank < beam and (word == special["eos"] or length == max_length):
                    finished.append((sums[n, word] / length**alpha, tokens[1:], weights))
                elif len(running) < beam and word != special["eos"] and length < max_length:
                    running.append((sums[n, word], tokens, weights))
                    parents.append(n)
            score = max((score for score, _, _ in finished), default=-np.inf)
            total, greedy = running[0][0] if running else -np.inf, best
            is_enough = len(finished) >= enough and not any(tokens is greedy for _, tokens, _ in running)
            if score >= total / max_length**alpha or (is_enough and score >= total / length**alpha):
                break
            state |= {name[5:]: value[:, parents] for name, value in outputs.items() if name.startswith("next_")}
        return max(finished, key=lambda hypothesis: hypothesis[0])


def run(graph: InferenceSession, values: dict[str, Any]) -> dict[str, Any]:
    """Run a graph with those of the values that are its inputs."""
    outputs = graph.run(None, {tensor.name: values[tensor.name] for tensor in graph.get_inputs()})
    return {tensor.name: value for tensor, value in zip(graph.get_outputs(), outputs, strict=True)}


if __name__ == "__main__":
    for name in {"SIGINT", "SIGPIPE"} & set(dir(signal)):  # end at once, without a traceback
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beam-size", type=int, default=0)
    parser.add_argument("--int8", action="store_true")
    options = parser.parse_args()
    if options.beam_size < 0:
        parser.error("--beam-size must be at least 0, which is that of the export")
    translator = Translator(Path(__file__).parent, "int8" if options.int8 else "fp32")
    for n, line in enumerate(line.removesuffix(b"\n").removesuffix(b"\r") for line in sys.stdin.buffer):
        try:
            text, _ = translator.translate(line.decode("utf-8" if n else "utf-8-sig"), options.beam_size)
        except UnicodeDecodeError as error:
            parser.error(f"line {n + 1} is not UTF-8: {error}")
        sys.stdout.buffer.write(f"{text}\n".encode())
        sys.stdout.buffer.flush()
