"""Text on its way to a masked language model: corpus, shards, hiding, the task."""

import gzip
import json
import lzma
from pathlib import Path

import pytest
import torch
from helpers import SPECIAL, WORDS, word_shards, word_tokenizer

pytest.importorskip("tokenizers", reason="needs tokenizers")
from typer.testing import CliRunner

from orchid.cli import app
from orchid.tasks.corpus import documents, text_files
from orchid.tasks.mlm import IGNORE, BertConfig, MaskedLMConfig, hide, most_asked
from orchid.tasks.shards import Shards, Special, build_shards

SEP = SPECIAL.index("[SEP]")


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
        ],
    )
    def test_what_cannot_be_read_is_named(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            list(documents(tmp_path / name))

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
        assert shards.count(10) == 1  # rows do not cross from one shard into the next

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


def test_hiding() -> None:
    special = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
    rows = torch.randint(5, 1000, (200, 100))
    rows[:, 0], rows[:, 50] = 2, 3
    shown, asked = hide(rows, 0.3, special, 1000, torch.Generator().manual_seed(0))
    there = asked != IGNORE
    assert not there[:, [0, 50]].any()
    assert there.float().mean().item() == pytest.approx(0.3 * 98 / 100, abs=0.01)
    assert torch.equal(asked[there], rows[there])
    assert torch.equal(shown[~there], rows[~there])
    assert (shown[there] == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (shown[there] == rows[there]).float().mean().item() == pytest.approx(0.1, abs=0.02)


class TestTask:
    def test_an_epoch_sees_every_row_once(self, tmp_path: Path) -> None:
        shards = str(word_shards(tmp_path))
        config = MaskedLMConfig(train=shards, valid=shards, length=16, mask_rate=0.0)
        task = config.build(BertConfig(), seed=0)
        count = Shards(Path(shards)).count(16)
        rows = torch.cat([task.train_batch(index, 5, "cpu")[0] for index in range(2 * count // 5 + 1)])
        first, second = rows[:count], rows[count : 2 * count]
        everything = Shards(Path(shards)).rows(torch.arange(count), 16)
        for seen in (first, second):
            assert sorted(seen.tolist()) == sorted(everything.tolist())
        assert not torch.equal(first, second)
        again = config.build(BertConfig(), seed=0).train_batch(3, 5, "cpu")[0]
        assert torch.equal(again, rows[15:20])

    def test_missing_data_is_told_before_training(self) -> None:
        with pytest.raises(ValueError, match=r"task\.train=FOLDER"):
            MaskedLMConfig().build(BertConfig(), seed=0).build_model()

    def test_shards_of_two_tokenizers(self, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        one.mkdir(), two.mkdir()
        train, valid = word_shards(one), word_shards(two)
        index = json.loads((valid / "index.json").read_text())
        (valid / "index.json").write_text(json.dumps(index | {"tokenizer": "other"}))
        with pytest.raises(ValueError, match="tokenised differently"):
            MaskedLMConfig(train=str(train), valid=str(valid), length=8).build(BertConfig(), 0).data()

    def test_several_texts_to_validate_on(self, tmp_path: Path) -> None:
        folders = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            folders.append(word_shards(tmp_path / name))
        task = MaskedLMConfig(train=str(folders[0]), valid=f"{folders[0]},{folders[1]}", length=8).build(
            BertConfig(preset="orchid-bert-base", changes={"hidden_size": 32, "num_hidden_layers": 1}), 0
        )
        folders[1].rename(tmp_path / "other")
        task.config.valid = f"{folders[0]},{tmp_path / 'other'}"
        metrics = task.evaluate(task.build_model().eval(), "cpu")
        parts = [metrics[f"valid/{name}/loss"] for name in (folders[0].name, "other")]
        assert min(parts) <= metrics["valid/loss"] <= max(parts)

    def test_rows_cut_short(self, tmp_path: Path) -> None:
        shards = str(word_shards(tmp_path))
        changes = {"hidden_size": 16, "num_hidden_layers": 1}
        config = MaskedLMConfig(train=shards, valid=shards, length=16, short_share=0.5)
        task = config.build(BertConfig(changes=changes), seed=0)
        shown, asked, real = task.train_batch(0, 400, "cpu")
        padded = real == 0
        assert 0.35 < padded.any(dim=1).double().mean() < 0.6
        assert not (asked != IGNORE)[padded].any(), "padding is not asked"
        assert (padded.int().diff(dim=1) >= 0).all(), "only at the end"
        assert padded.sum(dim=1).max() <= 16 - 2
        loss, _ = task.loss(task.build_model().train(), (shown, asked, real))
        assert torch.isfinite(loss)

    @pytest.mark.parametrize(("tokens", "rate"), [(128, 0.3), (1, 0.5), (32768, 0.15), (10, 1.0)])
    def test_room_for_what_is_asked(self, tokens: int, rate: float) -> None:
        asked = torch.rand(2000, min(tokens, 4096)) < rate
        assert asked.sum(dim=1).max() <= most_asked(min(tokens, 4096), rate) <= min(tokens, 4096)


def test_export_writes_a_card(tmp_path: Path) -> None:
    shards = word_shards(tmp_path)
    run, out = tmp_path / "run", tmp_path / "model"
    sets = ["--set", f"task.train={shards}", "--set", f"task.valid={shards}"]
    for command in (
        ["train", "bert/mlm-orchid-small", "--tiny", "--cpu", *sets, "--out", str(run)],
        ["export", str(run), "--out", str(out)],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers")
    assert "| tokens | 512 |" in card  # 4 steps of 8 rows of 16
    assert "| valid/loss |" in card
