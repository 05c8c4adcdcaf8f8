"""The command line as a user meets it."""

import json
from pathlib import Path

import pytest
import torch
from helpers import cifar_folder
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from orchid.cli import app
from orchid.recipes import list_recipes
from orchid.train.lock import FolderLock


def orchid(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_list_and_show() -> None:
    listed = orchid("list")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in list_recipes())
    shown = orchid("show", "recall/demo-orchid", "--set", "train.steps=3")
    assert json.loads(shown.stdout)["train"]["steps"] == 3


def test_help_names_the_defaults() -> None:
    assert "(runs/RECIPE/seed-N)" in orchid("train", "--help").stdout
    assert "(that in ORCHID_DATA)" in orchid("grid", "--help").stdout


def test_train_eval_and_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = orchid("train", "recall/demo-static", "--tiny", "--cpu", "--seed", 2, "--out", run)
    assert trained.exit_code == 0, trained.output
    assert str(run) in trained.stdout
    result = json.loads((run / "result.json").read_text())
    assert result["seed"] == result["config"]["seed"] == 2
    evaluated = orchid("eval", run, "--cpu")
    assert f"test/accuracy  {result['metrics']['test/accuracy']:.4f}" in evaluated.stdout
    again = orchid("train", "recall/demo-static", "--tiny", "--cpu", "--seed", 2, "--out", run, "--resume")
    assert again.exit_code == 0


def test_eval_says_what_it_evaluates(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "run" / "model.safetensors"
    settings = ("--set", "train.steps=4", "--set", "train.checkpoint_every=3")
    train = ("train", "recall/demo-static", "--tiny", "--cpu", *settings, "--out", run, "--resume")
    orchid(*train, "--time-limit", 0)
    assert "checkpoint of step 0 of 4: nothing is trained yet" in orchid("eval", run, "--cpu").stderr
    orchid(*train)
    assert orchid("eval", run, "--cpu").stderr == ""
    whole = {name: tensor.clone() for name, tensor in load_file(file).items()}  # they are a view of the file
    file.write_bytes(file.read_bytes()[:-8])
    damaged = orchid("eval", run, "--cpu")
    assert damaged.exit_code == 2
    assert str(file) in damaged.stderr and "train RECIPE --resume" in damaged.stderr and "delete" not in damaged.stderr
    assert orchid(*train).exit_code == 0, "the advice works"
    assert all(torch.equal(tensor, whole[name]) for name, tensor in load_file(file).items())
    file.unlink()
    assert "checkpoint of step 3 of 4: the run has no finished model" in orchid("eval", run, "--cpu").stderr


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", '{"recipe": 5}', "names no recipe"),
        ("config.json", '{"recipe": "recall/demo-orchyd"}', "did you mean 'recall/demo-orchid'?"),
        ("config.json", '{"recipe": "recall/demo-static", "model": 3}', "damaged, or of another version: "),
        ("config.json", "\udcff", "is damaged and cannot be read"),
        ("result.json", '{"recipe": "recall/demo-static"}', "is damaged: it has no 'config'"),
        ("metrics.jsonl", '{"step": 1}\n???\n', "is damaged at line 2, '???'"),
        ("metrics.jsonl", "3\n", "is damaged at line 1, '3'"),
    ],
)
def test_damaged_files_of_a_run_are_named(file: str, text: str, message: str, tmp_path: Path) -> None:
    run = ("train", "recall/demo-static", "--tiny", "--cpu", "--out", tmp_path, "--resume")
    assert orchid(*run, "--time-limit", 0).exit_code == 0
    (tmp_path / file).write_text(text, errors="surrogateescape")
    outcome = orchid("eval", tmp_path, "--cpu") if file == "config.json" else orchid(*run)
    assert outcome.exit_code == 2
    assert str(tmp_path / file) in outcome.stderr and message in outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "recall/demo-orchyd"], "did you mean 'recall/demo-orchid'? (`orchid list` shows them all)"),
        (["list", "recall/demo-orchyd"], "did you mean 'recall/demo-orchid'? (`orchid list` shows all)"),
        (["show", "recall/demo-orchid", "--set", "model.options.sigmo=1"], "did you mean 'sigma'? (it has "),
        (["train", "recall/demo-orchid", "--set", "train.step=1"], "did you mean 'steps'?"),
        (["train", "recall/demo-orchid", "--set", "model.mixer=atention"], "did you mean 'attention'?"),
        (["train", "recall/demo-orchid", "--tiny", "--cpu", "--out", "file"], "--out file: file is not a folder"),
        (
            ["train", "recall/demo-orchid", "--tiny", "--cpu", "--out", "file/run"],
            "--out file/run: file is not a folder",
        ),
        (["grid", "recall/demo-orchid", "--tiny", "--cpu", "--out", "file"], "--out file: file is not a folder"),
        (["grid", "recall/demo-orchid", "--cpu", "--keep", "file/kept"], "--keep file/kept: file is not a folder"),
        (["tune", "recall/demo-orchid", "--tiny", "--cpu", "--out", "file"], "--out file: file is not a folder"),
        (["fetch", "glue", "--out", "file"], "--out file: file is not a folder"),
        (["tokenize", ".", "--tokenizer", ".", "--out", "file"], "--out file: file is not a folder"),
        (["glue", ".", "--data", ".", "--out", "file"], "--out file: file is not a folder"),
        (["export", ".", "--out", "file"], "--out file: file is not a folder"),
        (["demo", "--tiny", "--out", "file"], "--out file: file is not a folder"),
        (["train", "recall/demo-orchid", "--tiny", "--cpu", "--time-limit", "-5"], "time_limit=-5.0 must be minutes"),
        (["train", "recall/demo-orchid", "--tiny", "--cpu", "--seed", "-1"], "seed=-1"),
        (["train", "recall/demo-orchid", "--tiny", "--cpu", "--seed", str(2**64)], f"seed={2**64} must be below 2^64"),
        (["bench", "runtime", "--batch", "0", "--lengths", "8"], "--batch=0 must be"),
        (["bench", "runtime", "--batch", "3"], "--batch 3 goes with --lengths"),
        (["bench", "runtime", "--lengths", ""], "must be whole numbers"),
        (["bench", "runtime", "--json", "."], "--json . is a folder; name a file"),
        (["bench", "models", "--json", "."], "--json . is a folder; name a file"),
        (["bench", "training", "recall/demo-orchid", "--json", "file/a.json"], "--json file: file is not a folder"),
        (["eval", "nowhere"], "is not the folder of a run"),
        (["report", "--results", "nowhere"], "nowhere is not a folder of results"),
        (["bench", "runtime", "--lengths", "a,b"], "must be whole numbers"),
        (["bench", "runtime", "--mixers", "atention", "--lengths", "8"], "did you mean 'attention'?"),
    ],
)
def test_bad_input_is_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    outcome = orchid(*arguments)
    assert outcome.exit_code == 2
    assert message in outcome.stderr


