"""Two processes, with DDP and with FSDP2, give the losses of one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

SETTINGS = [
    "train.steps=8",
    "train.batch_size=8",
    "train.log_every=1",
    "train.accumulate=2",
    "train.checkpoint_every=4",
]


# The smallest layer for the interpreter, which takes its time.
BY_KERNELS = [
    "train.steps=2",
    "train.batch_size=2",
    "train.log_every=1",
    "train.warmup=1",
    "train.evaluate_every=2",
    "train.checkpoint_every=2",
    "task.test_size=4",
    "model.d_model=4",
    "model.depth=1",
    "model.options.backend=triton",
    "model.options.filter_width=8",
]
ORCHID = ("-m", "orchid")
INTERPRETED = (str(Path(__file__).parent / "interpreted_command.py"),)


def train(
    out: Path, processes: int, *extra: str, program: tuple[str, ...] = ORCHID, settings: list[str] = SETTINGS
) -> None:
    launch = [sys.executable]
    if processes > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    # without a GPU, several processes need not be told to stay on the CPU
    cpu = ["--cpu"] if processes == 1 or torch.cuda.is_available() else []
    command = [*launch, *program, "train", "recall/demo-orchid", "--tiny", *cpu, "--out", str(out)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run([*command, *extra], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]


def losses(out: Path) -> list[float]:
    return [json.loads(line)["train/loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    train(out, 1)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_give_the_losses_of_one(tmp_path: Path, alone: Path, parallel: str) -> None:
    train(tmp_path / "run", 2, "--set", f"train.parallel={parallel}")
    assert losses(tmp_path / "run") == pytest.approx(losses(alone), rel=1e-6)
    ours, theirs = (load_file(path / "model.safetensors") for path in (tmp_path / "run", alone))
    assert ours.keys() == theirs.keys()
    # Adam turns a gradient's rounding error into a change of the order of the rate where the gradient is near zero.
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)


@pytest.mark.slow
def test_a_sharded_run_resumes_from_its_checkpoint(tmp_path: Path, alone: Path) -> None:
    """What is stored is whole: weights and the optimizer's state are gathered, and spread again."""
    out = tmp_path / "run"
    train(out, 2, "--set", "train.parallel=fsdp")
    (checkpoint,) = (out / "checkpoints").iterdir()
    stored = load_file(checkpoint)
    assert sum(name.endswith("exp_avg") for name in stored) == sum(name.startswith("model.") for name in stored)
    (out / "result.json").unlink()  # as if killed before the end: the run goes on from step 4
    train(out, 2, "--set", "train.parallel=fsdp", "--resume")
    assert losses(out) == pytest.approx(losses(alone), rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for machines without a GPU")
def test_the_kernels_in_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    for name, processes in (("alone", 1), ("ddp", 2), ("fsdp", 2)):
        parallel = ("--set", "train.parallel=fsdp") if name == "fsdp" else ()
        train(tmp_path / name, processes, *parallel, program=INTERPRETED, settings=BY_KERNELS)
    assert len(losses(tmp_path / "alone")) == 2
    for name in ("ddp", "fsdp"):
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "alone"), rel=1e-6)
