"""The engine: what it writes, exact resume, time limit, interrupts, divergence."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from helpers import (
    cifar_folder,
    glue_folder,
    imagenet_folder,
    imagenette_folder,
    plain_transform,
    word_shards,
)
from safetensors.torch import load_file

from orchid.commands.runs import load_run
from orchid.recipes import get_recipe, list_recipes
from orchid.tasks import image_files
from orchid.train.config import Experiment
from orchid.train.engine import Diverged, Engine
from orchid.train.lock import InUse
from orchid.train.run_folder import RunFolder
from orchid.train.tensors import load_optimizer_tensors


def experiment(steps: int = 12, **train: object) -> Experiment:
    tiny = get_recipe("recall/demo-orchid").tiny()
    tiny.model.dropout = 0.1  # so that resuming must restore the random state too
    settings = {"steps": steps, "checkpoint_every": 4, "log_every": 1, "evaluate_every": 5, **train}
    for key, value in settings.items():
        setattr(tiny.train, key, value)
    return tiny


def losses(path: Path) -> dict[int, float]:
    return {entry["step"]: entry["train/loss"] for entry in RunFolder(path).history()}


@pytest.mark.parametrize("recipe", list_recipes())
def test_every_recipe_has_a_twin_that_runs(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = get_recipe(recipe)
    twin = found.tiny()
    if recipe.startswith("bert/"):
        pytest.importorskip("transformers", reason="needs transformers")
    if recipe.startswith("bert/mlm-"):
        twin.task.train = twin.task.valid = str(word_shards(tmp_path))
    if recipe.startswith("bert/glue-"):
        twin.task.data, twin.model.start = map(str, glue_folder(tmp_path))
    if recipe.startswith("vision/"):
        make = {"cifar10": cifar_folder, "imagenette": imagenette_folder, "imagenet": imagenet_folder}
        twin.task.data = str(make[recipe.removeprefix("vision/").partition("-")[0]](tmp_path / "images"))
    if hasattr(twin.task, "workers"):  # it reads files of images, which timm would augment
        twin.task.workers = 0
        for name in ("training_transform", "evaluation_transform"):
            monkeypatch.setattr(image_files, name, plain_transform)
    outcome = Engine(twin, tmp_path / "run", cpu=True).train()
    assert outcome.result["recipe"] == recipe == found.build().recipe
    # The twin differs in sizes and steps only.
    full, small = found.build().to_dict(), found.tiny().to_dict()
    differing = {k for part in ("task", "model") for k in full[part] if full[part][k] != small[part][k]}
    sizes = {
        "vocab_size",
        "length",
        "train_size",
        "test_size",
        "d_model",
        "depth",
        "patch_size",
        "valid_rows",
        "changes",
    }
    assert differing <= sizes
    assert full["paper"] == small["paper"]


def test_run_folder(tmp_path: Path) -> None:
    outcome = Engine(experiment(), tmp_path / "run", cpu=True).train()
    folder = RunFolder(tmp_path / "run")
    result = folder.read_result()
    assert result == json.loads(json.dumps(outcome.result))
    assert list(result) == [
        "recipe", "config", "seed", "metrics", "history", "paper",
        "steps", "seconds", "parameters", "hardware", "torch", "commit",
    ]  # fmt: skip
    assert set(result["config"]["task"]) >= {"vocab_size", "length", "signal"}
    assert result["config"]["model"]["mixer"] == "orchid"
    assert 0 <= result["metrics"]["test/accuracy"] <= 1
    assert [e["step"] for e in folder.history()] == list(range(1, 13))
    assert [e["step"] for e in result["history"]] == [5, 10, 12]
    weights = load_file(folder.model)
    assert sum(w.numel() for w in weights.values()) == result["parameters"]
    assert [p.name for p in sorted(folder.checkpoints.iterdir())] == [
        "step-00000004.safetensors",
        "step-00000008.safetensors",
    ]
    assert (folder.path / "curves.png").read_bytes().startswith(b"\x89PNG")
    stray = list(folder.path.rglob(".*"))
    assert not stray, "temporary files are left behind"


def test_training_reduces_the_loss(tmp_path: Path) -> None:
    Engine(experiment(steps=120, batch_size=32), tmp_path, cpu=True).train()
    curve = losses(tmp_path)
    assert sum(curve[s] for s in range(111, 121)) < 0.8 * sum(curve[s] for s in range(1, 11))


@pytest.mark.parametrize("stop", [3, 4, 9])
def test_resume_is_exact(tmp_path: Path, stop: int) -> None:
    """Killed after any step, the resumed run's losses and weights equal the uninterrupted run's bit for bit."""
    Engine(experiment(), tmp_path / "whole", cpu=True).train()
    first = Engine(experiment(), tmp_path / "cut", cpu=True)
    first._after_step = lambda *a, original=first._after_step: (original(*a), stop == first.step and _die())[0]
    with pytest.raises(RuntimeError, match="killed"):
        first.train()
    outcome = Engine(experiment(), tmp_path / "cut", resume=True, cpu=True).train()
    assert outcome.result is not None
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def _die() -> None:
    raise RuntimeError("killed")


def test_time_limit_stops_and_resumes(tmp_path: Path) -> None:
    Engine(experiment(), tmp_path / "whole", cpu=True).train()
    outcome = Engine(experiment(), tmp_path / "cut", time_limit=0.0, cpu=True).train()
    assert (outcome.result, outcome.stopped) == (None, "time limit")
    assert not RunFolder(tmp_path / "cut").result.exists()
    assert Engine(experiment(), tmp_path / "cut", resume=True, cpu=True).train().result is not None
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def test_interrupt_keeps_every_whole_step(tmp_path: Path) -> None:
    engine = Engine(experiment(steps=100_000), tmp_path, cpu=True)
    killer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    killer.start()
    outcome = engine.train()
    assert outcome.stopped == "interrupt"
    _, state = RunFolder(tmp_path).load_checkpoint()
    assert state["step"] == outcome.step > 0


def test_a_killed_process_resumes(tmp_path: Path) -> None:
    """SIGKILL leaves no chance to clean up; the folder must be whole all the same."""
    command = [
        sys.executable,
        "-m",
        "orchid",
        "train",
        "recall/demo-orchid",
        "--tiny",
        "--cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    command += ["--set", "train.steps=60", "--set", "train.checkpoint_every=1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    folder = RunFolder(tmp_path / "run")
    deadline = time.monotonic() + 60
    while not (folder.checkpoints.is_dir() and len(list(folder.checkpoints.glob("step-*"))) >= 2):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    reached = folder.load_checkpoint()[1]["step"]
    resumed = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert "test/accuracy" in resumed.stdout
    whole = [*command[:-5], str(tmp_path / "whole"), *command[-4:]]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)
    assert 0 < reached < 60
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    engine = Engine(experiment(), tmp_path, cpu=True)
    original = engine.task.loss
    engine.task.loss = lambda model, batch: tuple(
        t * (float("nan") if engine.step >= 6 and t.is_floating_point() else 1) for t in original(model, batch)
    )
    with pytest.raises(Diverged, match="the loss is nan at step 7; checkpoints from before are kept"):
        engine.train()
    _, state = RunFolder(tmp_path).load_checkpoint()
    assert state["step"] == 4


def test_weights_that_are_not_finite_are_never_written(tmp_path: Path) -> None:
    """A finite loss can leave a gradient that is not; stopping then must not replace the good checkpoint."""
    engine = Engine(experiment(log_every=100, evaluate_every=100), tmp_path, cpu=True)

    def spoil(*arguments: object, original=engine.take_step) -> torch.Tensor:
        loss = original(*arguments)
        if engine.step == 6:
            engine.stopper.reason = "time limit"
            next(engine.model.parameters()).data[0] = float("nan")
        return loss

    engine.take_step = spoil
    with pytest.raises(Diverged, match="is not finite at step 6"):
        engine.train()
    tensors, state = RunFolder(tmp_path).load_checkpoint()
    assert state["step"] == 4
    assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())


def test_accumulation_changes_nothing(tmp_path: Path) -> None:
    """Pieces with different numbers of asked values still give the mean over the whole batch."""
    for pieces in (1, 4):
        cut = experiment(accumulate=pieces)
        cut.model.dropout = 0.0
        Engine(cut, tmp_path / str(pieces), cpu=True).train()
    one, four = losses(tmp_path / "1"), losses(tmp_path / "4")
    assert max(abs(one[s] - four[s]) for s in one) < 1e-5


def test_fp16_on_a_cpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fp16' needs a GPU"):
        Engine(experiment(precision="fp16"), tmp_path / "run", cpu=True)


def test_bf16_trains(tmp_path: Path) -> None:
    assert Engine(experiment(precision="bf16"), tmp_path, cpu=True).train().result is not None


class TestFolders:
    def test_settings_that_build_nothing_claim_no_folder(self, tmp_path: Path) -> None:
        wrong = experiment()
        wrong.model.mixer = "atention"
        with pytest.raises(ValueError, match="did you mean 'attention'"):
            Engine(wrong, tmp_path / "run", cpu=True)
        assert not (tmp_path / "run").exists()

    def test_settings_that_cannot_be_trained_with_claim_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"train\.beta2=5 must lie in"):
            Engine(experiment(beta2=5), tmp_path / "run", cpu=True)
        assert not (tmp_path / "run").exists()

    def test_killed_before_the_first_file_was_whole(self, tmp_path: Path) -> None:
        (tmp_path / ".config.json.abc.writing").write_text('{"rec')
        Engine(experiment(), tmp_path, cpu=True)
        assert not list(tmp_path.glob(".*"))

    def test_a_folder_of_a_killed_process_is_no_obstacle(self, tmp_path: Path) -> None:
        stray = tmp_path / ".model.abc.writing"
        stray.mkdir()
        (stray / "config.json").write_text("{}")
        Engine(experiment(), tmp_path, cpu=True)
        assert not stray.exists()

    def test_files_are_readable_as_any_other(self, tmp_path: Path) -> None:
        Engine(experiment(), tmp_path / "run", cpu=True)
        (tmp_path / "plain").write_text("")
        assert RunFolder(tmp_path / "run").config.stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_weights_of_another_model(self, tmp_path: Path) -> None:
        Engine(experiment(), tmp_path, time_limit=0.0, cpu=True).train()
        config = json.loads((tmp_path / "config.json").read_text())
        config["model"]["d_model"] = 16
        (tmp_path / "config.json").write_text(json.dumps(config))
        other = experiment()
        other.model.d_model = 16
        with pytest.raises(ValueError, match="do not fit its configuration"):
            Engine(other, tmp_path, resume=True, cpu=True).train()

    def test_another_recipe(self, tmp_path: Path) -> None:
        Engine(experiment(), tmp_path, cpu=True)
        other = get_recipe("recall/demo-static").tiny()
        with pytest.raises(ValueError, match="already holds a run of recipe 'recall/demo-orchid'"):
            Engine(other, tmp_path, resume=True, cpu=True)

    def test_without_resume(self, tmp_path: Path) -> None:
        Engine(experiment(), tmp_path, cpu=True)
        with pytest.raises(ValueError, match="--resume"):
            Engine(experiment(), tmp_path, cpu=True)

    def test_other_settings(self, tmp_path: Path) -> None:
        Engine(experiment(), tmp_path, cpu=True)
        with pytest.raises(ValueError, match=r"other settings \(train.learning_rate\)"):
            Engine(experiment(learning_rate=1.0), tmp_path, resume=True, cpu=True)

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("")
        with pytest.raises(ValueError, match="is not empty and holds no run"):
            Engine(experiment(), tmp_path, cpu=True)

    def test_the_state_of_another_optimizer(self, tmp_path: Path) -> None:
        """Of a version that had its parameters in another order; a matrix that has become a convolution fits."""
        engine = Engine(experiment(), tmp_path, cpu=True)
        parameters = [p for group in engine.optimizer.param_groups for p in group["params"]]
        stored = {f"optimizer.{i}.exp_avg": torch.ones_like(p).flatten() for i, p in enumerate(parameters)}
        stored |= {f"optimizer.{i}.step": torch.tensor(3.0) for i in range(len(parameters))}
        load_optimizer_tensors(engine.optimizer, stored)
        assert all(engine.optimizer.state[p]["exp_avg"].shape == p.shape for p in parameters)
        moved = {f"optimizer.{i}.exp_avg": torch.ones_like(p) for i, p in enumerate([*parameters[1:], parameters[0]])}
        with pytest.raises(ValueError, match="the optimizer's state belongs to other parameters"):
            load_optimizer_tensors(engine.optimizer, moved)

    def test_a_damaged_checkpoint(self, tmp_path: Path) -> None:
        Engine(experiment(), tmp_path, time_limit=0.0, cpu=True).train()
        (file,) = RunFolder(tmp_path).checkpoints.iterdir()
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(ValueError, match=f"{file.name} is damaged"):
            Engine(experiment(), tmp_path, resume=True, cpu=True).train()


class TestOneWriter:
    def test_a_folder_in_use_is_left_alone(self, tmp_path: Path) -> None:
        first = Engine(experiment(), tmp_path, cpu=True)
        first.folder.lock.acquire()  # as ``train`` does
        unfinished = tmp_path / "checkpoints" / ".step-00000004.safetensors.abc.writing"
        unfinished.write_text("half of it")
        before = snapshot(tmp_path)
        with pytest.raises(InUse, match=f"{tmp_path} is in use"):
            Engine(experiment(), tmp_path, resume=True, cpu=True)
        assert snapshot(tmp_path) == before
        assert first.train().result is not None
        assert Engine(experiment(), tmp_path, resume=True, cpu=True).train().result is not None, "given back at the end"
        assert not unfinished.exists(), "only the one who holds the lock tidies up"

    def test_an_engine_that_is_only_built_holds_nothing(self, tmp_path: Path) -> None:
        """As in a notebook whose cell is run again."""
        engines = [Engine(experiment(), tmp_path, resume=True, cpu=True) for _ in range(2)]
        assert all(engine.train().result is not None for engine in engines)

    def test_a_run_that_failed_gives_the_folder_back(self, tmp_path: Path) -> None:
        first = Engine(experiment(), tmp_path, cpu=True)
        first.take_step = lambda pieces: _die()
        with pytest.raises(RuntimeError, match="killed"):
            first.train()
        assert Engine(experiment(), tmp_path, resume=True, cpu=True).train().result is not None

    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of threads, which the child does not need
    def test_readers_of_data_do_not_keep_the_lock_of_a_killed_run(self, tmp_path: Path) -> None:
        folder = RunFolder(tmp_path)
        folder.open(experiment().to_dict(), resume=False)
        folder.lock.acquire()
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.write(ready[1], b".")
            os.read(go[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        folder.lock.release()  # as the end of the process would
        RunFolder(tmp_path).open(experiment().to_dict(), resume=True)
        os.write(go[1], b".")
        os.waitpid(child, 0)

    def test_reading_a_run_writes_and_deletes_nothing(self, tmp_path: Path) -> None:
        """Evaluating a run that is being trained must not take away the checkpoint it writes."""
        engine = Engine(experiment(), tmp_path, time_limit=0.0, cpu=True)
        engine.train()
        engine.folder.lock.acquire()
        (tmp_path / "checkpoints" / ".step-00000004.safetensors.abc.writing").write_text("half of it")
        before = snapshot(tmp_path)
        reader = load_run(tmp_path, cpu=True)
        assert reader.evaluate()
        with pytest.raises(ValueError, match="only reads"):
            reader.train()
        assert snapshot(tmp_path) == before


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}
