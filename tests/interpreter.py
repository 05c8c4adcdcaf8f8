"""Triton's interpreter, mended: the kernels' tests on a CPU compare with what a GPU would give."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch


@contextmanager
def like_a_gpu() -> Iterator[None]:
    """Mend the interpreter.

    It rounds to bfloat16 to nearest (it cuts, twice as far off), multiplies bfloat16 numbers in products (it takes
    their bits for whole numbers), and counts under NumPy 2.4.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    convert, patch = interpreter._convert_float, interpreter._patch_lang_tensor
    dot = interpreter.InterpreterBuilder.create_dot

    def rounded(values: np.ndarray, source: object, target: object, mode: object) -> np.ndarray:
        if source == tl.float32 and target == tl.bfloat16:
            return torch.from_numpy(np.array(values)).bfloat16().view(torch.int16).numpy()
        return convert(values, source, target, mode)

    def product(self: Any, a: Any, b: Any, *more: Any) -> Any:
        a, b = (
            interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
            if x.dtype.scalar == tl.bfloat16
            else x
            for x in (a, b)
        )
        return dot(self, a, b, *more)

    def counting(tensor: type, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    with pytest.MonkeyPatch.context() as mend:
        mend.setattr(interpreter, "_convert_float", rounded)
        mend.setattr(interpreter, "_patch_lang_tensor", counting)
        mend.setattr(interpreter.InterpreterBuilder, "create_dot", product)
        yield
