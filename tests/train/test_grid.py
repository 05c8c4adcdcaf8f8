"""Grids of runs: skip what is done, resume what was cut short, share the rest among workers, choose a rate."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import cifar_folder
from rich.console import Console
from typer.testing import CliRunner

from orchid.cli import app
from orchid.files import write_json
from orchid.recipes import get_recipe, match_recipes
from orchid.recipes.recall import MODELS
from orchid.train.engine import Diverged, Engine
from orchid.train.grid import Cell, keep_result, run_cells, run_workers
from orchid.train.run_folder import RunFolder
from orchid.train.tune import SEED, choose, keep_choices, tuning_cells

ROOT = Path(__file__).parents[2]


def cells(out: Path, *recipes: str, **train: object) -> list[Cell]:
    found = []
    for name in recipes:
        experiment = get_recipe(name).tiny()
        for key, value in train.items():
            setattr(experiment.train, key, value)
        found.append(Cell(experiment, out / name))
    return found


def quiet() -> Console:
    return Console(quiet=True)


RECIPES = ("recall/demo-orchid", "recall/demo-static", "recall/v20-h3")


def test_runs_all_then_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = cells(tmp_path, *RECIPES)
    assert run_cells(grid, quiet(), cpu=True) is None
    assert all(cell.result()["recipe"] == name for cell, name in zip(grid, RECIPES, strict=True))
    monkeypatch.setattr(Engine, "train", lambda self: pytest.fail("a finished run was started again"))
    assert run_cells(grid, quiet(), cpu=True) is None


def test_a_time_limit_stops_the_grid_and_the_next_call_goes_on(tmp_path: Path) -> None:
    grid = cells(tmp_path, *RECIPES)
    assert run_cells(grid, quiet(), cpu=True, minutes=0.0) == "time limit"
    assert [cell.result() for cell in grid] == [None] * 3
    assert run_cells(grid, quiet(), cpu=True) is None
    assert all(cell.result() for cell in grid)


def test_a_run_of_another_worker_is_left_alone(tmp_path: Path) -> None:
    grid = cells(tmp_path, *RECIPES)
    other = RunFolder(grid[1].folder)
    other.open(grid[1].experiment.to_dict(), resume=True)
    other.lock.acquire()
    run_cells(grid, quiet(), cpu=True)
    other.lock.release()
    assert [cell.result() is not None for cell in grid] == [True, False, True]
    run_cells(grid, quiet(), cpu=True)
    assert grid[1].result() is not None


def test_a_diverged_run_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = cells(tmp_path, *RECIPES[:2])
    grid[0].experiment.train.learning_rate = 1e30
    grid[0].experiment.train.clip = 0.0
    assert run_cells(grid, Console(), cpu=True) is None
    assert [cell.result() is not None for cell in grid] == [False, True]
    assert "recall/demo-orchid  seed 0  failed: " in capsys.readouterr().out.replace("\n", "")


@pytest.mark.slow
def test_a_killed_grid_of_workers_resumes(tmp_path: Path) -> None:
    """Two workers, killed without warning, leave locks that do not bind and runs that go on."""
    command = [sys.executable, "-m", "orchid", "grid", "recall/demo-*", "--tiny", "--cpu", "--seeds", "0,1"]
    command += ["--out", str(tmp_path / "runs")]
    command += ["--set", "train.steps=40", "--set", "train.checkpoint_every=1"]
    process = subprocess.Popen([*command, "--jobs", "2"], stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "runs").rglob("step-*.safetensors"))) < 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    resumed = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert "6 of 6 runs done" in resumed.stdout
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("result.json")]
    assert sorted((result["recipe"], result["seed"]) for result in results) == sorted(
        (f"recall/demo-{name}", seed) for name in ("attention", "orchid", "static") for seed in (0, 1)
    )
    assert all(result["hardware"]["jobs"] == 2 for result in results)


def test_kept_results_are_named_after_recipe_and_seed(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path / "runs", "recall/demo-orchid")
    keep_result(cell, tmp_path / "kept")
    assert not (tmp_path / "kept").exists(), "nothing to keep yet"
    run_cells([cell], quiet(), cpu=True)
    keep_result(cell, tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "demo-orchid-seed-0.json").read_text()) == cell.result()


def test_one_bad_run_does_not_end_the_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = cells(tmp_path, *RECIPES)
    grid[0].folder.mkdir(parents=True)
    (grid[0].folder / "thesis.tex").write_text("")
    grid[1].experiment.model.options = {"conditionning": "static"}
    assert run_cells(grid, Console(), cpu=True) is None
    assert grid[2].result() is not None
    said = capsys.readouterr().out.replace("\n", "")
    assert "is not empty and holds no run" in said and "did you mean 'conditioning'" in said


def test_a_failed_run_is_tried_again_by_the_next_grid_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, calls = cells(tmp_path, RECIPES[0]), []

    def diverge(self: Engine) -> None:
        calls.append(1)
        raise Diverged("the loss is nan")

    monkeypatch.setattr(Engine, "train", diverge)
    for name, expected in (("one", 1), ("one", 1), ("two", 2)):
        monkeypatch.setenv("ORCHID_GRID", name)
        run_cells(grid, quiet(), cpu=True)
        assert len(calls) == expected
    monkeypatch.delenv("ORCHID_GRID")
    for expected in (3, 4):  # the same process, as in containers, where it has the same number again and again
        run_cells(grid, quiet(), cpu=True)
        assert len(calls) == expected


def test_workers_share_a_name_that_no_other_grid_has(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    class Worker:
        def __init__(self, command: list[str], env: dict[str, str], preexec_fn: object) -> None:
            names.append(env["ORCHID_GRID"])

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", Worker)
    for _ in range(2):
        assert run_workers(2) == (None, 0)
    assert names[0] == names[1] != names[2] == names[3]


def test_a_finished_run_of_other_settings_is_not_done(tmp_path: Path) -> None:
    run = ["grid", "recall/demo-orchid", "--tiny", "--cpu", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, run).exit_code == 0
    other = CliRunner().invoke(app, [*run, "--set", "train.steps=20"])
    assert other.exit_code == 2 and "holds a run with other settings (train.steps)" in other.stderr


def test_an_interrupt_during_the_last_evaluation_stops_the_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = cells(tmp_path, *RECIPES)
    original = Engine.evaluate

    def evaluate(self: Engine) -> dict[str, float]:
        if self.step == self.config.steps:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self)

    monkeypatch.setattr(Engine, "evaluate", evaluate)
    assert run_cells(grid, quiet(), cpu=True) == "interrupt"
    assert [cell.result() is not None for cell in grid] == [True, False, False], (
        "the finished run is kept, no other begun"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0,one"], "--seeds '0,one' is not a list of numbers"),
        (["--set", "seed=3"], "use --seeds"),
        (["--set", "model.options.conditionning=static"], "did you mean 'conditioning'"),
        (["--keep", "kept", "--tiny"], "--keep keeps the results of recipes as they are"),
        (["--time-limit", "-3"], "-3"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["grid", "recall/demo-orchid", "--out", str(tmp_path / "runs"), *arguments])
    assert outcome.exit_code == 2 and message in outcome.stderr
    assert not (tmp_path / "runs").exists()


class TestTune:
    def test_the_validation_set_decides_and_the_test_set_is_not_touched(self, tmp_path: Path) -> None:
        experiment = get_recipe("recall/demo-orchid").tiny()
        experiment.train.steps = 80
        trials = tuning_cells(experiment, [1e-6, 1e-2], tmp_path)
        assert run_cells(trials, quiet(), cpu=True) is None
        choice = choose(trials)
        assert choice["chosen"] == 1e-2 and choice["steps"] == 20 and choice["seed"] == SEED
        for cell in trials:
            assert all(not name.startswith("test/") for name in cell.result()["metrics"])
        assert experiment.seed == 0 and experiment.task.evaluate_on == "test", "the recipe itself is left alone"

    def test_command(self, tmp_path: Path) -> None:
        out = ["--out", str(tmp_path / "trials"), "--json", str(tmp_path / "tuning.json")]
        command = ["tune", "recall/v20-s4", "--tiny", "--cpu", "--rates", "1e-3,1e-2", *out]
        outcome = CliRunner().invoke(app, command)
        assert outcome.exit_code == 0, outcome.output
        (choice,) = json.loads((tmp_path / "tuning.json").read_text())["tuning"]
        assert set(choice["trials"]) == {"0.001", "0.01"}

    @pytest.mark.parametrize("text", ['{"rows": []}', "[1, 2]", '{"tuning": [3]}', "not JSON", None])
    def test_a_file_of_something_else_is_refused_before_training(self, text: str | None, tmp_path: Path) -> None:
        file, out = tmp_path / "other.json", tmp_path / "trials"
        file.mkdir() if text is None else file.write_text(text)
        outcome = CliRunner().invoke(
            app, ["tune", "recall/v20-s4", "--tiny", "--cpu", "--json", str(file), "--out", str(out)]
        )
        assert outcome.exit_code == 2 and f"--json {file} was not written by `orchid tune`" in outcome.stderr
        assert not out.exists()
        assert text is None or file.read_text() == text

    @pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
    def test_rates_that_are_none(self, rate: float, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=f"--rates: {rate:g} is not a positive learning rate"):
            tuning_cells(get_recipe("recall/demo-orchid").tiny(), [1e-3, rate], tmp_path)

    def test_images_are_held_out_of_the_training_set(self, tmp_path: Path) -> None:
        out = ["--out", str(tmp_path / "trials"), "--json", str(tmp_path / "tuning.json")]
        given = ["--data", str(cifar_folder(tmp_path / "images")), "--set", "task.valid_images=4"]
        command = ["tune", "vision/cifar10-s-p4", "--tiny", "--cpu", "--rates", "1e-3", *given, *out]
        outcome = CliRunner().invoke(app, command)
        assert outcome.exit_code == 0, outcome.output
        (choice,) = json.loads((tmp_path / "tuning.json").read_text())["tuning"]
        assert choice["trials"]["0.001"]["loss"] > 0

    def test_recipes_without_a_validation_set(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="bert/mlm-orchid-small has no validation set"):
            tuning_cells(get_recipe("bert/mlm-orchid-small").tiny(), [1e-3], tmp_path)

    def test_trials_that_measured_something_else(self, tmp_path: Path) -> None:
        trials = tuning_cells(get_recipe("recall/demo-orchid").tiny(), [1e-3], tmp_path)
        run_cells(trials, quiet(), cpu=True)
        result = trials[0].result()
        del result["metrics"]["valid/loss"]
        write_json(RunFolder(trials[0].folder).result, result)
        with pytest.raises(ValueError, match=f"{trials[0].folder} has no valid/loss"):
            choose(trials)

    def test_nothing_is_chosen_before_all_trials_are_done(self, tmp_path: Path) -> None:
        trials = tuning_cells(get_recipe("recall/demo-orchid").tiny(), [1e-3, 1e-2], tmp_path)
        run_cells(trials[:1], quiet(), cpu=True)
        assert choose(trials) is None

    def test_choices_of_other_recipes_stay(self, tmp_path: Path) -> None:
        for recipe, chosen in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
            keep_choices(tmp_path / "t.json", [{"recipe": recipe, "chosen": chosen}])
        kept = json.loads((tmp_path / "t.json").read_text())["tuning"]
        assert kept == [{"recipe": "a", "chosen": 3.0}, {"recipe": "b", "chosen": 2.0}]

    def test_recipes_use_the_rates_that_were_chosen(self) -> None:
        kept = json.loads((ROOT / "results" / "recall" / "tuning.json").read_text())["tuning"]
        chosen = {choice["recipe"].removeprefix("recall/v30-"): choice["chosen"] for choice in kept}
        assert chosen == {name: model.rate for name, model in MODELS.items()}


class TestPatterns:
    def test_order_and_union(self) -> None:
        names = [recipe.name for recipe in match_recipes(["recall/v20-orchid", "recall/demo-*"])]
        assert names == ["recall/demo-orchid", "recall/demo-static", "recall/demo-attention", "recall/v20-orchid"]

    def test_nothing_matches(self) -> None:
        with pytest.raises(ValueError, match="no recipe matches 'recall/v20-orchyd'; did you mean 'recall/v20-orchid'"):
            match_recipes(["recall/v20-orchyd"])


def test_tensorboard(tmp_path: Path) -> None:
    """Every logged number is a scalar at its step, and a resumed run hides what it writes again."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (cell,) = cells(tmp_path, "recall/demo-orchid", log_every=1, checkpoint_every=4)
    folder = RunFolder(cell.folder)
    for _ in range(2):
        Engine(cell.experiment, cell.folder, cpu=True, resume=True, tensorboard=True).train()
        folder.result.unlink()  # as if killed before the end: the second run begins at step 4
        time.sleep(1.1)  # event files are told apart by their second
    events = EventAccumulator(str(folder.tensorboard))
    events.Reload()
    logged = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert logged == [(entry["step"], pytest.approx(entry["train/loss"])) for entry in folder.history()]
    assert [event.step for event in events.Scalars("test/accuracy")] == [3, 6]
