"""`python -m nmt.translate`: a line out for every line in, and nothing else."""

import dataclasses
import functools
import gzip
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nmt.config.schema import SearchConfig
from nmt.text.words import text_words
from nmt.translate import (
    CHARACTERS,
    FIRST_CHARACTERS,
    build_parser,
    chunks,
    load_translator,
    print_notices,
    render,
    show_attention,
)
from nmt.translation import empty_translation
from nmt.translator import Translator
from tests.runs import ROOT

SENTENCES = ["She helps her brother.", "The sister of Luc sees me when she meets this aunt.", "He sleeps."]
MIXED = [" ".join(SENTENCES[i % 3 : i % 3 + i % 5]) for i in range(30)]  # some empty, some of several sentences


@pytest.fixture
def translate(tiny_run: Path, call: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(call, "translate", "--checkpoint", str(tiny_run), "--device", "cpu")


@pytest.fixture(scope="module")
def expected(tiny_run: Path) -> dict[str, str]:
    """The translation of each sentence, translated by itself."""
    translator = Translator.load(tiny_run, device="cpu")
    return {sentence: translator.translate([sentence])[0].text for sentence in {*SENTENCES, *MIXED}}


def test_three_lines_the_second_empty(tiny_run: Path, tmp_path: Path, command: Callable[..., Any]) -> None:
    stdin = b"A man rides a horse.\n\nTwo dogs play.\n"
    done = command("translate", "--checkpoint", str(tiny_run), cwd=tmp_path, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, third, rest = done.stdout.split("\n")
    assert (second, rest) == ("", "")
    assert first
    assert third
    assert list(tmp_path.iterdir()) == []


def test_lines_keep_their_order(translate: Callable[..., Any], expected: dict[str, str]) -> None:
    stdin = "".join(f"{line}\n" for line in MIXED).encode()
    lines = translate("--batch-size", "4", stdin=stdin).stdout.split("\n")
    assert lines == [*(expected[line] for line in MIXED), ""]
    assert len(set(lines)) > 3


def test_sentences_as_arguments(translate: Callable[..., Any], expected: dict[str, str]) -> None:
    assert translate(*SENTENCES).stdout == "".join(f"{expected[sentence]}\n" for sentence in SENTENCES)
    assert translate("").stdout == "\n"


def test_files(translate: Callable[..., Any], expected: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    done = translate("--input", "in.txt", "--output", "out.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    written = (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert written == "".join(f"{expected[sentence]}\n" for sentence in SENTENCES)


def test_an_empty_file_is_no_gzipped_one(translate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "in.gz").touch()
    done = translate("--input", str(tmp_path / "in.gz"), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path / 'in.gz'} is not a readable gzip file (it is empty): write it again\n"
    assert not (tmp_path / "out").exists()


def test_a_gzipped_file(translate: Callable[..., Any], expected: dict[str, str], tmp_path: Path) -> None:
    """Whatever its name; training reads it, too."""
    packed = gzip.compress("\n".join(SENTENCES).encode())
    (tmp_path / "in.txt").write_bytes(packed)
    assert translate("--input", "in.txt").stdout == "".join(f"{expected[sentence]}\n" for sentence in SENTENCES)
    for broken in (packed[:-9], packed[:20] + b"???" + packed[23:]):
        (tmp_path / "in.txt").write_bytes(broken)
        done = translate("--input", "in.txt", "--output", "out.txt")
        assert done.returncode == 2
        assert done.stderr.startswith("error: cannot read in.txt: ")
        assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("stdin", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"He sleeps.", ["He sleeps."]),
        (b"He sleeps.\n\n", ["He sleeps.", ""]),
        (b"He sleeps.\r\n\r\nHe", ["He sleeps.", "", "He"]),
        ("\ufeffHe sleeps.\n\ufeffHe".encode(), ["He sleeps.", "\ufeffHe"]),
        ("a\u2028b\x0cc\x85d\ne".encode(), ["a\u2028b\x0cc\x85d", "e"]),
    ],
)
def test_lines_end_at_newlines_only(translate: Callable[..., Any], stdin: bytes, lines: list[str]) -> None:
    printed = translate("--json", stdin=stdin).stdout
    assert [json.loads(line)["source"] for line in printed.split("\n")[:-1]] == lines
    assert translate(stdin=stdin).stdout.count("\n") == len(lines)


def test_several_translations_a_line(translate: Callable[..., Any], expected: dict[str, str]) -> None:
    first, empty, end = translate("--n-best", "3", stdin=f"{SENTENCES[0]}\n\n".encode()).stdout.split("\n")
    assert len(set(first.split("\t"))) == 3
    assert (empty, end) == ("", "")
    two = translate("--n-best", "2", "--beam-size", "2", SENTENCES[0]).stdout
    assert two.split("\t")[0] == expected[SENTENCES[0]]
    found = json.loads(translate("--n-best", "3", "--json", SENTENCES[0]).stdout)["n_best"]
    assert [each["text"] for each in found] == first.split("\t")


def test_a_tab_stands_between_translations_alone(tiny_run: Path) -> None:
    found = Translator.load(tiny_run, "cpu").translate_n_best(["The cat sees my sister."], 2)[0]
    found = [dataclasses.replace(each, text="a\tb", target_words=["a\tb"], weights=each.weights[:1]) for each in found]
    for alignments in (None, "words", "soft", "pharaoh"):
        options = build_parser().parse_args(["--n-best", "2"])
        options.alignments = alignments
        assert render(found, options).count("\t") == 1


def test_samples(translate: Callable[..., Any], tiny_run: Path) -> None:
    options = ("--sample", "--n-best", "3", "--temperature", "1.5", "--top-k", "40", "--top-p", "0.95", "--seed", "5")
    translator = Translator.load(tiny_run, device="cpu")
    drawn = translator.sample(SENTENCES, 3, temperature=1.5, top_k=40, top_p=0.95, seed=5)
    lines = translate(*options, *SENTENCES[::-1], "").stdout.split("\n")
    assert lines == [*("\t".join(each.text for each in samples) for samples in drawn[::-1]), "", ""]
    found = json.loads(translate(*options, "--json", SENTENCES[0]).stdout)["n_best"]
    assert [each["text"] for each in found] == [each.text for each in drawn[0]]
    other = translate(*options[:-1], "6", *SENTENCES[::-1], "").stdout.split("\n")
    assert all(one != two for one, two in zip(lines[:3], other[:3], strict=True))
    greedy = translate("--beam-size", "1", *SENTENCES).stdout
    assert translate("--sample", "--temperature", "0", *SENTENCES).stdout == greedy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top-k", "5"), "--top-k is an option of sampling: add --sample"),
        (("--seed", "0"), "--seed is an option of sampling: add --sample"),
        (("--sample", "--beam-size", "5"), "--beam-size is an option of searching, and --sample draws"),
        (("--sample", "--top-p", "1.5"), "top_p=1.5 is out of range: it must be at most 1"),
        (("--sample", "--temperature", "inf"), "temperature=inf is out of range"),
        (("--sample", "--temperature", "nan"), "must be at least 0, not nan"),
    ],
)
def test_wrong_options_of_sampling(translate: Callable[..., Any], options: tuple[str, ...], message: str) -> None:
    done = translate(*options, SENTENCES[0])
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_json(translate: Callable[..., Any], expected: dict[str, str]) -> None:
    lines = translate("--json", *SENTENCES, "").stdout.split("\n")[:-1]
    *found, empty = map(json.loads, lines)
    for sentence, each in zip(SENTENCES, found, strict=True):
        assert (each["source"], each["text"]) == (sentence, expected[sentence])
        assert each["source_words"] == text_words(sentence)
        assert len(each["weights"]) == len(each["target_words"])
        for row in each["weights"]:
            assert len(row) == len(each["source_words"])
            assert sum(row) == pytest.approx(1.0, abs=1e-3)
        assert each["log_prob"] <= each["score"] < 0
        assert len(each["alignment"].split()) == len(each["target_words"])
    assert (empty["text"], empty["weights"], empty["alignment"]) == ("", [], "")


