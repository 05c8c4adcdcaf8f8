"""Tokenised text in memory-mapped shards, read as rows.

A shard is a flat array of token ids, every document followed by [SEP]. ``index.json`` appears when all are there.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchid.digests import file_digest

INDEX = "index.json"


def damage(path: Path, entry: dict[str, Any], dtype: str, vocab_size: int) -> str | None:
    """Return what is wrong with a shard, or None; without a checksum (earlier versions) only ids are looked at."""
    expected = entry["tokens"] * np.dtype(dtype).itemsize
    if path.stat().st_size != expected:
        return f"{path.stat().st_size} bytes, not {expected}"
    if "sha256" in entry:
        return None if file_digest(path) == entry["sha256"] else "its checksum is another"
    largest = int(_mapped(path, dtype).max(initial=0))
    return f"id {largest} of a vocabulary of {vocab_size}" if largest >= vocab_size else None


def _mapped(path: Path, dtype: str) -> Any:
    """Return the tokens of a shard; an empty file cannot be mapped."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype=dtype)


def _read_index(index: Path) -> dict[str, Any]:
    """Return the facts about a folder of shards; a file that does not hold them is an error."""
    try:
        facts: dict[str, Any] = json.loads(index.read_text())
        Special(**facts["special"])
        np.dtype(facts["dtype"])
        for name, kind in (("vocab_size", int), ("tokenizer", str), ("shards", list)):
            if not isinstance(facts[name], kind):
                raise TypeError(f"{name!r} is not of type {kind.__name__}")
        for entry in facts["shards"]:
            int(entry["tokens"])
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{index} is damaged ({type(error).__name__}: {error}); tokenize again") from None
    return facts


@dataclass(frozen=True)
class Special:
    """Ids of the special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Shards:
    """Shards on disk, read as rows of a fixed length: [CLS], then consecutive tokens, of all shards one after another.

    Args:
        folder: what ``build_shards`` wrote.
    """

    def __init__(self, folder: Path) -> None:
        index = folder / INDEX
        if not index.is_file():
            raise ValueError(f"{index} does not exist: `orchid tokenize` makes shards of a folder of text")
        facts = _read_index(index)
        self.folder, self.vocab_size, self.tokenizer = folder, facts["vocab_size"], facts["tokenizer"]
        self.vocabulary: str | None = facts.get("vocabulary")  # indexes written by earlier versions have none
        self.special = Special(**facts["special"])
        self.entries: list[dict[str, Any]] = facts["shards"]
        self._dtype, self._arrays, self._verified = facts["dtype"], [], False
        for number, entry in enumerate(self.entries):
            path = folder / f"{number:05d}.bin"
            expected = entry["tokens"] * np.dtype(self._dtype).itemsize
            if not path.is_file() or path.stat().st_size != expected:
                raise ValueError(f"{path} is missing or damaged: expected {expected} bytes; tokenize again")
            self._arrays.append(_mapped(path, self._dtype))
        self._starts = np.cumsum([0, *map(len, self._arrays)])

    def verify(self) -> None:
        """Read all shards, once; one that is not what was written, or has ids the tokenizer lacks, is an error.

        Of several processes the first of each machine does.
        """
        if self._verified or int(os.environ.get("LOCAL_RANK", "0")):
            return
        for number, entry in enumerate(self.entries):
            path = self.folder / f"{number:05d}.bin"
            if what := damage(path, entry, self._dtype, self.vocab_size):
                raise ValueError(f"{path} is damaged ({what}); tokenize again")
        self._verified = True

    def fingerprint(self) -> str:
        """Return a digest of what the shards hold: another one is another text, or the same in another order."""
        facts = [[entry["tokens"], entry.get("sha256"), entry.get("file")] for entry in self.entries]
        return hashlib.sha256(json.dumps([self.tokenizer, "joined", facts]).encode()).hexdigest()

    @property
    def tokens(self) -> int:
        """Tokens in all shards."""
        return sum(entry["tokens"] for entry in self.entries)

    def count(self, length: int) -> int:
        """Return how many rows of a length there are."""
        return self.tokens // (length - 1)

    def rows(self, numbers: Tensor, length: int) -> Tensor:
        """Return rows by their numbers, (len(numbers), length) int64."""
        rows = np.full((len(numbers), length), self.special.cls, dtype=np.int64)
        for row, number in zip(rows, numbers.tolist(), strict=True):
            self._fill(row[1:], number * (length - 1))
        return torch.from_numpy(rows)

    def _fill(self, row: np.ndarray, first: int) -> None:
        """Write tokens into a row, from the first on; it may reach over several shards."""
        shard = int(np.searchsorted(self._starts, first, side="right")) - 1
        while len(row):
            part = self._arrays[shard][first - self._starts[shard] :][: len(row)]
            row[: len(part)] = part
            row, first, shard = row[len(part) :], first + len(part), shard + 1
