"""Tables say what was measured, what the paper has, and what was not run."""

from pathlib import Path
from typing import Any

import pytest

from orchid.files import write_json
from orchid.recipes import get_recipe
from orchid.report.document import write_report
from orchid.report.recall import (
    ablation_table,
    ablation_verdicts,
    length_table,
    mean_error,
    signal_table,
    tuning_table,
    vocabulary_table,
)
from orchid.report.results import load_results
from orchid.report.runtime import training_table


def run(recipe: str, accuracy: float, seed: int = 0, curve: tuple[float, ...] = ()) -> dict[str, Any]:
    """A made-up result of a recipe; ``curve`` holds its evaluations, spread over the steps."""
    experiment = get_recipe(f"recall/{recipe}").build()
    config = experiment.to_dict()
    scores = curve or (accuracy,)
    steps = [config["train"]["steps"] * (index + 1) // len(scores) for index in range(len(scores))]
    return {
        "recipe": f"recall/{recipe}",
        "config": config,
        "seed": seed,
        "metrics": {"test/accuracy": accuracy, "test/loss": 0.1, "test/best_guess": 0.25},
        "history": [{"step": step, "test/accuracy": score} for step, score in zip(steps, scores, strict=True)],
        "paper": config.pop("paper"),
        "steps": config["train"]["steps"],
        "seconds": 90.0,
        "parameters": 1234,
        "hardware": {"device": "cuda", "gpu": "a GPU", "cpu": "a CPU", "threads": 1},
    }


def cells(table: str, row: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_vocabulary_table() -> None:
    runs = [run("v20-orchid", score, seed, (0.5, 0.99, score)) for seed, score in enumerate((0.99, 1.0))]
    table = vocabulary_table([*runs, run("v40-hyena", 0.5)])
    assert cells(table, "orchid")[:5] == ["orchid", "99.5 (99.0 to 100.0)", "4,000", "100.0", "not run"]
    assert cells(table, "hyena")[7:10] == ["50.0", "not reached", "12.4"]
    assert cells(table, "mamba")[1] == "not run" and cells(table, "mamba")[3] == "100.0"
    assert "signal `masked`" in table and "Chance is 11.1, 7.1, 5.3 %" in table


def test_length_table() -> None:
    table = length_table([run("v20-orchid", 1.0), run("v20-l131072-orchid", 0.992)])
    row = cells(table, "orchid")
    assert row[1] == "100.0" and row[3] == "not run" and row[-2:] == ["99.2", "100.0"]
    assert length_table([run("v20-orchid", 1.0)]) == "", "no table without a single long run"


def ablations(curves: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Runs of ablations whose mean errors are given; evaluated at every eighth of the steps."""
    return [
        run(f"ablation-{name}", 1 - error, seed, (1 - error,) * 8)
        for name, errors in curves.items()
        for seed, error in enumerate(errors)
    ]


@pytest.mark.parametrize(
    ("dct", "dft", "verdict"),
    [
        ([0.1, 0.11], [0.12, 0.13], "holds"),
        ([0.1, 0.125], [0.12, 0.13], "undecided: the seeds overlap"),
        ([0.2, 0.3], [0.1, 0.11], "does not hold"),
    ],
)
def test_verdicts(dct: list[float], dft: list[float], verdict: str) -> None:
    runs = ablations({"phase-dct": dct, "phase": dft})
    assert mean_error(runs[0]) == pytest.approx(dct[0])
    table = ablation_verdicts(runs)
    assert cells(table, "The DCT learns faster than the DFT (Type I, orthonormal)")[1] == verdict
    assert cells(table, "Type I learns faster than Type II (DFT)")[1] == "not run"


def test_ablations_are_sorted_and_complete() -> None:
    lines = ablation_table(ablations({"cross": [0.1], "phase": [0.2]})).splitlines()[4:]
    assert lines[0].startswith("| conditioning=cross |") and lines[1].startswith("| default")
    assert sum("not run" in line for line in lines) == 14


def test_signal_table() -> None:
    table = signal_table([run("answer-v40-orchid", 0.4, curve=(0.45, 0.4))])
    row = cells(table, "`recall/answer-v40-orchid`")
    assert row[2:4] == ["answer", "fresh"] and row[5:8] == ["40.0", "45.0", "99.2"]
    assert cells(table, "`recall/paper-v40`")[3] == "5,000"


def test_tuning_table() -> None:
    trials = {"0.001": {"loss": 0.5, "accuracy": 0.9}, "0.01": {"loss": 0.25, "accuracy": 0.95}}
    choice = {"recipe": "recall/v30-s4", "trials": trials, "chosen": 0.01, "seed": 1000, "steps": 1500}
    assert cells(tuning_table([choice]), "`recall/v30-s4`") == ["`recall/v30-s4`", "0.5000", "0.2500", "0.01"]


def test_training_table() -> None:
    """Minutes to the goal are steps of kept runs at the measured speed."""
    config = get_recipe("recall/v40-orchid").build().to_dict()
    row = {"recipe": "recall/v40-orchid", "task": config["task"], "train": config["train"]}
    benchmark = {"hardware": {"gpu": "a GPU"}, "training": [{**row, "step_ms": 2.0, "batch_ms": 0.05}]}
    table = training_table(benchmark, [run("v40-orchid", 1.0, curve=(0.5, 1.0))])
    assert cells(table, "`recall/v40-orchid`")[3:] == ["2.00", "500", "0.050", "2.5 %", "0.20"]


def test_report_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    runs = [run("v20-orchid", 1.0), run("v20-l512-orchid", 1.0), *ablations({"phase": [0.1], "cross": [0.2]})]
    for index, result in enumerate(runs):
        write_json(tmp_path / "results" / f"{index}.json", result)
    assert len(load_results(tmp_path / "results").runs) == 4
    written = write_report(tmp_path / "results", tmp_path)
    assert [path.name for path in written] == [
        "RESULTS.md",
        "recall_curves.png",
        "recall_grid.png",
        "recall_ablations.png",
    ]
    text = written[0].read_text()
    assert all(f"docs/assets/{path.name}" in text and path.stat().st_size > 10_000 for path in written[1:])


def test_what_is_no_result(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"hello": 1})
    with pytest.raises(ValueError, match="neither the result of a run nor a benchmark"):
        load_results(tmp_path)
    write_json(tmp_path / "a.json", {"recipe": "poker/holdem"})
    with pytest.raises(ValueError, match="no table for results of recipe 'poker/holdem'"):
        load_results(tmp_path)
