"""Commands of many runs: grids of recipes and seeds, learning rates."""

import os
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from orchid.cli.app import (
    Board,
    Cpu,
    Data,
    Jobs,
    JsonFile,
    Limit,
    Patterns,
    Setting,
    Tiny,
    app,
    console,
    errors,
    meta_model,
)
from orchid.files import check_folder
from orchid.recipes import match_recipes, resolve_recipe


@app.command()
def grid(
    recipes: Patterns,
    seeds: Annotated[str, typer.Option(help="Seeds, comma separated.")] = "0",
    settings: Setting = None,
    data: Data = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs: OUT/RECIPE/seed-N.")] = Path("runs"),
    keep: Annotated[Path | None, typer.Option(help="Copy the result of every finished run here.")] = None,
    jobs: Jobs = 1,
    time_limit: Limit = None,
    tensorboard: Board = False,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Run many recipes with many seeds; the same command again skips what is done and resumes what was cut short."""
    from orchid.report.grid import grid_summary
    from orchid.train.environment import JOBS
    from orchid.train.grid import Cell, keep_result, parse_numbers

    with errors():
        if keep is not None and (tiny or settings):
            raise ValueError("--keep keeps the results of recipes as they are: not with --tiny or --set")
        if any(setting.startswith("seed=") for setting in settings or ()):
            raise ValueError("--set seed=... has no place in a grid: use --seeds")
        check_folder("--out", out)
        if keep is not None:
            check_folder("--keep", keep)
        cells = []
        for seed in parse_numbers("--seeds", seeds, int):
            for recipe in match_recipes(recipes):
                experiment = resolve_recipe(recipe.name, settings or [], seed=seed, tiny=tiny, data=data)
                name = f"{recipe.name}-tiny" if tiny else recipe.name
                cells.append(Cell(experiment, out / name / f"seed-{seed}"))
        options = {"cpu": cpu, "minutes": time_limit, "tensorboard": tensorboard}
        stopped, status = run_grid(cells, jobs, options)
        if keep is not None and JOBS not in os.environ:
            for cell in cells:
                keep_result(cell, keep)
        finish_grid(cells, grid_summary(cells), stopped, status)


@app.command()
def tune(
    recipes: Patterns,
    rates: Annotated[str, typer.Option(help="Rates, comma separated.", show_default="the grid all results use")] = "",
    settings: Setting = None,
    data: Data = None,
    out: Annotated[Path, typer.Option(help="The folder of the trials: OUT/RECIPE/rate-R.")] = Path("runs/tuning"),
    json_file: JsonFile = None,
    jobs: Jobs = 1,
    time_limit: Limit = None,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Choose learning rates: one grid for every recipe, a quarter of its steps, one seed, on the validation set."""
    from orchid.report.grid import tuning_summary
    from orchid.train.environment import JOBS
    from orchid.train.grid import parse_numbers
    from orchid.train.tune import RATES, choose, keep_choices, read_choices, tuning_cells

    with errors():
        check_folder("--out", out)
        values = parse_numbers("--rates", rates, float) if rates else list(RATES)
        if json_file is not None:
            read_choices(json_file)  # one that cannot take the choices is an error before anything is trained
        found = [resolve_recipe(r.name, settings or [], tiny=tiny, data=data) for r in match_recipes(recipes)]
        groups = [tuning_cells(experiment, values, out) for experiment in found]
        cells = [cell for group in groups for cell in group]
        stopped, status = run_grid(cells, jobs, {"cpu": cpu, "minutes": time_limit})
        chosen = [choice for group in groups if (choice := choose(group)) is not None]
        if json_file is not None and chosen and JOBS not in os.environ:
            keep_choices(json_file, chosen)
        finish_grid(cells, tuning_summary(chosen, values), stopped, status)


def run_grid(cells: list[Any], jobs: int, options: dict[str, Any]) -> tuple[str | None, int]:
    """Run the cells here, or in several workers; return why they stopped early, if they did, and a status."""
    from orchid.train.data_folder import check_data
    from orchid.train.environment import JOBS
    from orchid.train.grid import run_cells, run_workers

    minutes = options["minutes"]
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"time_limit={minutes!r} must be minutes, at least 0")
    for cell in cells if JOBS not in os.environ else ():
        # Settings that do not fit, no data, or a folder that holds other runs, are errors before anything is trained.
        if cell.result() is None:
            check_data(cell.experiment)
        meta_model(cell.experiment)
    if jobs > 1 and JOBS not in os.environ:
        return run_workers(jobs)
    return run_cells(cells, console, **options), 0


def finish_grid(cells: list[Any], summary: Any, stopped: str | None, status: int) -> NoReturn:
    """Print what a grid has come to, and leave as the shell expects; a worker leaves the printing to its parent."""
    from orchid.train.environment import JOBS
    from orchid.train.grid import TIME_IS_UP

    worker, signals = JOBS in os.environ, {"interrupt": 130, "termination": 143}
    if worker:
        raise typer.Exit(TIME_IS_UP if stopped == "time limit" else signals.get(stopped or "", 0))
    done = sum(cell.result() is not None for cell in cells)
    console.print(summary)
    console.print(f"{done} of {len(cells)} runs done" + (f"; stopped ({stopped})" if stopped else ""))
    if stopped:
        raise typer.Exit(signals.get(stopped, 0))
    raise typer.Exit(status or int(done < len(cells)))
