"""A pre-training run as a Hugging Face folder."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import SPECIAL, WORDS, glue_folder, word_shards

pytest.importorskip("tokenizers", reason="needs tokenizers")
from typer.testing import CliRunner

from orchid.cli import app


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