def test_alignments_follow_the_text(translate: Callable[..., Any], expected: dict[str, str]) -> None:
    links, nothing, _ = translate("--alignments", "pharaoh", SENTENCES[1], "").stdout.split("\n")
    text, alignment = links.split(" ||| ")
    found = json.loads(translate("--json", SENTENCES[1]).stdout)
    words = found["target_words"]
    assert text == expected[SENTENCES[1]]
    assert re.fullmatch(r"\d+-\d+( \d+-\d+)*", alignment)
    # Pharaoh lists links by source word; each target word has just one.
    source_of = {int(target): int(source) for source, target in (link.split("-") for link in alignment.split())}
    assert sorted(source_of) == list(range(len(words))) == list(range(len(alignment.split())))
    assert set(source_of.values()) <= set(range(len(found["source_words"])))
    assert nothing == " ||| "
    soft = translate("--alignments", "soft", SENTENCES[1]).stdout.rstrip("\n").split(" ||| ")[1]
    rows = [[float(weight) for weight in row.split(",")] for row in soft.split(" ")]
    # Four digits may tie where the weights themselves do not.
    assert all(row[source_of[target]] == max(row) for target, row in enumerate(rows))
    assert all(sum(row) == pytest.approx(1.0, abs=1e-2) for row in rows)


