"""Data from the Hugging Face hub, written as the local files that everything else reads; only where the user asks.

C4 is streamed, not downloaded whole: PART documents a file, each written when it is complete. A second call goes on
after the last one.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from orchid.files import atomic
from orchid.ops.checks import check_at_least
from orchid.tasks.glue_data import GLUE, GlueSpec

# Documents of a file.
PART = 10_000
# The hub's names of a task's configuration and of its texts, where they differ from the benchmark's.
GLUE_NAMES = {"SST-2": "sst2", "STS-B": "stsb"}
GLUE_TEXTS = {"MNLI": ("premise", "hypothesis"), "MRPC": ("sentence1", "sentence2")}
GLUE_LABELS = {"STS-B": "label", "QQP": "label", "MRPC": "label"}
DEV = {"MNLI": {"validation_matched": "dev_matched", "validation_mismatched": "dev_mismatched"}}


def fetch_c4(out: Path, documents: int, progress: Callable[[int], None] = lambda done: None) -> int:
    """Stream the first documents of C4's English part into OUT/c4-00000.jsonl.gz and so on.

    Return how many there are now: fewer than asked for where the stream ends before.
    """
    check_at_least("--documents", documents, 1)
    out.mkdir(parents=True, exist_ok=True)
    parts = -(-documents // PART)
    sizes = [min(PART, documents - index * PART) for index in range(parts)]
    first = next((index for index, size in enumerate(sizes) if _count(_part(out, index)) < size), parts)
    if first == parts:
        return documents
    stream = _load("allenai/c4", "en", split="train", streaming=True).skip(first * PART)
    texts, done = (row["text"] for row in stream), first * PART
    for index in range(first, parts):
        part = list(islice(texts, sizes[index]))
        if part:
            _write_part(_part(out, index), part)
        done += len(part)
        progress(done)
        if len(part) < sizes[index]:
            break
    return done


def _part(out: Path, index: int) -> Path:
    return out / f"c4-{index:05}.jsonl.gz"


def _count(path: Path) -> int:
    """Return the documents of a part: less than PART in the last of a shorter call, none where it cannot be read."""
    try:
        with gzip.open(path, "rb") as file:
            return sum(1 for _ in file)
    except (OSError, EOFError, zlib.error):
        return 0


def _write_part(path: Path, texts: list[str]) -> None:
    with atomic(path) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")


def fetch_glue(out: Path, progress: Callable[[str], None] = lambda task: None) -> list[Path]:
    """Write every task as OUT/TASK/train.tsv and dev.tsv (MNLI: dev_matched.tsv and dev_mismatched.tsv)."""
    written = []
    for spec in GLUE.values():
        progress(spec.name)
        splits = {"train": "train", **DEV.get(spec.name, {"validation": "dev"})}
        missing = {split: stem for split, stem in splits.items() if not _tsv(out, spec, stem).is_file()}
        data = _load("nyu-mll/glue", GLUE_NAMES.get(spec.name, spec.name.lower())) if missing else {}
        for split, stem in missing.items():
            path = _tsv(out, spec, stem)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path) as temporary:
                temporary.write_text("\n".join(_lines(spec, data[split])) + "\n", encoding="utf-8")
            written.append(path)
    return written


def fetch_cifar10(out: Path, progress: Callable[[str], None] = lambda part: None) -> list[Path]:
    """Write CIFAR-10 as its official binary batches, OUT/data_batch_1.bin ... 5.bin and test_batch.bin."""
    import numpy as np

    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    splits = {"train": names, "test": ["test_batch.bin"]}
    written = []
    for split, files in splits.items():
        missing = [name for name in files if not (out / name).is_file()]
        rows = _load("uoft-cs/cifar10", split=split) if missing else ()
        for part, name in enumerate(files):
            if name not in missing:
                continue
            progress(name)
            out.mkdir(parents=True, exist_ok=True)
            size = len(rows) // len(files)
            with atomic(out / name) as temporary, temporary.open("wb") as file:
                for row in islice(iter(rows), part * size, (part + 1) * size):
                    pixels = np.asarray(row["img"].convert("RGB"), np.uint8).transpose(2, 0, 1)
                    file.write(bytes([row["label"]]) + pixels.tobytes())
            written.append(out / name)
    return written


def _tsv(out: Path, spec: GlueSpec, stem: str) -> Path:
    return out / spec.name / f"{stem}.tsv"


def _lines(spec: GlueSpec, rows: Any) -> Iterator[str]:
    texts, label = GLUE_TEXTS.get(spec.name, spec.texts), GLUE_LABELS.get(spec.name, spec.label)
    columns = spec.columns or (*spec.texts, spec.label)
    if not spec.columns:
        yield "\t".join(columns)
    for row in rows:
        cells = {own: " ".join(row[name].split()) for own, name in zip(spec.texts, texts, strict=True)}
        cells[spec.label] = spec.labels[row[label]] if spec.labels else str(row[label])
        yield "\t".join(cells.get(column, "") for column in columns)


def _load(*name: str, **options: Any) -> Any:
    try:
        from datasets import load_dataset
    except ImportError:
        raise ValueError("the hub's data needs `datasets` (pip install 'orchid-torch[data]')") from None
    return load_dataset(*name, **options)
