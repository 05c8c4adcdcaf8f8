import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are imported


@pytest.fixture(autouse=True, scope="session")
def interpreter_like_a_gpu() -> Iterator[None]:
    """Mend Triton's interpreter: round to bfloat16 to nearest (it cuts, twice as far off), count under NumPy 2.4."""
    if torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        yield
        return
    import triton.language as tl
    from triton.runtime import interpreter

    convert, patch = interpreter._convert_float, interpreter._patch_lang_tensor

    def rounded(values: np.ndarray, source: object, target: object, mode: object) -> np.ndarray:
        if source == tl.float32 and target == tl.bfloat16:
            return torch.from_numpy(np.array(values)).bfloat16().view(torch.int16).numpy()
        return convert(values, source, target, mode)

    def counting(tensor: type, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    with pytest.MonkeyPatch.context() as mend:
        mend.setattr(interpreter, "_convert_float", rounded)
        mend.setattr(interpreter, "_patch_lang_tensor", counting)
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
