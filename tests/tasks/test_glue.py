"""GLUE: files, labels, metrics, and the whole table."""

import gzip
import json
import lzma
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import glue_folder
from typer.testing import CliRunner

pytest.importorskip("transformers", reason="needs transformers")
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from orchid.cli import app
from orchid.commands.glue import glue_experiments, run_glue
from orchid.tasks.glue import GlueConfig, StartConfig, steps_for
from orchid.tasks.glue_data import GLUE, find_file, find_files, read_examples, score
from orchid.train.engine import Engine, Outcome
from orchid.train.run_folder import RunFolder


class TestFiles:
    def test_every_task_reads(self, tmp_path: Path) -> None:
        data, _ = glue_folder(tmp_path)
        for spec in GLUE.values():
            train, dev = find_files(data, spec)
            for path in (train, *dev):
                examples = read_examples(path, spec)
                assert len(examples) == 12
                assert (examples[0].second is None) == (len(spec.texts) == 1)
                assert {example.label for example in examples} == set(range(len(spec.labels) or 6))

    def test_both_of_mnli(self, tmp_path: Path) -> None:
        data, _ = glue_folder(tmp_path)
        (data / "MNLI" / "dev_mismatched.tsv").write_text((data / "MNLI" / "dev_matched.tsv").read_text())
        assert [path.name for path in find_files(data, GLUE["MNLI"])[1]] == ["dev_matched.tsv", "dev_mismatched.tsv"]

    def test_the_official_header_of_mnli(self, tmp_path: Path) -> None:
        path = tmp_path / "train.tsv"
        path.write_text("index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tneutral\tcontradiction\n")
        assert read_examples(path, GLUE["MNLI"])[0].label == 2

    def test_lines_that_nobody_uses(self, tmp_path: Path) -> None:
        path = tmp_path / "train.tsv"
        path.write_text("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t1\t2\ta\n1\t1\t2\ta\tb\t1\n\n")
        assert [example.label for example in read_examples(path, GLUE["QQP"])] == [1]

    @pytest.mark.parametrize(
        ("task", "content", "message"),
        [
            ("RTE", "index\tsentence1\tlabel\n", r"train\.tsv, line 1: no column 'sentence2'"),
            ("RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\n", r"train\.tsv, line 2: 3 columns; expected 4"),
            ("RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n", r"line 2: label 'maybe' is not one of"),
            ("CoLA", "s\t1\t\tfine\ns\t2\t\tnot\n", r"train\.tsv, line 2: label '2' is not one of 0, 1"),
            ("STS-B", "sentence1\tsentence2\tscore\na\tb\t7\n", r"line 2: score 7\.0 is not in 0 \.\.\. 5"),
            ("STS-B", "sentence1\tsentence2\tscore\na\tb\tx\n", r"line 2: score 'x' is not a number"),
            ("SST-2", "sentence\tlabel\n", "has no examples"),
            ("SST-2", "", "is empty"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, task: str, content: str, message: str) -> None:
        path = tmp_path / "train.tsv"
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_examples(path, GLUE[task])

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("train.tsv.xz", lzma.compress(b"sentence\tlabel\n" * 999)[:-20], r"train\.tsv\.xz cannot be read"),
            (
                "train.tsv.gz",
                gzip.compress(b"sentence\tlabel\n" * 999, mtime=0)[:-20],
                r"train\.tsv\.gz cannot be read",
            ),
            ("train.tsv.xz", b"not compressed", r"train\.tsv\.xz cannot be read"),
            ("train.tsv", b"sentence\tlabel\n\xff\t1\n", r"train\.tsv, line 2: not UTF-8"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_examples(tmp_path / name, GLUE["SST-2"])

    def test_a_byte_order_mark_is_no_column(self, tmp_path: Path) -> None:
        path = tmp_path / "train.tsv"
        path.write_text("sentence\tlabel\nfine\t1\n", encoding="utf-8-sig")
        assert read_examples(path, GLUE["SST-2"])[0].first == "fine"

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"CoLA has no train\.tsv or train_sample\.tsv"):
            find_file(tmp_path, GLUE["CoLA"], "train", "train_sample")


def test_metrics_are_the_libraries() -> None:
    rng = np.random.default_rng(0)
    true, predicted = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    assert score("f1", predicted, true) == pytest.approx(f1_score(true, predicted))
    assert score("matthews", predicted, true) == pytest.approx(matthews_corrcoef(true, predicted))
    assert score("accuracy", predicted, true) == pytest.approx((true == predicted).mean())
    tied = rng.integers(0, 6, 200).astype(float)
    assert score("spearman", tied + rng.normal(size=200), tied) != 0
    assert score("spearman", predicted, tied) == pytest.approx(spearmanr(predicted, tied).statistic)
    assert score("matthews", np.zeros(5), np.ones(5)) == 0


def test_an_epoch_sees_every_example_once(tmp_path: Path) -> None:
    data, start = glue_folder(tmp_path)
    task = GlueConfig(name="STS-B", data=str(data), length=16).build(StartConfig(start=str(start)), seed=0)
    labels = torch.cat([task.train_batch(index, 5, "cpu")[3] for index in range(5)])
    assert sorted(labels[:12].tolist()) == sorted(task.train.labels.tolist())
    assert steps_for(12, 2, 5) == 5


def test_pooling(tmp_path: Path) -> None:
    """The paper's for the task, unless another is asked for."""
    data, start = glue_folder(tmp_path)
    settings = {"data": str(data), "length": 16}
    for name, asked, used in (("STS-B", "", "cls"), ("STS-B", "mean", "mean"), ("QNLI", "", "mean")):
        task = GlueConfig(name=name, pooling=asked, **settings).build(StartConfig(start=str(start)), seed=0)
        assert task.build_model().config.classifier_pooling == used
    with pytest.raises(ValueError, match="pooling"):
        GlueConfig(name="STS-B", pooling="max", **settings).build(StartConfig(start=str(start)), seed=0)


def glue_command(start: Path, data: Path, out: Path, tasks: str, *extra: str) -> list[str]:
    return ["glue", str(start), "--data", str(data), "--out", str(out), "--tasks", tasks, "--cpu", *extra]


def test_the_table(tmp_path: Path) -> None:
    """MNLI first, others from it; predictions and a model of each; the same command again does nothing new."""
    data, start = glue_folder(tmp_path)
    out = tmp_path / "out"
    command = [
        "glue",
        str(start),
        "--data",
        str(data),
        "--out",
        str(out),
        "--tasks",
        "RTE,STS-B,MNLI",
        "--tiny",
        "--cpu",
    ]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "average of 3 tasks" in first.output
    lines = (out / "RTE" / "seed-0" / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction\tlabel"
    assert len(lines) == 13
    assert (out / "MNLI" / "seed-0" / "model" / "model.safetensors").is_file()
    written = (out / "RTE" / "seed-0" / "result.json").stat().st_mtime_ns
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (out / "RTE" / "seed-0" / "result.json").stat().st_mtime_ns == written
    # Killed between the result and the model: what is missing is made, from the weights that are there.
    shutil.rmtree(out / "RTE" / "seed-0" / "model")
    (out / "RTE" / "seed-0" / "predictions.tsv").unlink()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (out / "RTE" / "seed-0" / "predictions.tsv").read_text().splitlines() == lines
    assert (out / "RTE" / "seed-0" / "result.json").stat().st_mtime_ns == written


def test_bad_input_before_any_training(tmp_path: Path) -> None:
    data, start = glue_folder(tmp_path)
    (data / "STS-B" / "dev.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t9\n")
    command = [
        "glue",
        str(start),
        "--data",
        str(data),
        "--out",
        str(tmp_path / "out"),
        "--tasks",
        "CoLA,STS-B",
        "--cpu",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "dev.tsv, line 2" in result.output
    assert not (tmp_path / "out").exists()
    missing = CliRunner().invoke(app, ["glue", str(data), *command[2:]])
    assert "is not a pre-trained model" in missing.output


def another_model(start: Path) -> Path:
    """Return a copy of a model beside it, with other weights."""
    other = shutil.copytree(start, start.parent / "other")
    weights = load_file(other / "model.safetensors")
    save_file({name: 0.5 * tensor for name, tensor in weights.items()}, other / "model.safetensors", {"format": "pt"})
    return other


class TestWhatIsThere:
    """A folder of runs is one model's, with one set of settings."""

    @pytest.fixture
    def folders(self, tmp_path: Path) -> tuple[Path, Path, Path]:
        data, start = glue_folder(tmp_path)
        return start, data, tmp_path / "out"

    def test_another_models_runs_are_not_taken(self, folders: tuple[Path, Path, Path]) -> None:
        start, data, out = folders
        assert CliRunner().invoke(app, glue_command(*folders, "CoLA", "--tiny")).exit_code == 0
        other = another_model(start)
        for command, setting in (
            (glue_command(other, data, out, "SST-2,CoLA", "--tiny"), "from another model (model.digest)"),
            (glue_command(start, data, out, "SST-2,CoLA", "--tiny", "--pooling", "mean"), "task.pooling"),
            (glue_command(start, data, out, "SST-2,CoLA", "--tiny", "--large"), "recipe 'bert/glue-cola'"),
        ):
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 2 and setting in result.output, result.output
            assert not (out / "SST-2").exists(), "before anything is trained"

    def test_starts_from_an_earlier_mnli(self, folders: tuple[Path, Path, Path]) -> None:
        start, data, out = folders
        first = CliRunner().invoke(app, glue_command(*folders, "MNLI", "--tiny"))
        assert first.exit_code == 0 and "dev_matched alone" in first.output, first.output
        result = CliRunner().invoke(app, glue_command(*folders, "RTE", "--tiny"))
        assert result.exit_code == 0 and "not from MNLI" not in result.output, result.output
        model = str(out / "MNLI" / "seed-0" / "model")
        assert RunFolder(out / "RTE" / "seed-0").read_config()["model"]["start"] == model
        result = CliRunner().invoke(app, glue_command(another_model(start), data, out, "MRPC", "--tiny"))
        assert result.exit_code == 2 and "was fine-tuned with model.digest" in result.output, result.output

    def test_other_contents_at_the_same_place_are_not_taken_for_what_was_there(
        self, folders: tuple[Path, Path, Path]
    ) -> None:
        start, data, _ = folders
        assert CliRunner().invoke(app, glue_command(*folders, "MNLI,RTE", "--tiny")).exit_code == 0
        kept = start.rename(start.parent / "kept")
        shutil.copytree(another_model(kept), start)
        for tasks in ("MNLI", "RTE"):
            result = CliRunner().invoke(app, glue_command(*folders, tasks, "--tiny"))
            assert result.exit_code == 2 and "model.digest" in result.output, result.output
        shutil.rmtree(start)
        kept.rename(start)
        train = next((data / "RTE").glob("train.tsv*"))
        train.write_text("\n".join(train.read_text().splitlines()[:-1]) + "\n")
        result = CliRunner().invoke(app, glue_command(*folders, "RTE", "--tiny"))
        assert result.exit_code == 2 and "on other data" in result.output, result.output

    def test_model_and_data_may_move(self, folders: tuple[Path, Path, Path]) -> None:
        start, data, out = folders
        assert CliRunner().invoke(app, glue_command(*folders, "CoLA", "--tiny")).exit_code == 0
        (out / "CoLA" / "seed-0" / "predictions.tsv").unlink()
        moved = [path.rename(path.parent / f"moved-{path.name}") for path in (start, data)]
        result = CliRunner().invoke(app, glue_command(*moved, out, "CoLA", "--tiny"))
        assert result.exit_code == 0, result.output
        assert (out / "CoLA" / "seed-0" / "predictions.tsv").is_file(), "written again where it was lost"

    def test_samples_are_told(self, folders: tuple[Path, Path, Path]) -> None:
        _, data, _ = folders
        for split in ("train", "dev"):
            path = next((data / "CoLA").glob(f"{split}.tsv*"))
            path.rename(path.with_name(path.name.replace(split, f"{split}_sample")))
        result = CliRunner().invoke(app, glue_command(*folders, "CoLA", "--tiny"))
        assert result.exit_code == 0 and "trained on a sample, scored on a sample" in result.output, result.output

    def test_without_mnli_the_table_says_so(self, folders: tuple[Path, Path, Path]) -> None:
        result = CliRunner().invoke(app, glue_command(*folders, "RTE", "--tiny"))
        assert result.exit_code == 0 and result.output.count("not from MNLI") == 2, result.output

    def test_what_is_done_otherwise(self, folders: tuple[Path, Path, Path]) -> None:
        start, data, out = folders
        changes = ["--dropout", "0.3", "--pooling", "mean", "--no-mnli", "--learning-rate", "1e-3", "--batch-size", "6"]
        assert CliRunner().invoke(app, glue_command(*folders, "MNLI", "--tiny", *changes)).exit_code == 0
        assert CliRunner().invoke(app, glue_command(*folders, "RTE", "--tiny", *changes)).exit_code == 0
        config = RunFolder(out / "RTE" / "seed-0").read_config()
        assert (config["task"]["dropout"], config["task"]["pooling"]) == (0.3, "mean")
        assert config["model"]["start"] == str(start)
        model = json.loads((out / "RTE" / "seed-0" / "model" / "config.json").read_text())
        assert model["hidden_dropout_prob"] == 0.3
        scores = json.loads((out / "glue.json").read_text())["scores"]
        assert {name: list(own) for name, own in scores.items()} == {"MNLI": ["seed-0"], "RTE": ["seed-0"]}
        assert (config["train"]["learning_rate"], config["train"]["batch_size"]) == (1e-3, 6)
        result = CliRunner().invoke(app, glue_command(another_model(start), data, out, "CoLA", "--tiny"))
        assert result.exit_code == 2 and "MNLI/seed-0 holds a run from another model" in result.output, result.output
        result = CliRunner().invoke(app, glue_command(start, data, out, "RTE", "--tiny", "--keep", str(out / "kept")))
        assert result.exit_code == 2 and "--keep" in result.output, result.output
        for wrong in (["--dropout", "1"], ["--learning-rate", "0"]):
            result = CliRunner().invoke(app, glue_command(start, data, out / "2", "RTE", "--tiny", *wrong))
            assert result.exit_code == 2 and wrong[0] in result.output, result.output
        result = CliRunner().invoke(app, glue_command(start, data, out / "2", "RTE", "--batch-size", "0"))
        assert result.exit_code == 2 and "--batch-size=0" in result.output, result.output

    def test_results_are_kept_as_runs_finish(
        self, folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A call that dies in its second run has kept the first one's; the next call keeps what it finds done."""
        start, data, out = folders
        planned = partial(glue_experiments, start, data, out, ["SST-2", "CoLA"], [0], large=False, tiny=True)
        train, kept = Engine.train, out / "kept"

        def dies(engine: Engine) -> Outcome:
            if engine.experiment.task.name == "CoLA":
                raise KeyboardInterrupt
            return train(engine)

        with monkeypatch.context() as patch:
            patch.setattr(Engine, "train", dies)
            with pytest.raises(KeyboardInterrupt):
                run_glue(planned(), cpu=True, keep=kept)
        (result,) = kept.iterdir()
        assert result.name == "glue-sst-2-seed-0.json"
        result.unlink()
        assert run_glue(planned(), cpu=True, keep=kept) is None
        assert sorted(path.name for path in kept.iterdir()) == ["glue-cola-seed-0.json", "glue-sst-2-seed-0.json"]

    def test_one_process(self, folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        result = CliRunner().invoke(app, glue_command(*folders, "RTE", "--tiny"))
        assert result.exit_code == 2 and "in one process" in result.output


class TestStart:
    """What the pre-trained model and its tokenizer have to be, told before any training."""

    def refused(self, tmp_path: Path, start: Path, data: Path, *extra: str) -> str:
        result = CliRunner().invoke(app, glue_command(start, data, tmp_path / "out", "RTE", *extra))
        assert result.exit_code == 2 and not (tmp_path / "out").exists(), result.output
        return result.output

    def test_a_tokenizer_that_is_not_the_models(self, tmp_path: Path) -> None:
        data, start = glue_folder(tmp_path)
        path = start / "tokenizer.json"
        own = path.read_text()
        path.write_text(own.replace('"small": 19', '"small": 19,\n"huge": 20'))
        assert path.read_text() != own
        assert "tokenizer.json has ids up to 20" in self.refused(tmp_path, start, data, "--tiny")
        path.write_text(own[: len(own) // 2])
        assert "tokenizer.json cannot be read" in self.refused(tmp_path, start, data, "--tiny")

    def test_another_kind_of_model(self, tmp_path: Path) -> None:
        data, start = glue_folder(tmp_path)
        config = json.loads((start / "config.json").read_text())
        (start / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
        assert "is of a model of type 'bert'; expected 'orchid_bert'" in self.refused(tmp_path, start, data)
        (start / "config.json").write_text("{")
        assert "config.json is damaged" in self.refused(tmp_path, start, data)

    def test_pairs_without_segments_are_told(self, tmp_path: Path) -> None:
        data, start = glue_folder(tmp_path)
        path = start / "tokenizer.json"
        path.write_text(path.read_text().replace('"type_id": 1', '"type_id": 0'))
        with pytest.warns(UserWarning, match="does not tell the sentences of a pair apart"):
            GlueConfig(name="RTE", data=str(data), length=12).build(StartConfig(start=str(start)), seed=0)

    def test_a_model_too_short(self, tmp_path: Path) -> None:
        data, start = glue_folder(tmp_path)
        assert "takes 16 tokens (max_position_embeddings), fewer than task.length=128" in self.refused(
            tmp_path, start, data
        )

    def test_the_tokenizer_knows_the_length(self, tmp_path: Path) -> None:
        data, start = glue_folder(tmp_path)
        task = GlueConfig(name="RTE", data=str(data), length=12).build(StartConfig(start=str(start)), seed=0)
        assert task.tokenizer.model_max_length == 16
