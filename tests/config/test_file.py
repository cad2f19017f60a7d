"""Configurations on disk."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config.file import load_config, save_config
from nmt.config.schema import TrainConfig
from nmt.errors import UserError


@settings(max_examples=50)
@given(text=st.text("\\${}:a", max_size=9))
def test_no_text_is_an_interpolation(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    config = TrainConfig()
    config.data.source_language = text
    save_config(config, path)
    assert load_config(path).data.source_language == text


def test_a_configuration_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    for names in (["x" * 100] * 12_000, ["a[b"] * 1_001):
        config = TrainConfig()
        config.data.train.source = names
        with pytest.raises(UserError, match="it probably names thousands of files"):
            save_config(config, tmp_path / "config.yaml")
    assert not list(tmp_path.iterdir())


@settings(max_examples=20)
@given(text=st.text(st.characters(codec="utf-8"), max_size=20), seed=st.integers(0, 2**40), rate=st.floats(1e-12, 1e3))
def test_a_configuration_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory, text: str, seed: int, rate: float
) -> None:
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    config = TrainConfig(seed=seed)
    config.data.train.source = [text, "b.en"]
    config.optimizer.learning_rate = rate
    save_config(config, path)
    assert load_config(path) == config


def test_an_interpolation_in_a_file_is_plain_text(tmp_path: Path) -> None:
    config = TrainConfig()
    config.data.train.source = ["${oc.env:HOME}", "${seed}", r"\${oc.env:HOME}", r"a\\${seed}\\\${seed}", "\\"]
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config


# Nine lists of nine of the list before: 600 bytes that stand for billions of values.
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {hiden_size: 3}", r"is not a configuration of nmt: unknown key 'model\.hiden_size'; did you mean"),
        ("model: {hidden_size: many}", r"model\.hidden_size='many' has the wrong type: it must be int"),
        ("model: {cell: rnn}", r"unknown model\.cell 'rnn'"),
        ("data: {source_language: '???'}", r"it has \?\?\?, which is no value"),
        ("data: {source_language: no}", "source_language=False: YAML reads `no` and `yes` as truth values"),
        ("model: 5", "is not a configuration of nmt"),
        ("- 1\n- 2", "not a mapping of keys to values"),
        ("", "not a mapping of keys to values"),
        ("seed: [", "cannot read the configuration"),
        ("seed: !!python/object/apply:os.getpid []", "cannot read the configuration"),
        (BOMB, r"cannot read the configuration .*it has YAML aliases \(\*name\), which nmt does not write"),
        ("seed: " + "[" * 50_000, "cannot read the configuration"),
        ("seed: 1\n" + "#" * 1_000_000, r"it has more than 1,000,000 bytes"),
    ],
)
def test_a_malformed_file_is_the_users_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        load_config(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_one_that_is_not_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the configuration"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot read the configuration"):
        load_config(tmp_path / "binary.yaml")


def test_a_missing_key_gets_its_default(tmp_path: Path) -> None:
    """It may be younger than the file; sections are not."""
    path = tmp_path / "config.yaml"
    save_config(TrainConfig(seed=7), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(("threads:", "  patience:"))))
    assert load_config(path) == TrainConfig(seed=7)


@pytest.mark.parametrize("section", ["search", "trainer"])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, section: str) -> None:
    path = tmp_path / "config.yaml"
    save_config(TrainConfig(), path)
    path.write_text(path.read_text().split(f"{section}:\n")[0])
    with pytest.raises(UserError, match="it has no trainer: has it been cut"):
        load_config(path)
