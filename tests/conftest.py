import importlib.util
import os
from collections.abc import Iterator

import pytest
import torch
from interpreter import like_a_gpu

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are imported


@pytest.fixture(autouse=True, scope="session")
def interpreter_like_a_gpu() -> Iterator[None]:
    """Mend Triton's interpreter where it runs."""
    if torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        yield
        return
    with like_a_gpu():
        yield


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the static kernel take many lags a program in the interpreter, which takes its time for each of them."""
    if torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        return
    from orchid.ops.kernels.static import network, spectra

    sizes = network._sizes
    many = {"ROWS": 1024, "BLOCK": 64}
    monkeypatch.setattr(network, "_sizes", lambda *given, **how: {**sizes(*given, **how), **many})
    monkeypatch.setattr(spectra, "LAG_BLOCK", 1024)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
