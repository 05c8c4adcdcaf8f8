"""Documents of text: a folder of .txt and .jsonl files, plain or compressed."""

import gzip
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}
KINDS = (".txt", ".jsonl")


def text_files(folder: Path) -> list[Path]:
    """Return the text files under a folder, in order; none is an error."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder of text")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and _kind(path) is not None]
    if not files:
        raise ValueError(f"{folder} holds no text: no file ends in .txt or .jsonl (or these with .gz or .xz)")
    return files


def documents(path: Path) -> Iterator[str]:
    """Yield the documents of a file: blocks between empty lines of a .txt, the "text" of every line of a .jsonl.

    What cannot be read is an error that names the file and the line.
    """
    kind, lines, block = _kind(path), read_lines(path), []
    for number, line in enumerate(lines, 1):
        if kind == ".jsonl":
            if line.strip():
                yield _text(path, number, line)
        elif line.strip():
            block.append(line.strip())
        elif block:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)


def _kind(path: Path) -> str | None:
    suffixes = path.suffixes
    if suffixes and suffixes[-1] in OPENERS:
        suffixes = suffixes[:-1]
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, plain or compressed, without a byte-order mark in front.

    What cannot be read is an error that names the file and the line.
    """
    number = 0
    try:
        with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read after line {number} ({error})") from None


def _text(path: Path, number: int, line: str) -> str:
    try:
        text = json.loads(line)["text"]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error.msg})") from None
    except (KeyError, TypeError):
        raise ValueError(f'{path}, line {number}: no "text" in it') from None
    if not isinstance(text, str):
        raise ValueError(f'{path}, line {number}: its "text" is not a string')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f'{path}, line {number}: its "text" has half of a character ({error.reason})') from None
    return text