class TestData:
    """The folder of the data: an argument, or in the environment."""

    RECIPE = "vision/cifar10-s-p4"

    @pytest.fixture(autouse=True)
    def nothing_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("ORCHID_DATA", raising=False)

    def trained_on(self, out: Path, *arguments: object) -> str:
        outcome = orchid("train", self.RECIPE, "--tiny", "--cpu", "--out", out, *arguments)
        assert outcome.exit_code == 0, outcome.output
        return json.loads((out / "config.json").read_text())["task"]["data"]

    def test_which_of_them(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b, c = (str(cifar_folder(tmp_path / name)) for name in "abc")
        assert self.trained_on(tmp_path / "1", "--data", a) == a
        monkeypatch.setenv("ORCHID_DATA", b)
        assert self.trained_on(tmp_path / "2") == b
        assert self.trained_on(tmp_path / "3", "--data", a) == a
        assert self.trained_on(tmp_path / "4", "--data", a, "--set", f"task.data={c}") == c
        assert orchid("show", "recall/demo-orchid").exit_code == 0, "recipes without data do not mind"

    def test_many_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("orchid.bench.training.SECONDS", 0.01)
        given = (self.RECIPE, "--tiny", "--cpu", "--data", cifar_folder(tmp_path / "data"))
        for command in (("grid", *given, "--out", tmp_path / "runs"), ("bench", "training", *given)):
            outcome = orchid(*command)
            assert outcome.exit_code == 0, outcome.output

    @pytest.mark.parametrize("command", ["train", "grid"])
    def test_without_it_no_folder_is_claimed(self, command: str, tmp_path: Path) -> None:
        run = (command, self.RECIPE, "--tiny", "--cpu", "--out", tmp_path / "run")
        missing = orchid(*run)
        assert missing.exit_code == 2 and "name it by --data FOLDER, or in ORCHID_DATA" in missing.stderr
        wrong = orchid(*run, "--data", tmp_path / "nowhere")
        assert wrong.exit_code == 2 and "nowhere' does not exist" in wrong.stderr
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("recipe", "message"),
        [("recall/demo-orchid", "it makes its own data"), ("bert/mlm-orchid-small", "--set task.train=FOLDER and")],
    )
    def test_recipes_that_read_no_such_folder(self, recipe: str, message: str) -> None:
        outcome = orchid("train", recipe, "--data", "x")
        assert outcome.exit_code == 2 and f"--data x: {recipe} has no setting task.data" in outcome.stderr
        assert message in outcome.stderr

    @pytest.mark.parametrize(
        ("arguments", "command"),
        [
            (("vision/cifar10-s-p4",), "--data FOLDER"),
            (("vision/cifar10-s-p4", "--set", "task.data=x y"), "--set 'task.data=x y'"),
            (("vision/cifar10-s-p4", "--tiny"), "--tiny --data FOLDER"),
            (("bert/glue-cola",), "--data FOLDER --set model.start=FOLDER"),
            (("bert/mlm-orchid-small",), "--set task.train=FOLDER --set task.valid=FOLDER"),
            (("recall/demo-orchid",), ""),
        ],
    )
    def test_show_prints_a_command_that_works(self, arguments: tuple[str, ...], command: str) -> None:
        shown = orchid("show", *arguments)
        assert f"run it:    orchid train {arguments[0]} {command}".rstrip() + "\n" in shown.stderr

    def test_of_a_run_that_has_moved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder, run = cifar_folder(tmp_path / "data"), tmp_path / "run"
        self.trained_on(run, "--data", folder)
        folder.rename(tmp_path / "elsewhere")
        lost = orchid("eval", run, "--cpu")
        assert lost.exit_code == 2
        assert f"task.data='{folder}' of {run} no longer exists: name its folder in ORCHID_DATA" in lost.stderr
        monkeypatch.setenv("ORCHID_DATA", str(tmp_path / "elsewhere"))
        found = orchid("eval", run, "--cpu")
        assert found.exit_code == 0 and "test/accuracy" in found.stdout
        again = orchid("train", self.RECIPE, "--tiny", "--cpu", "--out", run, "--data", folder, "--resume")
        assert again.exit_code == 0, "a finished run reads no data"


