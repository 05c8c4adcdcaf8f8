"""Masked language modelling: hiding, rows cut short, the task."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from helpers import SPECIAL, word_shards

pytest.importorskip("tokenizers", reason="needs tokenizers")
from typer.testing import CliRunner

from orchid.cli import app
from orchid.tasks.mlm import IGNORE, EncoderConfig, MaskedLMConfig, hide, most_asked, shortened
from orchid.tasks.shards import Shards, Special
from orchid.tasks.tokenize_text import build_shards

SEP = SPECIAL.index("[SEP]")


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
