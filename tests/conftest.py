import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are imported


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
