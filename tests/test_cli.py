"""The command line as a user meets it: exit status, and what is printed where."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import compose_and_run, prepare_rank, status_and_message
from nmt.config.file import save_config
from nmt.config.schema import DataConfig, ModelConfig, SplitConfig, TrainConfig
from nmt.errors import UserError
from nmt.training.torchrun_env import RankEnvironment
from tests.runs import ROOT

SCRIPT = """
import signal, sys, time
from nmt.cli import hydra_main
from nmt.config.schema import TrainConfig
from nmt.errors import UserError

class Lost:
    def __del__(self): signal.raise_signal(signal.SIGINT)

@hydra_main("train", TrainConfig)
def main(config: TrainConfig) -> None:
    match config.seed:
        case 101: raise UserError("no such file: a.en; see data.train.source")
        case 102: raise RuntimeError("a defect")
        case 103: raise KeyboardInterrupt
        case 104: print("text\\n" * 100_000)
        case 105:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            lost = Lost()
            del lost
            time.sleep(10_000)
        case 106: print("for standard error", file=sys.stderr)
    print(config.run_dir, config.model.decoder, config.data.train.source)

main()
"""


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "task.py"
    path.write_text(SCRIPT)
    return path


def run(script: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *arguments]
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, cwd=folder, env=environment, check=False, **pipes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.hiden_size=3"], "unknown key 'model.hiden_size'; did you mean 'model.hidden_size'?"),
        (["+model.hiden_size=3"], "unknown key 'model.hiden_size'; did you mean 'model.hidden_size'?"),
        (["modl=luong"], "unknown key 'modl'; did you mean 'model'?"),
        (
            ["model=luongg"],
            "unknown model 'luongg': choose one of bahdanau, conditional, fixed_context, gnmt, luong; "
            "did you mean 'luong'?",
        ),
        (["experiment=none"], "unknown experiment 'none': choose one of"),
        (["model.cell=gruu"], "unknown model.cell 'gruu': choose one of gru, lstm; did you mean 'gru'?"),
        (["model.hidden_size=big"], "model.hidden_size='big' has the wrong type: it must be int"),
        (["trainer.max_minutes=soon"], "trainer.max_minutes='soon' has the wrong type: it must be float or null"),
        (["seed=null"], "seed=null has the wrong type: it must be int"),
        (
            ["model.attention=dot"],
            "model.attention is a group of keys, no value: set one of them, such as model.attention.score=",
        ),
        (["trainer=null"], "trainer is a group of keys, no value: set one of them, such as trainer.device="),
        (["model.dropout=1.5"], "model.dropout=1.5 is out of range: it must be below 1"),
        (["optimizer.betas=[0.9]"], "optimizer.betas=[0.9] has 1 elements: it must have 2"),
        (["optimizer.betas=null"], "optimizer.betas=null has the wrong type: it must be list[float]"),
        ([f"seed={2**70}"], f"seed={2**70} is out of range: it must be at most {2**63 - 1}"),
        (["model=[1]"], "cannot read the overrides: what is chosen of a group, as in model=luong, is a name"),
        (["model.dropout"], "cannot read the override 'model.dropout': write key=value"),
        (["seed=101"], "no such file: a.en; see data.train.source"),
        (["-m", "seed=1,x"], "seed='x' has the wrong type: it must be int"),
        (["--config-dir", "nowhere"], "nowhere' not found"),
    ],
)
def test_the_users_errors(script: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(script, tmp_path, *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_folder_that_cannot_be_made_is_named(script: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(script, tmp_path, "run_dir=file")
    assert result.returncode == 2
    assert result.stderr == "error: cannot use file: File exists; choose another folder (run_dir)\n"


def test_a_run_that_never_began_leaves_no_folder(script: Path, tmp_path: Path) -> None:
    assert run(script, tmp_path, "run_dir=run", "model.dropout=2").returncode == 2
    assert run(script, tmp_path, "run_dir=run", "seed=101").returncode == 2
    assert not (tmp_path / "run").exists()


def test_a_configuration_folder_of_the_users_own(script: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "good.yaml").write_text("decoder: luong\n")
    (tmp_path / "mine" / "model" / "bad.yaml").write_text("decodr: luong\n")
    good = run(script, tmp_path, "--config-dir", "mine", "model=good", "run_dir=run")
    assert good.stdout == "run luong None\n"
    bad = run(script, tmp_path, "--config-dir", "mine", "model=bad")
    assert bad.stderr == "error: in model/bad.yaml: unknown key 'model.decodr'; did you mean 'model.decoder'?\n"


def test_a_saved_configuration_is_repeated_as_an_experiment(script: Path, tmp_path: Path) -> None:
    """As the root of the configuration it lacks the defaults; the message says what to do, and that works."""
    saved = TrainConfig(seed=3, model=ModelConfig(decoder="luong"), data=DataConfig(train=SplitConfig(source="a.en")))
    save_config(saved, tmp_path / "config.yaml")
    found = run(script, tmp_path, "--config-dir", ".", "--config-name", "config")
    assert found.returncode == 2
    assert found.stderr.startswith("error: --config-name names a file without the defaults of this command: to repeat")
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\n" + (tmp_path / "config.yaml").read_text()
    (tmp_path / "experiment" / "again.yaml").write_text(text)
    again = run(script, tmp_path, "--config-dir", ".", "experiment=again", "run_dir=new")
    assert again.stdout == "new luong a.en\n"


def test_a_defect_of_the_composition_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # set by the call, and taken back by this
    monkeypatch.setattr("nmt.cli.config_folder", lambda: [] + 1)
    for overrides, kind in ((["seed=1"], TypeError), (["model=[1]"], UserError)):
        monkeypatch.setattr(sys, "argv", ["nmt.train", *overrides])
        with pytest.raises(kind):
            compose_and_run("train", TrainConfig, lambda config: None, show_errors=True)


def test_the_root_of_another_command_is_refused(script: Path, tmp_path: Path) -> None:
    found = run(script, tmp_path, "--config-name", "evaluate")
    assert found.returncode == 2
    assert found.stderr.startswith("error: --config-name names a file without the defaults of this command: to repeat")


def test_a_locale_that_cannot_name_a_path_is_told() -> None:
    error = UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)")
    assert status_and_message(error) is None  # with UTF-8 it is a defect
    code = f"from nmt.cli import status_and_message; print(status_and_message({error!a})[1])"
    plain = {"PYTHONPATH": str(ROOT), "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **plain}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("error: this locale has no letters beyond ASCII")


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        tmp_path.read_text()
    assert status_and_message(caught.value) == (2, f"error: {tmp_path}: Is a directory")
    assert status_and_message(OSError(errno.ENOTCONN, "Not connected", "a")) is None


def test_a_defect_keeps_its_traceback(script: Path, tmp_path: Path) -> None:
    result = run(script, tmp_path, "seed=102")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "RuntimeError: a defect" in result.stderr


def test_an_interruption(script: Path, tmp_path: Path) -> None:
    result = run(script, tmp_path, "seed=103")
    assert (result.returncode, result.stderr) == (130, "interrupted\n")


def test_an_interruption_that_python_drops(script: Path, tmp_path: Path) -> None:
    """Python ignores what is raised while an object is deleted, which matplotlib does all the time.

    Background jobs of a shell begin with SIGINT ignored, and so may tests.
    """
    result = run(script, tmp_path, "seed=105")
    assert (result.returncode, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(("closed", "printed"), [("2>&-", 1), (">&-", 0)])
def test_a_stream_that_is_closed(script: Path, tmp_path: Path, closed: str, printed: int) -> None:
    """What is for standard error does not go to standard output instead."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, str(script), "seed=106"]
    result = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, len(result.stdout.splitlines())) == (0, printed)
    assert "for standard error" not in result.stdout
    assert "Traceback" not in result.stderr


