"""Tokenising text into shards: one of each source file, made once, restartable, exact duplicates dropped."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from orchid.digests import file_digest
from orchid.files import atomic, remove_strays, write_json
from orchid.tasks.corpus import documents, text_files
from orchid.tasks.shards import INDEX, Shards, damage
from orchid.tasks.tokenizer import SPECIAL, TOKENIZER, vocabulary_digest

BATCH = 1000  # documents tokenised together
LONG = 1_000_000  # letters: a .txt with so long a document has probably no empty lines between its documents


def build_shards(
    source: Path, tokenizer: Path, out: Path, *, progress: Callable[[Path, int, int, int], None] | None = None
) -> Shards:
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
