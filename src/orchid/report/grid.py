"""What a grid of runs has come to, for the terminal."""

from typing import Any

from rich.table import Table

from orchid.train.grid import Cell


def grid_summary(cells: list[Cell]) -> Table:
    """Return a line per run: its main metric, steps and seconds."""
    table = Table("recipe", "seed", "metric", "steps", "seconds", box=None, padding=(0, 2, 0, 0))
    for cell in cells:
        result, values = cell.result(), ["not done", "", ""]
        if result is not None:
            metric, value = next(iter(result["metrics"].items()))
            values = [f"{metric} {value:.4f}", str(result["steps"]), f"{result['seconds']:.0f}"]
        table.add_row(cell.experiment.recipe, str(cell.experiment.seed), *values)
    return table


def tuning_summary(choices: list[dict[str, Any]], rates: list[float]) -> Table:
    """Return a line per recipe: the validation loss of every rate, and the rate chosen."""
    table = Table("recipe", *(f"{rate:g}" for rate in rates), "chosen", box=None, padding=(0, 2, 0, 0))
    for choice in choices:
        losses = [choice["trials"].get(f"{rate:g}", {}).get("loss") for rate in rates]
        shown = ["" if loss is None else f"{loss:.4f}" for loss in losses]
        table.add_row(choice["recipe"], *shown, f"{choice['chosen']:g}")
    return table
