"""The engine on a GPU: a replayed, compiled or resumed run is the run."""

from pathlib import Path

import pytest
import torch

from orchid.recipes import get_recipe
from orchid.train.config import Experiment
from orchid.train.engine import Engine
from orchid.train.graph import GraphedStep
from orchid.train.run_folder import RunFolder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # accelerate and the compiler warn about settings that are ours to make
    pytest.mark.filterwarnings("default"),
]


def experiment(**train: object) -> Experiment:
    tiny = get_recipe("recall/demo-orchid").tiny()
    settings = {"steps": 12, "checkpoint_every": 5, "log_every": 1, "evaluate_every": 4, **train}
    for key, value in settings.items():
        setattr(tiny.train, key, value)
    return tiny


def losses(path: Path, name: str = "train/loss") -> list[float]:
    return [entry[name] for entry in RunFolder(path).history() if name in entry]


def assert_same_losses(a: Path, b: Path) -> None:
    """In training and in evaluation: a replayed step changes weights behind the back of whatever remembers them."""
    for name in ("train/loss", "test/loss"):
        assert losses(a, name) == pytest.approx(losses(b, name), rel=1e-6)


@pytest.mark.parametrize("settings", [{"graph": True}, {"graph": True, "accumulate": 2}], ids=["graph", "accumulate"])
def test_a_replayed_step_is_the_step(tmp_path: Path, settings: dict[str, object]) -> None:
    Engine(experiment(), tmp_path / "eager").train()
    engine = Engine(experiment(**settings), tmp_path / "graph")
    engine.train()
    assert isinstance(engine.update, GraphedStep) and engine.update.graph is not None
    assert_same_losses(tmp_path / "eager", tmp_path / "graph")


def test_resume_of_a_replayed_run(tmp_path: Path) -> None:
    Engine(experiment(graph=True), tmp_path / "whole").train()
    first = Engine(experiment(graph=True), tmp_path / "cut")
    while first.step < 8:
        first._after_step(first.take_step(first.pieces()), _Silent())
    Engine(experiment(graph=True), tmp_path / "cut", resume=True).train()
    assert_same_losses(tmp_path / "whole", tmp_path / "cut")


def test_a_compiled_model_learns_the_same(tmp_path: Path) -> None:
    """Fused kernels round in another order: equal to the rounding of a dozen steps, not to the bit."""
    Engine(experiment(), tmp_path / "eager").train()
    Engine(experiment(compile=True, graph=True), tmp_path / "compiled").train()
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "eager"), rel=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(tmp_path: Path, precision: str) -> None:
    result = Engine(experiment(precision=precision, graph=True), tmp_path).train().result
    assert result is not None and result["hardware"]["device"] == "cuda"


class _Silent:
    def update(self, *arguments: object) -> None: ...

    def advance(self, *arguments: object) -> None: ...
