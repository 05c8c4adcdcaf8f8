"""Stopping between steps: on Ctrl-C, on termination, at a time limit."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self


class Stopper:
    """Asks the loop to stop after the step in flight, so that only whole steps are ever kept.

    A second Ctrl-C interrupts at once.

    Args:
        time_limit: minutes from now, or None.
    """

    def __init__(self, time_limit: float | None) -> None:
        if time_limit is not None and not time_limit >= 0:
            raise ValueError(f"time_limit={time_limit!r} must be minutes, at least 0")
        self.deadline = None if time_limit is None else time.monotonic() + 60 * time_limit
        self.reason: str | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """Return whether to stop now."""
        if self.reason is None and self.deadline is not None and time.monotonic() > self.deadline:
            self.reason = "time limit"
        return self.reason is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.reason == "interrupt":
            raise KeyboardInterrupt
        self.reason = "interrupt" if number == signal.SIGINT else "termination"
