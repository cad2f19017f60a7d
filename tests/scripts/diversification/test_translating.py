"""Translations in the form of the text, and files that are filled chunk by chunk."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from diversification import translating
from diversification.translating import Progress, Search, fill, form, opened
from nmt.config.schema import LARGEST_SEED, ModelConfig, SearchConfig, TokenizerConfig
from nmt.errors import UserError
from nmt.models.build import build_model
from nmt.text.tokenizer import build_tokenizers
from nmt.translator import Translator


def translator_of(lines: list[str], **tokenizer: object) -> Translator:
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(**tokenizer))  # type: ignore[arg-type]
    size = len(tokenizers.source)
    model = build_model(ModelConfig(embedding_size=8, hidden_size=16), size, size, joint=True)
    search = SearchConfig(beam_size=1, max_length_offset=9, replace_unknown=True)
    return Translator(model, tokenizers, search, torch.device("cpu"))


@pytest.mark.parametrize("line", ["the ol@@ d ri@@ ver", "\u2581the \u2581ol d \u2581ri ver"])
def test_segmented_text_stays_segmented(line: str) -> None:
    translator = translator_of([line], kind="whitespace")
    with torch.no_grad():
        translator.model.output.bias += torch.tensor([0, 9, 0, -9, 0, 3, 0, 3, 0])  # unknown, but it may not be said
    line_of = form(translator, [line])
    said = [line_of(each) for each in translator.translate([line, "ver ri"])]
    for each in said:
        assert len(each.split()) > 5
        assert set(each.split()) <= set(line.split())  # no copy, no word that is not a piece


@pytest.mark.parametrize(
    ("line", "tokenizer"), [("the old river", {"kind": "whitespace"}), ("an old, old river.", {"vocab_size": 330})]
)
def test_other_text_is_written_as_text(line: str, tokenizer: dict[str, object]) -> None:
    translator = translator_of([line], **tokenizer)
    copies, line_of = translator.replaces_unknown, form(translator, [line])
    (found,) = translator.translate([line])
    assert (line_of(found), translator.replaces_unknown) == (found.text, copies)


def test_a_file_is_filled_from_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translating, "CHUNK", 3)
    sources, path, asked = [f"line {n}" for n in range(10)], tmp_path / "parts" / "a.txt", []

    def work(lines: Sequence[str]) -> list[str]:
        asked.append(list(lines))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return [f"{line} of {lines[0]}" for line in lines]

    with pytest.raises(KeyboardInterrupt):
        fill(path, "a", sources, work, Progress(10))
    assert not path.exists()
    (unfinished,) = path.parent.iterdir()
    whole = unfinished.read_bytes()
    for cut in range(len(whole) + 1):  # wherever the file ends, all that is missing is made, in the same chunks
        path.unlink(missing_ok=True)
        unfinished.write_bytes(whole[:cut])
        asked[:] = [[]] * 3
        fill(path, "a", sources, work, Progress(10))
        assert path.read_text() == "".join(f"{line} of line {n // 3 * 3}\n" for n, line in enumerate(sources))
        assert sum(map(len, asked)) == 10 - whole[:cut].count(b"\n") // 3 * 3
        assert not unfinished.exists()


def test_progress_tells_what_is_left(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    progress = Progress(100)
    progress.skip(40)
    for clock[0] in (4.0, 8.0, 24.0):
        progress.add(20, "forward-1", "some")
    assert capfd.readouterr().err.splitlines() == [
        "forward-1: some, 5 sentences/s, 0:04 left in all",
        "forward-1: some, 2 sentences/s, 0:00 left in all",
    ]


def test_two_processes_do_not_write_the_same_file(tmp_path: Path) -> None:
    with opened(tmp_path / "a"), pytest.raises(UserError, match="another process is writing"), opened(tmp_path / "a"):
        raise AssertionError
    with opened(tmp_path / "a"):
        pass
    with pytest.raises(UserError, match="cannot write"), opened(tmp_path / "a" / "b"):
        raise AssertionError


def test_every_teacher_has_a_seed_of_its_own() -> None:
    search = Search("cpu", "fp32", 1, {}, {"temperature": 0.5, "seed": LARGEST_SEED})
    assert [search.of(n) for n in (0, 1)] == [{"temperature": 0.5, "seed": seed} for seed in (LARGEST_SEED, 0)]
