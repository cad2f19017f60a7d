"""Hydra's command line, before Hydra reads it."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from nmt.config.options import normalize_arguments
from nmt.config.schema import EvaluateConfig, TrainConfig
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("given", "arranged"),
    [
        ([], []),
        (["model=luong", "seed=1"], ["model=luong", "seed=1"]),
        (["-m", "seed=1,2"], ["-m", "seed=1,2"]),
        (["seed=1", "--cfg", "job", "model=luong"], ["--cfg", "job", "seed=1", "model=luong"]),
        (["seed=1", "--config-dir=d", "--multirun", "+a=b"], ["--config-dir=d", "--multirun", "seed=1", "+a=b"]),
        (["--help"], ["--help"]),
    ],
)
def test_options_and_overrides_come_in_any_order(given: list[str], arranged: list[str]) -> None:
    assert normalize_arguments(given, TrainConfig()) == arranged


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_the_home_folder_may_be_written_as_a_shell_does(quote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra refuses a tilde that is not quoted, and would make a folder of that name of one that is."""
    monkeypatch.setenv("HOME", "/home/me")
    given = [f"data.cache_dir={quote}~/my data{quote}", "run_dir=~/a,~/b", "model.dropout=0.1", "~optimizer"]
    assert normalize_arguments(given, TrainConfig()) == ['data.cache_dir="/home/me/my data"', *given[1:]]


@pytest.mark.parametrize(
    "path",
    [
        "2025_11_25",
        "1e3",
        "007",
        "true",
        "inf",
        "/Übersetzer/ru n",
        "a(1).en",
        "日本/x",
        'the "new" one(s)',
        "back\\slash(",
        "(ends\\",
        '(a\\"b',
        "a=b(c)",
    ],
)
def test_a_path_may_have_any_letters(path: str) -> None:
    """Hydra reads back what was given; alone it refuses letters that are not ASCII, parentheses and so on, and reads
    numbers and truth values.
    """
    given = [f"run_dir={path}", f"data.train.source={path}"]
    overrides = OverridesParser.create().parse_overrides(normalize_arguments(given, TrainConfig()))
    assert [each.value() for each in overrides] == [path, path]


@pytest.mark.parametrize(
    "given",
    [
        "run_dir='a(",
        "data.train.source=[a(1),b]",
        "seed=(",
        "model.size=ü",
        "run_dir=~/a,~/b",
        "run_dir=a,b",
        "run_dir=1,2",
        "threads=null",
        "+x=ü",
    ],
)
def test_what_is_no_path_is_left_to_hydra(given: str) -> None:
    assert normalize_arguments([given], TrainConfig()) == [given]


@pytest.mark.parametrize(
    "given",
    [
        ["--checkpoint", "run", "split=test"],
        ["split=test", "--checkpoint=run"],
        ["--checkpoint", "run", "-m", "split=test"],
    ],
)
def test_the_checkpoint_is_given_as_to_translate(given: list[str]) -> None:
    assert set(normalize_arguments(given, EvaluateConfig())) - {"-m"} == {"checkpoint=run", "split=test"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--hidden-size", "256"], "there is no option --hidden-size: write model.hidden_size=256;"),
        (["--hidden_size=256"], "there is no option --hidden_size: write model.hidden_size=256;"),
        (["--hiden-size", "256"], "there is no option --hiden-size: write model.hidden_size=256;"),
        (["seed=1", "--model", "luong"], "there is no option --model: write model=luong;"),
        (["--seed", "--cfg", "job"], r"there is no option --seed: write seed=\.\.\.;"),
        (["--size=3"], "write batch.size=3 or model.attention.size=3;"),
        (["--zzz", "3"], "there is no option --zzz: write key=value;"),
        (["--checkpoint", "run"], "there is no option --checkpoint: write"),
        (["--cfg", "jobb"], "invalid choice: 'jobb'"),
        (["--seed", ""], "there is no option --seed: write seed=;"),
        (["--cfg"], "expected one argument; see --help"),
        (["run_dir=a", "hydra.run.dir=b"], r"run_dir and hydra\.run\.dir both name the folder of the run: leave"),
        (["-m", "hydra.sweep.dir=b", "run_dir=a"], r"run_dir and hydra\.sweep\.dir both name"),
    ],
)
def test_a_wrong_option_names_the_key(given: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        normalize_arguments(given, TrainConfig())
    assert "\n" not in str(caught.value)
