"""Text on its way to a masked language model: corpus, shards, hiding, the task."""

import gzip
import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import SPECIAL, WORDS, glue_folder, word_shards, word_tokenizer

pytest.importorskip("tokenizers", reason="needs tokenizers")
from typer.testing import CliRunner

from orchid.cli import app
from orchid.tasks.corpus import documents, text_files
from orchid.tasks.mlm import IGNORE, EncoderConfig, MaskedLMConfig, hide, most_asked, shortened
from orchid.tasks.shards import Shards, Special
from orchid.tasks.tokenize_text import build_shards

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


def test_hiding() -> None:
    special = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
    rows = torch.randint(5, 1000, (200, 100))
    rows[:, 0], rows[:, 50], rows[:, 60], rows[:, 70] = 2, 3, 1, 4
    shown, asked = hide(rows, 0.3, special, 1000, torch.Generator().manual_seed(0))
    there = asked != IGNORE
    assert not there[:, [0, 50, 60, 70]].any(), "special tokens are not asked"
    assert there.float().mean().item() == pytest.approx(0.3 * 96 / 100, abs=0.01)
    assert torch.equal(asked[there], rows[there])
    assert torch.equal(shown[~there], rows[~there])
    assert (shown[there] == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (shown[there] == rows[there]).float().mean().item() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("length", [2, 3, 8, 16, 128])
def test_what_is_cut_short_keeps_its_beginning(length: int) -> None:
    special = Special(pad=0, unk=1, cls=2, sep=3, mask=4)
    rows = torch.full((500, length), 9)
    rows[:, 0] = special.cls
    short = shortened(rows, 1.0, special, torch.Generator().manual_seed(0))
    assert (short[:, 0] == special.cls).all() and ((short == special.sep).sum(dim=1) == 1).all()
    if length > 2:
        assert (short[:, 1] == 9).all()
    ends = (short == special.sep).int().argmax(dim=1)
    assert ends.min() == min(length - 1, max(2, length // 16)) and ends.max() == length - 1


class TestTask:
    def test_an_epoch_sees_every_row_once(self, tmp_path: Path) -> None:
        shards = str(word_shards(tmp_path))
        config = MaskedLMConfig(train=shards, valid=shards, length=16, mask_rate=1e-12)
        task = config.build(EncoderConfig(), seed=0)
        count = Shards(Path(shards)).count(16)
        rows = torch.cat([task.train_batch(index, 5, "cpu")[0] for index in range(2 * count // 5 + 1)])
        first, second = rows[:count], rows[count : 2 * count]
        everything = Shards(Path(shards)).rows(torch.arange(count), 16)
        for seen in (first, second):
            assert sorted(seen.tolist()) == sorted(everything.tolist())
        assert not torch.equal(first, second)
        again = config.build(EncoderConfig(), seed=0).train_batch(3, 5, "cpu")[0]
        assert torch.equal(again, rows[15:20])

    def test_nothing_asked_is_nothing_learned(self) -> None:
        with pytest.raises(ValueError, match=r"task\.mask_rate=0"):
            MaskedLMConfig(mask_rate=0.0).build(EncoderConfig(), seed=0)

    def test_missing_data_is_told_before_training(self) -> None:
        with pytest.raises(ValueError, match=r"task\.train=FOLDER"):
            MaskedLMConfig().build(EncoderConfig(), seed=0).build_model()

    def test_shards_of_two_tokenizers(self, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        one.mkdir(), two.mkdir()
        train, valid = word_shards(one), word_shards(two)
        index = json.loads((valid / "index.json").read_text())
        (valid / "index.json").write_text(json.dumps(index | {"tokenizer": "other"}))
        with pytest.raises(ValueError, match="tokenised differently"):
            MaskedLMConfig(train=str(train), valid=str(valid), length=8).build(EncoderConfig(), 0).data()

    def test_several_texts_to_validate_on(self, tmp_path: Path) -> None:
        folders = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            folders.append(word_shards(tmp_path / name))
        task = MaskedLMConfig(train=str(folders[0]), valid=f"{folders[0]},{folders[1]}", length=8).build(
            EncoderConfig(preset="orchid-bert-base", changes={"hidden_size": 32, "num_hidden_layers": 1}), 0
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
        task = config.build(EncoderConfig(changes=changes), seed=0)
        shown, asked, real = task.train_batch(0, 400, "cpu")
        padded = real == 0
        assert 0.35 < padded.any(dim=1).double().mean() < 0.6
        assert not (asked != IGNORE)[padded].any(), "padding is not asked"
        assert (padded.int().diff(dim=1) >= 0).all(), "only at the end"
        assert padded.sum(dim=1).max() <= 16 - 2
        loss, _ = task.loss(task.build_model().train(), (shown, asked, real))
        assert torch.isfinite(loss)

    def test_validation_folders_of_one_name(self, tmp_path: Path) -> None:
        folders = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            folders.append(str(word_shards(tmp_path / name)))
        changes = {"hidden_size": 16, "num_hidden_layers": 1}
        config = MaskedLMConfig(train=folders[0], valid=",".join(folders), length=8, valid_rows=8)
        task = config.build(EncoderConfig(changes=changes), 0)
        metrics = task.evaluate(task.build_model().eval(), "cpu")
        assert {"valid/one/shards/loss", "valid/two/shards/loss", "valid/loss"} <= set(metrics)
        twice = MaskedLMConfig(train=folders[0], valid=f"{folders[0]},{folders[0]}", length=8)
        with pytest.raises(ValueError, match="names a folder twice"):
            twice.build(EncoderConfig(), 0).data()

    def test_a_piece_that_asks_nothing(self, tmp_path: Path) -> None:
        shards = str(word_shards(tmp_path))
        changes = {"hidden_size": 16, "num_hidden_layers": 1}
        task = MaskedLMConfig(train=shards, valid=shards, length=8).build(EncoderConfig(changes=changes), seed=0)
        shown, asked = task.train_batch(0, 2, "cpu")
        model = task.build_model().train()
        loss, count = task.loss(model, (shown, torch.full_like(asked, IGNORE)))
        loss.backward()
        assert (loss.item(), count.item()) == (0.0, 0)
        assert all(p.grad is None or not p.grad.any() for p in model.parameters())

    def test_another_mixer_by_one_setting(self, tmp_path: Path) -> None:
        shards = str(word_shards(tmp_path))
        model = EncoderConfig(changes={"hidden_size": 16, "num_hidden_layers": 1, "mixer": "attention"})
        task = MaskedLMConfig(train=shards, valid=shards, length=8).build(model, seed=0)
        assert task.build_model().config.mixer_options == {}

    @pytest.mark.parametrize(("tokens", "rate"), [(128, 0.3), (1, 0.5), (32768, 0.15), (10, 1.0)])
    def test_room_for_what_is_asked(self, tokens: int, rate: float) -> None:
        asked = torch.rand(2000, min(tokens, 4096)) < rate
        assert asked.sum(dim=1).max() <= most_asked(min(tokens, 4096), rate) <= min(tokens, 4096)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards, their tokenizer and a run."""
    folder = tmp_path_factory.mktemp("export")
    shards = word_shards(folder)
    sets = [f"task.train={shards}", f"task.valid={shards}", "train.accumulate=2"]
    command = ["train", "bert/mlm-orchid-small", "--tiny", "--cpu", "--out", str(folder / "run")]
    result = CliRunner().invoke(app, [*command, *(part for setting in sets for part in ("--set", setting))])
    assert result.exit_code == 0, result.output
    return folder


def test_what_texts_spell_is_text(tmp_path: Path) -> None:
    shards = word_shards(tmp_path)
    (tmp_path / "text" / "words.txt").write_text("the [MASK] [PAD] cat\n")
    made = build_shards(tmp_path / "text", tmp_path / "tokenizer", shards)
    ids = made.rows(torch.tensor([0]), made.tokens)[0].tolist()
    assert made.special.mask not in ids and made.special.pad not in ids
    (tmp_path / "text" / "words.txt").write_text("")
    with pytest.raises(ValueError, match="has no text"):
        build_shards(tmp_path / "text", tmp_path / "tokenizer", shards)


def test_a_run_is_not_resumed_on_other_shards(tmp_path: Path) -> None:
    shards = word_shards(tmp_path)
    valid = shutil.copytree(shards, tmp_path / "valid")
    sets = ["--set", f"task.train={shards}", "--set", f"task.valid={valid}"]
    command = ["train", "bert/mlm-orchid-small", "--tiny", "--cpu", *sets, "--out", str(tmp_path / "run"), "--resume"]
    assert CliRunner().invoke(app, [*command, "--time-limit", "0"]).exit_code == 0
    text = tmp_path / "text" / "words.txt"
    before = text.read_text()
    text.write_text(before.replace("cat", "dog"))
    build_shards(tmp_path / "text", tmp_path / "tokenizer", shards)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2 and "on other data" in result.output, result.output
    text.write_text(before)
    build_shards(tmp_path / "text", tmp_path / "tokenizer", shards)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output


class TestExport:
    def test_writes_a_card(self, trained: Path, tmp_path: Path) -> None:
        result = CliRunner().invoke(app, ["export", str(trained / "run"), "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        card = (tmp_path / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: transformers")
        assert "| tokens | 512 |" in card  # 4 steps of 8 rows of 16, in however many pieces
        assert "| valid/loss |" in card

    def test_the_tokenizer_is_that_of_the_shards(self, trained: Path, tmp_path: Path) -> None:
        transformers = pytest.importorskip("transformers", reason="needs transformers")
        own = trained / "tokenizer" / "tokenizer.json"
        special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
        again = transformers.PreTrainedTokenizerFast(tokenizer_file=str(own), **special)
        again.save_pretrained(tmp_path / "again")
        command = ["export", str(trained / "run"), "--out", str(tmp_path / "out"), "--tokenizer"]
        other = tmp_path / "other"
        other.mkdir()
        (other / "tokenizer.json").write_text(own.read_text().replace('"cat"', '"cow"'))
        refused = CliRunner().invoke(app, [*command, str(other)])
        assert refused.exit_code == 2 and "other/tokenizer.json is not the tokenizer of the shards" in refused.output
        assert not (tmp_path / "out").exists()
        for folder in (own.parent, tmp_path / "again"):
            result = CliRunner().invoke(app, [*command, str(folder)])
            assert result.exit_code == 0, result.output
        loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        assert loaded.model_max_length == 16

    def test_a_tokenizer_by_itself_serves_pipelines_and_pairs(self, trained: Path, tmp_path: Path) -> None:
        """A tokenizer.json does not say which of its tokens are special, nor that pairs have segments."""
        transformers = pytest.importorskip("transformers", reason="needs transformers")
        out = tmp_path / "out"
        command = ["export", str(trained / "run"), "--out", str(out), "--tokenizer", str(trained / "tokenizer")]
        assert CliRunner().invoke(app, command).exit_code == 0
        fill = transformers.pipeline("fill-mask", model=str(out), tokenizer=str(out))
        assert len(fill("the cat sat on [MASK]", top_k=3)) == 3
        loaded = transformers.AutoTokenizer.from_pretrained(out)
        pair = loaded("the cat", "a dog", padding="max_length", max_length=8)
        assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1, 0]
        assert loaded.pad_token_id == 0 and len(loaded) == len(SPECIAL) + len(WORDS)

    def test_shards_that_are_gone(self, trained: Path, tmp_path: Path) -> None:
        run, command = shutil.copytree(trained / "run", tmp_path / "run"), ["--tokenizer", str(trained / "tokenizer")]
        config = json.loads((run / "config.json").read_text())
        for name in ("train", "valid"):
            config["task"][name] = str(tmp_path / "gone")
        (run / "config.json").write_text(json.dumps(config))
        result = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "out"), *command])
        assert result.exit_code == 0, result.output
        other = tmp_path / "other"
        other.mkdir()
        own = (trained / "tokenizer" / "tokenizer.json").read_text()
        (other / "tokenizer.json").write_text(own.replace('"cat"', '"cow"'))
        command = ["export", str(run), "--out", str(tmp_path / "out"), "--tokenizer", str(other)]
        assert CliRunner().invoke(app, command).exit_code == 2

    def test_nothing_of_an_earlier_export_stays(self, trained: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        command = ["export", str(trained / "run"), "--out", str(out)]
        assert CliRunner().invoke(app, [*command, "--tokenizer", str(trained / "tokenizer")]).exit_code == 0
        assert (out / "tokenizer.json").is_file()
        assert CliRunner().invoke(app, command).exit_code == 0
        assert not (out / "tokenizer.json").exists()
        (out / "thesis.tex").write_text("")
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2 and "such as thesis.tex" in result.output
        assert (out / "thesis.tex").exists() and (out / "model.safetensors").exists()
        other = tmp_path / "other"
        other.mkdir()
        for name in ("config.json", "vocab.txt"):  # names that an export has too
            (other / name).write_text("{}")
        assert CliRunner().invoke(app, [*command[:3], str(other)]).exit_code == 2
        assert (other / "vocab.txt").exists()

    def test_into_a_link_and_where_one_stands(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = tmp_path / "real"
        real.mkdir(mode=0o770)
        real.chmod(0o770)
        (tmp_path / "link").symlink_to(real)
        command = ["export", str(trained / "run"), "--out"]
        assert CliRunner().invoke(app, [*command, str(tmp_path / "link")]).exit_code == 0
        monkeypatch.chdir(real)
        for _ in range(2):
            assert CliRunner().invoke(app, [*command, "."]).exit_code == 0
        assert (tmp_path / "link").is_symlink() and real.stat().st_mode & 0o777 == 0o770
        assert sorted(path.name for path in real.iterdir()) == ["README.md", "config.json", "model.safetensors"]

    def test_not_of_a_fine_tuning_run(self, tmp_path: Path) -> None:
        data, start = glue_folder(tmp_path)
        command = ["glue", str(start), "--data", str(data), "--out", str(tmp_path / "g"), "--tasks", "CoLA", "--tiny"]
        assert CliRunner().invoke(app, [*command, "--cpu"]).exit_code == 0
        run = tmp_path / "g" / "CoLA" / "seed-0"
        result = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "out")])
        assert result.exit_code == 2 and f"its model is in {run / 'model'} already" in result.output, result.output
        assert not (tmp_path / "out").exists()
