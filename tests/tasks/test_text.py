"""Text on its way to a model: corpus and shards."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import SPECIAL, WORDS, word_shards, word_tokenizer

pytest.importorskip("tokenizers", reason="needs tokenizers")

from orchid.tasks.corpus import documents, text_files
from orchid.tasks.mlm import EncoderConfig, MaskedLMConfig
from orchid.tasks.shards import Shards
from orchid.tasks.tokenize_text import build_shards


class TestCorpus:
    def test_kinds_of_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("one\nmore\n\n\ntwo\n")
        with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
            file.write('{"text": "three"}\n\n{"text": "four", "id": 1}\n')
        with lzma.open(tmp_path / "c.txt.xz", "wt") as file:
            file.write("five")
        (tmp_path / "ignored.csv").write_text("x")
        found = [list(documents(path)) for path in text_files(tmp_path)]
        assert found == [["one\nmore", "two"], ["three", "four"], ["five"]]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.jsonl", b'{"text": "x"}\n{"text"\n', r"a\.jsonl, line 2: not JSON"),
            ("a.jsonl", b'{"body": "x"}\n', r'a\.jsonl, line 1: no "text"'),
            ("a.jsonl", b'{"text": 3}\n', r"a\.jsonl, line 1: .*not a string"),
            ("a.txt", b"fine\n\xff\n", r"a\.txt, line 2: not UTF-8"),
            ("a.txt.xz", b"not compressed", r"a\.txt\.xz cannot be read"),
            ("a.txt.xz", lzma.compress(b"one\n" * 999)[:-20], r"a\.txt\.xz cannot be read"),
            ("a.txt.gz", gzip.compress(b"one\n" * 999, mtime=0)[:-20], r"a\.txt\.gz cannot be read"),
            (
                "a.txt.gz",
                gzip.compress(bytes(range(128)), mtime=0)[:10] + b"\xff" * 40,
                r"a\.txt\.gz cannot be read after line",
            ),
            ("a.jsonl", b'{"text": "x"}\n{"text": "\\ud800"}\n', r"a\.jsonl, line 2: .*half of a character"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            list(documents(tmp_path / name))

    @pytest.mark.parametrize(("name", "content"), [("a.txt", "one"), ("a.jsonl", '{"text": "one"}')])
    def test_a_byte_order_mark_is_no_text(self, tmp_path: Path, name: str, content: str) -> None:
        (tmp_path / name).write_text(content, encoding="utf-8-sig")
        assert list(documents(tmp_path / name)) == ["one"]

    def test_no_text(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="holds no text"):
            text_files(tmp_path)
        with pytest.raises(ValueError, match="is not a folder"):
            text_files(tmp_path / "missing")


class TestShards:
    @pytest.fixture
    def tokenizer(self, tmp_path: Path) -> Path:
        return word_tokenizer(tmp_path / "tokenizer")

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        folder = tmp_path / "text"
        folder.mkdir()
        (folder / "a.txt").write_text("the cat sat\n\na dog ran home\n\nthe cat sat\n")
        (folder / "b.txt").write_text("a dog ran home\n\nthe big rug\n")
        return folder

    def test_every_document_once(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        shards = build_shards(source, tokenizer, tmp_path / "s")
        assert [(e["documents"], e["duplicates"]) for e in shards.entries] == [(2, 1), (1, 1)]
        words = [*SPECIAL, *WORDS]
        row = shards.rows(torch.tensor([0]), 10)[0].tolist()
        assert [words[i] for i in row] == ["[CLS]", "the", "cat", "sat", "[SEP]", "a", "dog", "ran", "home", "[SEP]"]
        assert shards.tokens == 4 + 5 + 4
        assert (shards.count(10), shards.count(7)) == (1, 2)
        row = shards.rows(torch.tensor([1]), 7)[0].tolist()  # from one shard into the next
        assert [words[i] for i in row] == ["[CLS]", "ran", "home", "[SEP]", "the", "big", "rug"]

    def test_every_token_of_many_small_files_has_a_row(self, tokenizer: Path, tmp_path: Path) -> None:
        for number in range(40):
            file = tmp_path / "text" / str(number % 3) / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(" ".join(WORDS[(number * j + j) % len(WORDS)] for j in range(number % 7)))
        shards = build_shards(tmp_path / "text", tokenizer, tmp_path / "s")
        everything = np.concatenate(
            [np.fromfile(tmp_path / "s" / f"{n:05d}.bin", np.uint16) for n in range(len(shards.entries))]
        )
        for length in (2, 9, 33):
            rows = shards.rows(torch.arange(shards.count(length)), length)
            assert (rows[:, 0] == shards.special.cls).all()
            assert rows[:, 1:].flatten().tolist() == everything[: rows[:, 1:].numel()].tolist()
            assert len(everything) - rows[:, 1:].numel() < length - 1

    def test_a_text_without_empty_lines_is_told(
        self, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("orchid.tasks.tokenize_text.LONG", 50)
        (tmp_path / "text").mkdir()
        (tmp_path / "text" / "a.txt").write_text("the cat sat\n" * 9)
        with pytest.warns(UserWarning, match="an empty line ends a document"):
            build_shards(tmp_path / "text", tokenizer, tmp_path / "s")

    def test_nothing_is_made_twice(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        out = tmp_path / "s"
        build_shards(source, tokenizer, out)
        times = {path.name: path.stat().st_mtime_ns for path in out.glob("0*")}
        build_shards(source, tokenizer, out)
        assert times == {path.name: path.stat().st_mtime_ns for path in out.glob("0*")}
        (source / "b.txt").write_text("a small mat\n")
        shards = build_shards(source, tokenizer, out)
        assert (out / "00000.bin").stat().st_mtime_ns == times["00000.bin"]
        assert shards.entries[1]["documents"] == 1

    def test_goes_on_where_it_was_cut_short(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        out = tmp_path / "s"
        whole = build_shards(source, tokenizer, tmp_path / "whole")
        build_shards(source, tokenizer, out)
        for name in ("index.json", "00001.json"):  # as if killed within the second file
            (out / name).unlink()
        with pytest.raises(ValueError, match=r"index\.json does not exist"):
            Shards(out)
        kept = (out / "00000.bin").stat().st_mtime_ns
        shards = build_shards(source, tokenizer, out)
        assert (out / "00000.bin").stat().st_mtime_ns == kept
        assert [e["tokens"] for e in shards.entries] == [e["tokens"] for e in whole.entries]

    def test_a_failed_rebuild_leaves_no_index(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        """The old index would describe shards that have changed; what is not a shard stays."""
        out, told = tmp_path / "s", []
        build_shards(source, tokenizer, out, progress=lambda *facts: told.append(facts))
        size = sum(path.stat().st_size for path in source.iterdir())
        assert told[-1][1:] == (1, size, size)
        (out / "pytorch_model.bin").write_bytes(b"not ours")
        (source / "a.txt").write_bytes(b"the cat\n\n\xff\n")
        with pytest.raises(ValueError, match="not UTF-8"):
            build_shards(source, tokenizer, out)
        with pytest.raises(ValueError, match=r"index\.json does not exist"):
            Shards(out)
        (source / "a.txt").unlink()
        assert len(build_shards(source, tokenizer, out).entries) == 1
        assert sorted(p.name for p in out.glob("*.bin")) == ["00000-seen.bin", "00000.bin", "pytorch_model.bin"]

    def test_another_tokenizer_makes_them_again(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        first = build_shards(source, tokenizer, tmp_path / "s").tokenizer
        path = tokenizer / "tokenizer.json"
        path.write_text(path.read_text().replace('"big"', '"huge"'))
        assert build_shards(source, tokenizer, tmp_path / "s").tokenizer != first

    def test_damage_is_named(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        build_shards(source, tokenizer, tmp_path / "s")
        (tmp_path / "s" / "00001.bin").write_bytes(b"x")
        with pytest.raises(ValueError, match=r"00001\.bin is missing or damaged"):
            Shards(tmp_path / "s")
        with pytest.raises(ValueError, match=r"nothing does not exist: a tokenizer is a folder"):
            build_shards(source, tmp_path / "nothing", tmp_path / "s")

    @pytest.mark.parametrize("name", ["00000.bin", "00000-seen.bin", "00000.json", "00001.bin"])
    def test_what_is_damaged_is_made_again(self, source: Path, tokenizer: Path, tmp_path: Path, name: str) -> None:
        out = tmp_path / "s"
        build_shards(source, tokenizer, out)
        whole = (out / name).read_bytes()
        for damaged in (whole[:-3], b"", whole[:-2] + b"\xff\xff")[: 2 if "seen" in name else 3]:
            (out / name).write_bytes(damaged)
            build_shards(source, tokenizer, out).verify()
            assert (out / name).read_bytes() == whole

    def test_damage_of_the_same_size_is_named(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        """By its checksum; in shards of before there were checksums, by ids that the tokenizer lacks."""
        out = tmp_path / "s"
        build_shards(source, tokenizer, out)
        path, index = out / "00001.bin", json.loads((out / "index.json").read_text())
        path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff")
        with pytest.raises(ValueError, match=r"00001\.bin is damaged \(its checksum is another\); tokenize again"):
            Shards(out).verify()
        config = MaskedLMConfig(train=str(out), valid=str(out), length=4)
        with pytest.raises(ValueError, match=r"00001\.bin is damaged"):
            config.build(EncoderConfig(), seed=0).train_batch(0, 1, "cpu")
        with pytest.raises(ValueError, match=r"00001\.bin is damaged"):
            config.build(EncoderConfig(), seed=0).evaluate(torch.nn.Identity(), "cpu")
        for entry in index["shards"]:
            del entry["sha256"]
        (out / "index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match=r"00001\.bin is damaged \(id 65535 of a vocabulary of 20\)"):
            Shards(out).verify()

    @pytest.mark.parametrize("content", ['{"vocab', "[]", "{}", '{"special": {}}'])
    def test_a_damaged_index_is_named(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "index.json").write_text(content)
        with pytest.raises(ValueError, match=r"index\.json is damaged"):
            Shards(tmp_path)

    def test_what_a_killed_process_left_goes(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        out = tmp_path / "s"
        out.mkdir()
        (out / ".00000.bin.abc.writing").write_bytes(b"half")
        build_shards(source, tokenizer, out)
        assert not list(out.glob(".*"))

    def test_a_broken_tokenizer_is_named(self, source: Path, tokenizer: Path, tmp_path: Path) -> None:
        path = tokenizer / "tokenizer.json"
        path.write_text(path.read_text()[:50])
        with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
            build_shards(source, tokenizer, tmp_path / "s")


def test_what_texts_spell_is_text(tmp_path: Path) -> None:
    shards = word_shards(tmp_path)
    (tmp_path / "text" / "words.txt").write_text("the [MASK] [PAD] cat\n")
    made = build_shards(tmp_path / "text", tmp_path / "tokenizer", shards)
    ids = made.rows(torch.tensor([0]), made.tokens)[0].tolist()
    assert made.special.mask not in ids and made.special.pad not in ids
    (tmp_path / "text" / "words.txt").write_text("")
    with pytest.raises(ValueError, match="has no text"):
        build_shards(tmp_path / "text", tmp_path / "tokenizer", shards)
