"""GLUE without a model: counted words, and their place in the table."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import glue_folder
from typer.testing import CliRunner

pytest.importorskip("sklearn", reason="needs scikit-learn")
from orchid.cli import app
from orchid.report.bert import WITHOUT, glue_results_table
from orchid.tasks.glue_data import GLUE, Example
from orchid.tasks.words import overlap, predictions


def test_what_words_tell_is_learned_and_what_they_do_not_is_not() -> None:
    fine, bad = ("a fine and lovely film", "a dull and tired film")
    train = [Example(f"{text} of {i % 7}", None, float(text is fine)) for i in range(40) for text in (fine, bad)]
    (found,) = predictions(GLUE["SST-2"], train, [[Example("dull", None, 0.0), Example("lovely", None, 1.0)]])
    assert found.tolist() == [0, 1]


def test_the_overlap_of_a_pair() -> None:
    assert overlap(Example("The cat sat", "the dog", 0.0)) == [1 / 4, 1 / 3, 1 / 2]
    assert overlap(Example("the cat", "", 0.0)) == [0, 0, 0]
    assert overlap(Example("the cat", None, 0.0)) == [0]


def test_scores_follow_the_overlap() -> None:
    words = [f"w{i}" for i in range(6)]
    pairs = [(k, Example(" ".join(words), " ".join(words[:k] + ["x"] * (6 - k)), float(k))) for k in range(6)]
    (found,) = predictions(GLUE["STS-B"], [example for _, example in pairs] * 4, [[example for _, example in pairs]])
    assert (np.diff(found) > 0).all()


def test_every_task_has_a_row(tmp_path: Path) -> None:
    data, _ = glue_folder(tmp_path)
    out = tmp_path / "words"
    result = CliRunner().invoke(app, ["glue-words", "--data", str(data), "--out", str(out)])
    assert result.exit_code == 0, result.output
    runs = [json.loads(path.read_text()) for path in sorted(out.iterdir())]
    assert {run["config"]["task"]["name"] for run in runs} == set(GLUE)
    table = glue_results_table({"words": runs})
    assert "Samples" not in table
    line = table.splitlines()[-1]
    assert line.startswith(f"| {WITHOUT} | ") and line.count(" [1]") == len(GLUE)
    runs[0]["config"]["task"]["dev"] = ["dev_sample.tsv.xz"]
    assert f"where it is scored on {runs[0]['config']['task']['name']}." in glue_results_table({"words": runs})
    result = CliRunner().invoke(app, ["glue-words", "--data", str(data), "--out", str(out), "--tasks", "MNL"])
    assert result.exit_code == 2 and "--tasks='MNL' is not one of" in result.output
