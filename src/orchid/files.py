"""Files that appear whole or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY = ".writing"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder that replaces ``path`` once it is written and on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside ``path`` that becomes it once it is filled; what was there is replaced."""
    temporary, before = (
        Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)) for _ in range(2)
    )
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if path.exists():
            path.replace(before / path.name)
        temporary.replace(path)
    finally:
        for stray in (temporary, before):
            shutil.rmtree(stray, ignore_errors=True)


def is_temporary(path: Path) -> bool:
    """Return whether a path is one of those that ``atomic`` and ``atomic_folder`` give."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def remove_strays(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in a folder."""
    for stray in filter(is_temporary, list(folder.iterdir())):
        if stray.is_dir():
            shutil.rmtree(stray)
        else:
            stray.unlink()


def check_folder(name: str, path: Path) -> None:
    """Accept the argument ``name`` only as a folder, or as the path of one that can be made."""
    for part in (path, *path.parents):
        if part.is_dir():
            return
        if part.exists() or part.is_symlink():
            raise ValueError(f"{name} {path}: {part} is not a folder; name one, or a new path")


def check_file(name: str, path: Path | None) -> None:
    """Accept the argument ``name`` only as the path of a file that can be written, or as none."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{name} {path} is a folder; name a file")
    check_folder(name, path.parent)


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
