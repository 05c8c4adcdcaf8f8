"""Grids of runs: skip what is done, resume what was cut short, share the rest among workers, choose a rate."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from orchid.cli import app
from orchid.recipes import get_recipe, match_recipes
from orchid.recipes.recall import MODELS
from orchid.train.engine import Engine
from orchid.train.grid import Cell, _claimed, run_cells
from orchid.train.run_folder import RunFolder
from orchid.train.tune import SEED, choose, tuning_cells

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
    with _claimed(grid[1].folder) as mine:
        assert mine
        run_cells(grid, quiet(), cpu=True)
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
    command += ["--out", str(tmp_path / "runs"), "--keep", str(tmp_path / "kept")]
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
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert kept == [f"demo-{name}-seed-{seed}.json" for name in ("attention", "orchid", "static") for seed in (0, 1)]
    assert json.loads((tmp_path / "kept" / kept[0]).read_text())["hardware"]["jobs"] == 2


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

    def test_bad_seeds(self, tmp_path: Path) -> None:
        outcome = CliRunner().invoke(app, ["grid", "recall/demo-*", "--seeds", "0,one", "--out", str(tmp_path)])
        assert outcome.exit_code == 2 and "--seeds '0,one' is not a list of numbers" in outcome.stderr


def test_tensorboard(tmp_path: Path) -> None:
    """Every logged number is a scalar at its step, and a resumed run hides what it writes again."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (cell,) = cells(tmp_path, "recall/demo-orchid", log_every=1)
    Engine(cell.experiment, cell.folder, cpu=True, tensorboard=True).train()
    events = EventAccumulator(str(RunFolder(cell.folder).tensorboard))
    events.Reload()
    history = RunFolder(cell.folder).history()
    logged = {event.step: event.value for event in events.Scalars("train/loss")}
    assert logged == pytest.approx({entry["step"]: entry["train/loss"] for entry in history})
    assert [event.step for event in events.Scalars("test/accuracy")] == [3, 6]