def test_two_at_once_in_one_folder(tmp_path: Path) -> None:
    run = ("train", "recall/demo-orchid", "--tiny", "--cpu", "--out", tmp_path / "run", "--resume")
    assert orchid(*run, "--time-limit", 0).exit_code == 0
    other = FolderLock(tmp_path / "run" / "run.lock")
    other.acquire()
    second = orchid(*run)
    assert second.exit_code == 2 and "is in use: another process trains in it" in second.stderr
    assert orchid("eval", tmp_path / "run", "--cpu").exit_code == 0, "reading is free to all"
    other.release()
    assert orchid(*run).exit_code == 0


def test_demo(tmp_path: Path) -> None:
    first = orchid("demo", "--tiny", "--out", tmp_path / "demo")
    assert first.exit_code == 0, first.output
    assert "best guess" in first.stdout
    picture = (tmp_path / "demo" / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    again = orchid("demo", "--tiny", "--out", tmp_path / "demo")
    assert again.exit_code == 0, "a finished demo only draws again"


def test_bench_and_report(tmp_path: Path) -> None:
    rows = tmp_path / "results" / "runtime" / "cpu.json"
    timed = orchid("bench", "runtime", "--cpu", "--lengths", "16,32", "--d-model", 8, "--json", rows)
    assert timed.exit_code == 0, timed.output
    data = json.loads(rows.read_text())
    assert set(data["rows"][0]) == {
        "mixer", "backend", "dtype", "batch", "length", "d_model", "timed", "timing",
        "forward_ms", "forward_backward_ms", "peak_mib",
    }  # fmt: skip
    orchid("train", "recall/demo-orchid", "--tiny", "--cpu", "--out", tmp_path / "run")
    (tmp_path / "run" / "result.json").rename(tmp_path / "results" / "demo.json")
    (tmp_path / "README.md").write_text("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n")
    reported = orchid("report", "--results", tmp_path / "results", "--out", tmp_path)
    assert reported.exit_code == 0, reported.output
    results = (tmp_path / "RESULTS.md").read_text()
    assert "| speed-up |" in results and "| 1 x 32 | orchid (torch, float32) |" in results
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith("after\n") and "old" not in readme
