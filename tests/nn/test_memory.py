"""How many (B, D, L)-sized tensors the torch path makes and keeps: the numbers in docs/cost.md."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from orchid import OrchidMixer

BATCH, WIDTH, LENGTH = 16, 32, 512
UNIT = BATCH * WIDTH * LENGTH * 4
COST = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()


class Allocations(TorchDispatchMode):
    """Counts the storages of at least a third of (B, D, L) that operations make, in units of (B, D, L) float32."""

    def __init__(self) -> None:
        super().__init__()
        self.units = 0.0
        self.alive: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        for tensor in outputs if isinstance(outputs, tuple | list) else [outputs]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.nbytes() >= UNIT // 3 and storage.data_ptr() not in self.alive:
                    self.units += storage.nbytes() / UNIT
                    self.alive[storage.data_ptr()] = tensor  # held, so that no address is used twice
        return outputs


def measure(**options: object) -> tuple[float, float]:
    mixer, x = OrchidMixer(WIDTH, LENGTH, **options), torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    given = {t.untyped_storage().data_ptr() for t in (x, *mixer.parameters())}
    kept: dict[int, float] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given and storage.nbytes() >= UNIT // 3:
            kept[storage.data_ptr()] = storage.nbytes() / UNIT
        return tensor

    made = Allocations()
    made.alive[x.untyped_storage().data_ptr()] = x
    with made, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        mixer(x)
    return made.units, sum(kept.values())


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("phase", {}),
        ("cross", {"conditioning": "cross"}),
        ("static", {"conditioning": "static"}),
        ("phase, DCT", {"transform": "dct"}),
        ("phase, linear", {"boundary": "linear"}),
        ("phase, circular short convolutions", {"short_padding": "circular"}),
    ],
)
def test_temporaries_are_those_of_the_docs(row: str, options: dict[str, object]) -> None:
    stated = re.search(rf"^\| {re.escape(row)} \| ([\d.]+) \| ([\d.]+) \|", COST, flags=re.MULTILINE)
    assert stated, f"docs/cost.md has no row {row!r}"
    made, kept = measure(**options)
    assert made == pytest.approx(float(stated[1]), abs=0.1)
    assert kept == pytest.approx(float(stated[2]), abs=0.1)