def test_words_of_alignments(translate: Callable[..., Any]) -> None:
    """With the words themselves, and as they were counted between spaces, which gold links count."""
    line = translate("--alignments", "words", SENTENCES[0]).stdout
    text, source, target, links = line.rstrip("\n").split(" ||| ")
    found = json.loads(translate("--json", SENTENCES[0]).stdout)
    assert source == "She helps her brother ."
    assert [target.split(), links] == [found["target_words"], found["alignment"]]
    assert target.split() == text_words(text)
    found = json.loads(translate("--words", "spaces", "--json", SENTENCES[0]).stdout)
    assert (found["source_words"], found["target_words"]) == (SENTENCES[0].split(), text.split())
    assert len(found["alignment"].split()) == len(text.split())


def test_drawings_go_to_standard_error_and_to_files(translate: Callable[..., Any], tmp_path: Path) -> None:
    plain = translate(*SENTENCES[:1], "", *SENTENCES[1:2])
    shown = translate("--show-alignment", "--heatmap", str(tmp_path / "maps"), *SENTENCES[:1], "", *SENTENCES[1:2])
    assert shown.stdout == plain.stdout
    assert plain.stderr == ""
    # Target words are written before their row.
    words = [word for line in plain.stdout.split("\n") for word in text_words(line)]
    assert [line.split()[0] for line in shown.stderr.split("\n") if "\u2591" in line] == words
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "maps").iterdir()}
    assert set(pictures) == {"00001.png", "00003.png"}
    assert all(content.startswith(b"\x89PNG") for content in pictures.values())


def test_the_search_can_be_set(translate: Callable[..., Any], tiny_run: Path) -> None:
    greedy = Translator.load(tiny_run, device="cpu", beam_size=1, length_penalty=0.0)
    (each,) = greedy.translate(SENTENCES[:1])
    found = json.loads(translate("--json", "--beam-size", "1", "--length-penalty", "0", SENTENCES[0]).stdout)
    assert found["text"] == each.text
    assert found["score"] == pytest.approx(each.log_prob, abs=1e-5)
    options = ("--coverage-penalty", "0.7", "--max-length-ratio", "0.1", "--max-length-offset", "3")
    short = Translator.load(
        tiny_run, device="cpu", coverage_penalty=0.7, max_length_ratio=0.1, max_length_offset=3
    ).translate(SENTENCES[1:2])[0]
    found = json.loads(translate("--json", *options, SENTENCES[1]).stdout)
    assert len(short.pieces) <= 4
    assert (found["text"], found["score"]) == (short.text, pytest.approx(short.score, abs=1e-5))
    assert found["score"] < found["log_prob"] / len(short.pieces)  # what is not covered costs
    assert translate("--replace-unknown", SENTENCES[0]).stdout == translate(SENTENCES[0]).stdout  # subwords know all
    done = translate("--max-length-ratio", "0", SENTENCES[0])
    assert (done.returncode, "max_length_ratio=0.0 is out of range" in done.stderr) == (2, True)


