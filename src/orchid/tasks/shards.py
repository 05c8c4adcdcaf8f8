"""Tokenised text in memory-mapped shards: one of each source file, made once, restartable, exact duplicates dropped.

A shard is a flat array of token ids, every document followed by [SEP]. ``index.json`` appears when all are there.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchid.digests import file_digest
from orchid.files import atomic, remove_strays, write_json
from orchid.tasks.corpus import documents, text_files
from orchid.tasks.tokenizer import SPECIAL, TOKENIZER, vocabulary_digest

INDEX = "index.json"
BATCH = 1000  # documents tokenised together
LONG = 1_000_000  # letters: a .txt with so long a document has probably no empty lines between its documents


def build_shards(
    source: Path, tokenizer: Path, out: Path, *, progress: Callable[[Path, int, int, int], None] | None = None
) -> "Shards":
    """Tokenise the text files under ``source`` into ``out``; whole shards whose file has not changed are kept.

    Args:
        source: folder of text.
        tokenizer: folder with tokenizer.json, or that file.
        out: folder of the shards.
        progress: called every so often with the file, its documents so far, the bytes of files done and of all.
    """
    files, maker = text_files(source), _Maker(tokenizer)
    out.mkdir(parents=True, exist_ok=True)
    remove_strays(out)
    total, done, entries, fresh = sum(path.stat().st_size for path in files), 0, [], False
    tell = progress or (lambda *_: None)
    for number, path in enumerate(files):
        entry = None if fresh else maker.kept(out, number, source, path)
        if entry is None:  # what follows a changed file may repeat its documents: it is made again too
            fresh = True
            (out / INDEX).unlink(missing_ok=True)  # it would describe shards that are about to change
            entry = maker.make(out, number, source, path, partial(_tell_documents, tell, path, done, total))
        entries.append(entry)
        done += path.stat().st_size
        tell(path, entry["documents"], done, total)
    for stale in out.glob("[0-9]" * 5 + "*"):
        if int(stale.name[:5]) >= len(files):
            stale.unlink()
    if not any(entry["tokens"] for entry in entries):
        raise ValueError(f"{source} has no text: its files are empty")
    write_json(out / INDEX, maker.facts() | {"shards": entries})
    return Shards(out)


def _tell_documents(tell: Callable[[Path, int, int, int], None], path: Path, done: int, total: int, count: int) -> None:
    tell(path, count, done, total)


class _Maker:
    """Makes shards with one tokenizer, and knows which documents it has seen."""

    def __init__(self, tokenizer: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError("text is tokenised with tokenizers: pip install 'orchid-torch[bert]'") from None
        path = tokenizer / TOKENIZER if tokenizer.is_dir() else tokenizer
        if not path.is_file():
            raise ValueError(f"{path} does not exist: a tokenizer is a folder with {TOKENIZER}")
        self.digest = file_digest(path)
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # `tokenizers` raises nothing narrower
            raise ValueError(f"{path} cannot be read ({error})") from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True  # a text that spells "[MASK]" has three words there, not a mask
        self.special = {name: self.tokenizer.token_to_id(token) for name, token in SPECIAL.items()}
        missing = [SPECIAL[name] for name, number in self.special.items() if number is None]
        if missing:
            raise ValueError(f"{path} has no {', '.join(missing)}")
        self.size = 1 + max(self.tokenizer.get_vocab().values())  # ids may have gaps
        self.dtype = "uint16" if self.size <= 2**16 else "uint32"
        self.seen: set[bytes] = set()
        self.warned = False

    def facts(self) -> dict[str, Any]:
        return {
            "tokenizer": self.digest,
            "vocabulary": vocabulary_digest(self.tokenizer.get_vocab()),
            "vocab_size": self.size,
            "special": self.special,
            "dtype": self.dtype,
        }

    def kept(self, out: Path, number: int, source: Path, path: Path) -> dict[str, Any] | None:
        """Return the entry of a shard that is there, whole and up to date, or None."""
        facts, hashes, tokens = (out / f"{number:05d}{ending}" for ending in (".json", "-seen.bin", ".bin"))
        try:
            entry: dict[str, Any] = json.loads(facts.read_text())
            if {key: entry.get(key) for key in self._identity(source, path)} != self._identity(source, path):
                return None
            stored = hashes.read_bytes()
            if len(stored) != 16 * entry["documents"] or damage(tokens, entry, self.dtype, self.size):
                return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None
        self.seen.update(stored[i : i + 16] for i in range(0, len(stored), 16))
        return entry

    def make(self, out: Path, number: int, source: Path, path: Path, tell: Callable[[int], None]) -> dict[str, Any]:
        """Write a shard; its entry last, so that a shard cut short is made again."""
        counts = {"documents": 0, "duplicates": 0, "tokens": 0}
        hashes: list[bytes] = []
        with atomic(out / f"{number:05d}.bin") as temporary, temporary.open("wb") as file:
            fresh = self._new(documents(path), hashes, counts)
            while some := list(islice(fresh, BATCH)):
                for encoding in self.tokenizer.encode_batch(some, add_special_tokens=False):
                    ids = np.array([*encoding.ids, self.special["sep"]], dtype=self.dtype)
                    counts["tokens"] += len(ids)
                    file.write(ids.tobytes())
                tell(counts["documents"])
        with atomic(out / f"{number:05d}-seen.bin") as temporary:
            temporary.write_bytes(b"".join(hashes))
        entry = {**self._identity(source, path), **counts, "sha256": file_digest(out / f"{number:05d}.bin")}
        write_json(out / f"{number:05d}.json", entry)
        return entry

    def _new(self, texts: Iterable[str], hashes: list[bytes], counts: dict[str, int]) -> Iterator[str]:
        for text in texts:
            if len(text) > LONG and not self.warned:
                self.warned = True
                warnings.warn(
                    f"a document of {len(text):,} letters: in a .txt an empty line ends a document", stacklevel=2
                )
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if digest in self.seen:
                counts["duplicates"] += 1
                continue
            self.seen.add(digest)
            hashes.append(digest)
            counts["documents"] += 1
            yield text

    def _identity(self, source: Path, path: Path) -> dict[str, Any]:
        facts = path.stat()
        name = path.relative_to(source).as_posix()
        return {"file": name, "bytes": facts.st_size, "modified": facts.st_mtime_ns, "tokenizer": self.digest}


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
        self._ends = np.cumsum([len(array) for array in self._arrays])

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
        shard = int(np.searchsorted(self._ends, first, side="right"))
        while len(row):
            part = self._arrays[shard][len(self._arrays[shard]) - (int(self._ends[shard]) - first) :][: len(row)]
            row[: len(part)] = part
            row, first, shard = row[len(part) :], first + len(part), shard + 1
