"""What tells the contents of files from others."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path


def file_digest(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def joint_digest(parts: Iterable[str]) -> str:
    """Return the SHA-256 of several texts, in their order."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()
