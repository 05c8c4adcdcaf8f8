"""The hub's data, from a stand-in for `datasets`: no test reaches for the network."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from orchid.cli import app
from orchid.tasks import hub
from orchid.tasks.cifar import load_cifar10
from orchid.tasks.corpus import documents, text_files
from orchid.tasks.glue_data import GLUE, find_files, read_examples

GLUE_ROWS: dict[str, dict[str, Any]] = {
    "cola": {"sentence": "fine\tindeed", "label": 1},
    "sst2": {"sentence": "bad", "label": 0},
    "mrpc": {"sentence1": "a", "sentence2": "b", "label": 1},
    "qqp": {"question1": "a", "question2": "b", "label": 0},
    "stsb": {"sentence1": "a", "sentence2": "b", "label": 3.8},
    "mnli": {"premise": "a", "hypothesis": "b", "label": 2},
    "qnli": {"question": "a", "sentence": "b", "label": 1},
    "rte": {"sentence1": "a", "sentence2": "b", "label": 0},
}


class Stream:
    """Numbered documents; counts what is read."""

    read = 0
    end: int | None = None

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def skip(self, count: int) -> "Stream":
        return Stream(self.first + count)

    def __iter__(self) -> Any:
        number = self.first
        while number != Stream.end:
            Stream.read += 1
            yield {"text": f"document {number}"}
            number += 1


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def load_dataset(*name: str, **options: Any) -> Any:
        calls.append(name)
        if name[0] == "allenai/c4":
            assert options == {"split": "train", "streaming": True}
            return Stream()
        if name[0] == "uoft-cs/cifar10":
            count = 10 if options["split"] == "train" else 2
            return [{"img": Image.new("RGB", (32, 32), (i, 0, 255)), "label": i % 10} for i in range(count)]
        splits = ("validation_matched", "validation_mismatched") if name[1] == "mnli" else ("validation",)
        return {split: [GLUE_ROWS[name[1]]] * 2 for split in ("train", *splits)}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr(hub, "PART", 4)
    return calls


def test_c4_is_streamed_in_parts_and_goes_on(tmp_path: Path, stand_in: list[tuple[Any, ...]]) -> None:
    hub.fetch_c4(tmp_path, 8)
    first = [path.read_bytes() for path in text_files(tmp_path)]
    Stream.read = 0
    hub.fetch_c4(tmp_path, 10)
    assert Stream.read <= 3, "what is there is not read again"
    assert [path.read_bytes() for path in text_files(tmp_path)][:2] == first
    assert [text for path in text_files(tmp_path) for text in documents(path)] == [f"document {i}" for i in range(10)]
    stand_in.clear()
    hub.fetch_c4(tmp_path, 10)
    assert not stand_in, "nothing is asked for when all is there"
    hub.fetch_c4(tmp_path, 11)
    assert sum(1 for path in text_files(tmp_path) for _ in documents(path)) == 11, "a short last part grows"


def test_a_stream_that_ends(tmp_path: Path, stand_in: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "end", 8)
    assert hub.fetch_c4(tmp_path, 15) == 8
    assert len(text_files(tmp_path)) == 2, "no part is empty"
    result = CliRunner().invoke(app, ["fetch", "c4", "--out", str(tmp_path), "--documents", "15"])
    assert result.exit_code == 0 and "8 of 15 documents" in result.output
    monkeypatch.setattr(Stream, "end", 9)
    part = tmp_path / "c4-00001.jsonl.gz"
    part.write_bytes(part.read_bytes()[:-9])
    assert hub.fetch_c4(tmp_path, 15) == 9, "a part that cannot be read is fetched again"
    assert sum(1 for path in text_files(tmp_path) for _ in documents(path)) == 9


def test_every_glue_task_reads_back(tmp_path: Path, stand_in: list[tuple[Any, ...]]) -> None:
    hub.fetch_glue(tmp_path)
    wanted = {"CoLA": 1, "SST-2": 0, "MRPC": 1, "QQP": 0, "STS-B": 3.8, "MNLI": 2, "QNLI": 1, "RTE": 0}
    for name, spec in GLUE.items():
        train, dev = find_files(tmp_path, spec)
        assert len(dev) == (2 if name == "MNLI" else 1)
        examples = [example for path in (train, *dev) for example in read_examples(path, spec)]
        assert {example.label for example in examples} == {wanted[name]}
        assert "\t" not in examples[0].first
    stand_in.clear()
    hub.fetch_glue(tmp_path)
    assert not stand_in


def test_the_command(tmp_path: Path, stand_in: list[tuple[Any, ...]]) -> None:
    result = CliRunner().invoke(app, ["fetch", "c4", "--out", str(tmp_path), "--documents", "5"])
    assert result.exit_code == 0, result.output
    assert len(text_files(tmp_path)) == 2
    assert CliRunner().invoke(app, ["fetch", "c5", "--out", str(tmp_path)]).exit_code != 0


def test_without_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"orchid-torch\[data\]"):
        hub.fetch_c4(tmp_path, 1)


def test_cifar10_reads_back(tmp_path: Path, stand_in: list[tuple[Any, ...]]) -> None:
    assert len(hub.fetch_cifar10(tmp_path)) == 6
    images, labels = load_cifar10(tmp_path, "train")
    assert labels.tolist() == list(range(10))
    assert images[:, 0, 5, 7].tolist() == list(range(10)) and (images[:, 2] == 255).all()
    assert len(load_cifar10(tmp_path, "test")[1]) == 2
    stand_in.clear()
    assert not hub.fetch_cifar10(tmp_path) and not stand_in, "nothing is asked for when all is there"
