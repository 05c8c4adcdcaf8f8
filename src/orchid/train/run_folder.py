"""A run's folder: resolved config, metrics.jsonl, checkpoints, result.json. Every file appears whole or not at all."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from orchid.files import atomic, check_folder, is_temporary, remove_strays, write_json
from orchid.train.lock import FolderLock
from orchid.train.tensors import load_tensors, save_tensors

KEPT_CHECKPOINTS = 2
# Settings that say where something lies, and those that say what was found there: where both are known, it may move.
PLACES = {
    "task.data": "task.digest",
    "task.train": "task.digest",
    "task.valid": "task.digest",
    "model.start": "model.digest",
}
TOLD = {"task.classes", "task.vocab_size", "task.pad_token_id", "task.vocabulary"}  # a digest tells as much


class RunFolder:
    """The files of one run under ``path``; nothing is written anywhere else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.metrics = path / "metrics.jsonl"
        self.result = path / "result.json"
        self.model = path / "model.safetensors"
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.lock = FolderLock(path / "run.lock")

    def open(self, config: dict[str, Any], *, resume: bool) -> None:
        """Claim the folder for a run of ``config``; another run's folder, or one in use, is an error."""
        self._accept(config, resume=resume)
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock.acquire()
        try:
            self._accept(config, resume=resume)  # again: another process may have come first
            if not self.result.is_file():  # what has moved is found where it lies now
                write_json(self.config, config)
            self.checkpoints.mkdir(exist_ok=True)
            for folder in (self.path, self.checkpoints):  # nobody else writes there while the lock is ours
                remove_strays(folder)
        finally:
            self.lock.release()

    def _accept(self, config: dict[str, Any], *, resume: bool) -> None:
        check_folder("--out", self.path)
        if self.config.is_file():
            self.check(config, ask_resume=not resume)
        elif self.path.is_dir() and any(map(self._is_foreign, self.path.iterdir())):
            raise ValueError(f"{self.path} is not empty and holds no run; choose another --out")

    def _is_foreign(self, path: Path) -> bool:
        return path != self.lock.path and not is_temporary(path)

    def check(self, config: dict[str, Any], *, ask_resume: bool = False) -> None:
        """Accept the folder only as that of a run of ``config``."""
        stored = self.read_config()
        if stored["recipe"] != config["recipe"]:
            raise ValueError(f"{self.path} already holds a run of recipe {stored['recipe']!r}; choose another --out")
        if ask_resume:
            raise ValueError(f"{self.path} already holds a run; continue it with --resume or choose another --out")
        changed = set(_differences(stored, json.loads(json.dumps(config)))) - TOLD
        for place, digest in PLACES.items():
            known = _at(stored, digest) and _at(config, digest)
            changed.discard(place if known else digest)
        if others := sorted(changed.intersection(PLACES.values())):
            raise ValueError(
                f"{self.path} holds a run on other data, or from another model ({', '.join(others)}): they "
                "changed after it began, or an earlier version read them otherwise; restore them or take another --out"
            )
        if changed:
            raise ValueError(
                f"{self.path} holds a run with other settings ({', '.join(sorted(changed))}); "
                "resume with the same settings or choose another --out"
            )

    def read_config(self) -> dict[str, Any]:
        """Return the stored settings."""
        return _read_json(self.config)

    def read_result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or None."""
        if not self.result.is_file():
            return None
        result = _read_json(self.result)
        for key in ("config", "metrics", "steps", "seconds"):
            if key not in result:
                raise ValueError(f"{self.result} is damaged: it has no {key!r}")
        return result

    def has_model(self) -> bool:
        """Return whether the trained model is there, whole as far as its header tells."""
        try:
            with safe_open(self.model, framework="pt"):
                return True
        except (SafetensorError, OSError):
            return False

    def log(self, entry: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; a last line cut short by a crash is passed over, other damage an error."""
        if not self.metrics.is_file():
            return []
        lines = self.metrics.read_text(errors="replace").split("\n")
        return [self._entry(number, line) for number, line in enumerate(lines[:-1], start=1)]

    def _entry(self, number: int, line: str) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise ValueError(
                f"{self.metrics} is damaged at line {number}, {line[:40]!r}: not the metrics of a step; "
                "delete the line to go on without it"
            )
        return entry

    def rewind(self, step: int) -> None:
        """Drop the metrics of steps after ``step``: the resumed run writes them again."""
        kept = [entry for entry in self.history() if entry["step"] <= step]
        with atomic(self.metrics) as temporary:
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def save_checkpoint(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
        """Write a checkpoint, then drop the oldest beyond ``KEPT_CHECKPOINTS``."""
        path = self.checkpoints / f"step-{step:08d}.safetensors"
        save_tensors(path, tensors, state)
        for old in self._checkpoint_files()[:-KEPT_CHECKPOINTS]:
            old.unlink()
        return path

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the newest checkpoint's tensors and state, or None; a damaged one is an error."""
        files = self._checkpoint_files()
        return load_tensors(files[-1]) if files else None

    def _checkpoint_files(self) -> list[Path]:
        return sorted(self.checkpoints.glob("step-*.safetensors"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        if not isinstance(data, dict) or not isinstance(data.get("recipe"), str):
            raise ValueError(f"{path} is not that of a run: it names no recipe")
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; {path.parent} is not the folder of a run") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged and cannot be read ({error})") from None
    return data


def _at(config: dict[str, Any], path: str) -> Any:
    """Return a setting by its path, or None."""
    part, _, key = path.partition(".")
    inside = config.get(part)
    return inside.get(key) if isinstance(inside, dict) else None


def _differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            yield from _differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif a != b:
        yield path
