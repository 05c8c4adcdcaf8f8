"""The benchmark of whole models, at a CPU's sizes."""

import json
from pathlib import Path

import pytest
from torch import nn
from typer.testing import CliRunner

from orchid.bench.models import list_cases
from orchid.cli import app
from orchid.report.results import load_results
from orchid.report.runtime import models_table

pytest.importorskip("transformers", reason="needs transformers")


def test_every_model_is_timed_and_rendered(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    result = CliRunner().invoke(app, ["bench", "models", "--cpu", "--json", str(file)])
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())["models"]
    cases = list_cases("bert", "cpu") + list_cases("vit", "cpu")
    assert [(row["model"], row["length"]) for row in rows] == [(case.model, case.length) for case in cases]
    for row, case in zip(rows, cases, strict=True):
        assert row["per_second"] == pytest.approx(1e3 * case.count / row["step_ms"], rel=1e-3)
    table = models_table(load_results(tmp_path).models[0])
    assert table.count("1.00x") >= 4, "attention beside itself, at every size"


def test_compiled_models_stand_beside_compiled_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    file = tmp_path / "models.json"
    result = CliRunner().invoke(
        app, ["bench", "models", "--cpu", "--families", "vit", "--compile", "--json", str(file)]
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())["models"]
    assert [row["compiled"] for row in rows] == [False, True] * len(list_cases("vit", "cpu"))
    assert len(compiled) == len(rows) // 2
    table = models_table(load_results(tmp_path).models[0]).splitlines()
    assert "compiled" in table[2]
    assert [line.count("1.00x") for line in table if line.startswith("| ViT |")] == [1] * 4


def test_sizes_on_a_gpu() -> None:
    assert {case.length for case in list_cases("bert", "cuda")} == {128, 1024, 8192}
    assert {case.length for case in list_cases("vit", "cuda")} == {64, 256, 1024}
    assert all(case.count == 65_536 for case in list_cases("bert", "cuda"))


def test_unknown_family(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "models", "--families", "gpt"])
    assert result.exit_code != 0
