"""A training step captured once as a CUDA graph and replayed: small models are otherwise limited by kernel launches."""

from collections.abc import Callable

import torch
from torch import Tensor

Pieces = list[tuple[Tensor, ...]]
# Steps taken eagerly first: they make the optimizer's state and settle what libraries choose at their first calls.
WARMUP = 3


class GraphedStep:
    """Calls ``step(pieces) -> loss`` a few times, then captures it and replays the same kernels on new inputs.

    The step must read nothing of its inputs back to the CPU, and its tensors must have the same shapes every time. What
    it returns is overwritten by the next call.

    Args:
        step: the step, all of it on one CUDA device.
    """

    def __init__(self, step: Callable[[Pieces], Tensor]) -> None:
        self.step = step
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Pieces = []
        self.loss: Tensor | None = None

    def __call__(self, pieces: Pieces) -> Tensor:
        """Take a step on ``pieces``."""
        self.calls += 1
        if self.calls <= WARMUP:
            return self._aside(pieces)
        if self.graph is None or self.loss is None:
            self.inputs = [tuple(t.clone() for t in piece) for piece in pieces]
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.step(self.inputs)
        for mine, given in zip(self.inputs, pieces, strict=True):
            for buffer, tensor in zip(mine, given, strict=True):
                buffer.copy_(tensor)
        self.graph.replay()
        return self.loss

    def _aside(self, pieces: Pieces) -> Tensor:
        """Take a step on a stream of its own, as capturing it later demands."""
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = self.step(pieces)
        current.wait_stream(stream)
        return loss
