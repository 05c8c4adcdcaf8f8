"""One process at a time writes in a run's folder."""

import os
import sys
import warnings
import weakref
from pathlib import Path

if sys.platform != "win32":
    import fcntl

# The descriptors of this process's locks.
_held: set[int] = set()


class InUse(ValueError):
    """Another process writes in the folder."""


class FolderLock:
    """A lock on an empty file, ``path``, which stays; the system drops the lock when the process ends, however it ends.

    It is held from ``acquire`` to ``release``, or until this object is gone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._drop: weakref.finalize[[int], FolderLock] | None = None

    def acquire(self) -> None:
        """Take the lock, unless this object has it already; one that is taken is an error."""
        if self._drop is not None and self._drop.alive:
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if sys.platform != "win32":
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InUse(
                f"{self.path.parent} is in use: another process trains in it; let it end or choose another --out"
            ) from None
        except OSError as error:  # some network file systems
            warnings.warn(
                f"{self.path} cannot be locked ({error}): let no other process train in that folder", stacklevel=2
            )
        _held.add(descriptor)
        self._drop = weakref.finalize(self, _close, descriptor)

    def release(self) -> None:
        """Give the lock back, if this object has it."""
        if self._drop is not None:
            self._drop()


def _close(descriptor: int) -> None:
    if descriptor in _held:
        _held.discard(descriptor)
        os.close(descriptor)


def _part() -> None:
    """Leave the locks to the parent: a reader of data that outlives its killed parent must not keep them."""
    for descriptor in tuple(_held):
        _close(descriptor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_part)