def test_every_option_of_the_search_reaches_it(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_datastore", "use_neighbors"):  # this run has no datastore
        monkeypatch.setattr(f"nmt.translator.{name}", lambda *_: None)
    search = SearchConfig(
        beam_size=7,
        length_penalty=0.25,
        coverage_penalty=0.5,
        patience=2.0,
        max_length_ratio=3.0,
        max_length_offset=9,
        neighbors=5,
        neighbor_weight=0.2,
        neighbor_temperature=2.5,
        replace_unknown=True,
        batch_unit="tokens",
        batch_size=33,
    )
    assert all(getattr(search, each.name) != each.default for each in dataclasses.fields(search))
    given = {f"--{name.replace('_', '-')}": value for name, value in vars(search).items()}
    options = [part for name, value in given.items() for part in ([name] if value is True else [name, str(value)])]
    assert (
        load_translator(build_parser().parse_args(["--checkpoint", str(tiny_run), "--device", "cpu", *options])).search
        == search
    )


def test_eight_bits_are_as_many_lines(translate: Callable[..., Any]) -> None:
    done = translate("--precision", "int8", stdin="\n".join(MIXED).encode())
    assert done.returncode == 0, done.stderr
    assert [bool(line) for line in done.stdout.split("\n")[:-1]] == [bool(line) for line in MIXED]
    assert done.stderr == ""


def test_help_needs_no_torch() -> None:
    heavy = {"torch", "numpy", "datasets", "sentencepiece", "hydra", "matplotlib"}
    code = (
        f"import sys, nmt.translate; nmt.translate.build_parser().format_help(); assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert "--n-best N" in build_parser().format_help()


def test_several_runs_translate_together(
    tiny_run: Path, translate: Callable[..., Any], expected: dict[str, str]
) -> None:
    """With itself a run says what it says alone."""
    done = translate("--ensemble", str(tiny_run), "--ensemble", str(tiny_run), *SENTENCES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [expected[sentence] for sentence in SENTENCES]
    assert translate("--ensemble", "nowhere", *SENTENCES).stderr.startswith("error: no checkpoint at nowhere: ")


def test_lines_that_are_cut_are_told(translate: Callable[..., Any]) -> None:
    done = translate("--max-length-ratio", "0.01", "--max-length-offset", "1", stdin=b"He sleeps.\n\nHe sleeps.\n")
    assert (done.returncode, done.stdout.count("\n")) == (0, 3)
    assert done.stderr == "notice: lines 1, 3: cut at the longest length allowed, see --max-length-ratio\n"
    many = translate("--max-length-ratio", "0.01", "--max-length-offset", "1", stdin=b"He sleeps.\n" * 12)
    assert "notice: lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more: cut" in many.stderr
    found = json.loads(
        translate("--json", "--max-length-ratio", "0.01", "--max-length-offset", "1", "He sleeps.").stdout
    )
    assert (found["cut"], found["parts"]) == (True, 1)


def test_a_line_far_longer_than_those_trained_on_is_told(
    tiny_run: Path, tmp_path: Path, call: Callable[..., Any], expected: dict[str, str]
) -> None:
    """How long training sentences were is kept beside the weights."""
    run = shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns("tensorboard", "evaluation"))
    for name in ("best", "last"):
        weights = run / "checkpoints" / name / "model.safetensors"
        with safe_open(weights, framework="pt") as file:
            metadata = file.metadata() | {"longest": "12"}
        save_file(load_file(weights), weights, metadata)
        (weights.parent / "manifest.json").unlink()
    lines = (SENTENCES[0], " ".join(SENTENCES), "He sleeps.")
    done = call("translate", "checkpoint=run", "--device", "cpu", *lines)
    assert done.stderr == "notice: line 2: far longer than what the model was trained on, translated in parts\n"
    first, _, third = done.stdout.splitlines()
    assert (first, third) == (expected[SENTENCES[0]], expected[SENTENCES[2]])


def test_a_translation_of_too_many_words_has_no_heatmap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The picture of 5,000 words would take 95 GB, and the lines after it were not translated."""
    words, options = ["a"] * 301, build_parser().parse_args(["--heatmap", str(tmp_path / "maps")])
    long = dataclasses.replace(
        empty_translation(" ".join(words)), source_words=words, target_words=["b"], weights=np.ones((1, 301)) / 301
    )
    show_attention(long, 1, options)
    assert not (tmp_path / "maps").exists()
    print_notices({1: long, 2: empty_translation("")}, with_alignment=True, with_heatmap=True)
    assert capsys.readouterr().err == "notice: line 1: more than 300 words, no heatmap is drawn\n"


def test_a_folder_with_a_space_is_one(tiny_run: Path, tmp_path: Path, call: Callable[..., Any]) -> None:
    """It was translated, by another model."""
    (tmp_path / "other run").symlink_to(tiny_run)
    done = call("translate", "checkpoint=other run", "--device", "cpu", "He sleeps.")
    same = call("translate", "--checkpoint", str(tiny_run), "--device", "cpu", "He sleeps.")
    assert (done.returncode, done.stdout) == (0, same.stdout)


def test_a_text_may_look_like_a_setting(
    translate: Callable[..., Any], tiny_run: Path, call: Callable[..., Any]
) -> None:
    assert translate("--json", "--", "beam_size=3").returncode == 0
    assert json.loads(translate("--json", "a=b").stdout)["source"] == "a=b"
    same = translate("He sleeps."), call("translate", f"checkpoint={tiny_run}", "--device", "cpu", "He sleeps.")
    assert same[0].stdout == same[1].stdout


class Long(str):
    """A text that says to be so long."""

    length = 0

    def __len__(self) -> int:
        return self.length


@given(st.lists(st.integers(0, 3 * CHARACTERS), max_size=30), st.integers(1, 5))
def test_chunks_hold_all_lines_in_order_and_few_long_ones(lengths: list[int], size: int) -> None:
    lines = [Long(number) for number in range(len(lengths))]
    for line, length in zip(lines, lengths, strict=True):
        line.length = length
    found = list(chunks(iter(lines), size))
    assert [line for chunk in found for line in chunk] == lines
    assert all(0 < len(chunk) <= size for chunk in found)
    for most, chunk in zip(itertools.chain([FIRST_CHARACTERS], itertools.repeat(CHARACTERS)), found, strict=False):
        assert sum(map(len, chunk)) <= most or len(chunk) == 1
