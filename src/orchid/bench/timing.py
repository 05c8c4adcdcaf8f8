"""Milliseconds of a call: events on a GPU, replayed as a CUDA graph where launches would count; a clock on a CPU."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

WARMUP, ROUNDS = 3, 5
# Replays or calls between two events: at least this many, and about this many milliseconds. Calls take more: the GPU
# waits for the launches of the first.
LEAST, REPLAYS_MS, CALLS_MS = 3, 20.0, 100.0
# A slow call on a CPU is not repeated beyond this.
PATIENCE_MS = 5e3


def milliseconds(call: Callable[[], object], device: torch.device, *, graph: bool) -> float:
    """Return the median over rounds of the mean time of a call."""
    with _no_collection():
        return _on_gpu(call, graph=graph) if device.type == "cuda" else _clocked(call)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Put off garbage collection, as ``timeit`` does: how long it takes depends on what else was imported."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _on_gpu(call: Callable[[], object], *, graph: bool) -> float:
    stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            call()
    current.wait_stream(stream)
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            call()
        call = captured.replay
    once = _between_events(call, 1)
    count = max(LEAST, int((REPLAYS_MS if graph else CALLS_MS) / max(once, 1e-3)))
    return statistics.median(_between_events(call, min(count, 1000)) for _ in range(ROUNDS))


def _between_events(call: Callable[[], object], count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / count


def _clocked(call: Callable[[], object]) -> float:
    times: list[float] = []
    while len(times) < 2 + ROUNDS and sum(times) < PATIENCE_MS:
        began = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[min(2, len(times) - 1) :])


def peak_mib(call: Callable[[], object], device: torch.device) -> float | None:
    """Return the peak memory of a call above what was held before; CPUs do not tell."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)