def test_a_reader_that_goes_away(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script), "seed=104"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "text\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_the_run_folder(script: Path, tmp_path: Path) -> None:
    dated = run(script, tmp_path).stdout.split()[0]
    assert dated.startswith("outputs/")
    assert (tmp_path / dated).is_dir()
    outside = tmp_path / "work"
    outside.mkdir()
    assert run(script, outside, f"run_dir={tmp_path}/run").stdout.split()[0] == f"{tmp_path}/run"


def test_a_sweep_has_a_folder_for_each_job(script: Path, tmp_path: Path) -> None:
    result = run(script, tmp_path, "-m", "run_dir=sweep", "model=bahdanau,luong")
    assert result.stdout.splitlines() == ["sweep/0 bahdanau None", "sweep/1 luong None"]
    assert result.stderr == ""


def test_a_sweep_goes_on_after_a_job_that_fails(script: Path, tmp_path: Path) -> None:
    result = run(script, tmp_path, "-m", "run_dir=sweep", "model.dropout=2,0.1")
    assert result.returncode == 2
    assert result.stdout.splitlines() == ["sweep/1 bahdanau None"]
    first, second = result.stderr.splitlines()
    assert first.startswith("error: job 0 (model.dropout=2): model.dropout=2.0 is out of range")
    assert second == "error: 1 of the 2 jobs of this sweep failed: see the errors above"


def test_a_sweep_of_jobs_in_processes_of_their_own_tells_of_one_that_fails(script: Path, tmp_path: Path) -> None:
    """As SLURM runs them: the launcher's stand-in for a machine without it."""
    options = ["hydra/launcher=submitit_local", "run_dir=sweep", "model.dropout=2,0.1"]
    result = run(script, tmp_path, "-m", *options)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "error: job 0 of this sweep failed: see its log"
    assert "Traceback" not in result.stderr
    told = "".join(path.read_text() for path in (tmp_path / "sweep" / ".submitit").rglob("*_log.*"))
    assert "): model.dropout=2.0 is out of range" in told
    assert "sweep/1 bahdanau None" in told


def test_help_and_cfg_run_nothing(script: Path, tmp_path: Path) -> None:
    help_text = run(script, tmp_path, "--help")
    assert help_text.returncode == 0
    assert "model: bahdanau, conditional, fixed_context, gnmt, luong" in help_text.stdout
    job = run(script, tmp_path, "--cfg", "job", "model=luong", "data.train.source=[a,b]")
    assert "decoder: luong" in job.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, nmt, nmt.cli; assert not {'torch', 'datasets', 'hydra', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_translation_starts_without_what_only_corpora_need() -> None:
    code = "import sys, nmt.translate, nmt.translator; assert not {'datasets', 'pandas', 'hydra'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_only_the_first_of_several_processes_makes_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # what it sets, unset again after the test
    ranks = (RankEnvironment(), RankEnvironment(0, 0, 2), RankEnvironment(1, 1, 2))
    for environment, more in zip(ranks, ([], [], ["hydra.run.dir=."]), strict=True):
        for before, after in (
            ([], []),
            ([], ["seed=2", "--cfg", "job"]),
            (["--config-dir", "d"], ["seed=2"]),
            ([], ["--cfg", "job"]),
        ):
            monkeypatch.setattr(sys, "argv", ["nmt.train", *before, *after])
            prepare_rank(environment)
            assert sys.argv == ["nmt.train", *before, *more, *after]
