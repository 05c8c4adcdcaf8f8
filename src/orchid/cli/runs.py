"""Commands of one run: recipes, training, evaluation, the demo, the report."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from orchid.cli.app import (
    Board,
    Cpu,
    Data,
    Limit,
    Recipe,
    Setting,
    Tiny,
    app,
    console,
    errors,
    leave_stopped,
    meta_model,
    say_if_unfinished,
)
from orchid.files import check_folder
from orchid.recipes import get_recipe, match_recipes, resolve_recipe
from orchid.train.data_folder import wanted_arguments


@app.command("list")
def list_command(
    pattern: Annotated[str, typer.Argument(help="Show those that match, such as 'recall/v20-*'.")] = "*",
) -> None:
    """Show the recipes: `show` prints one's settings, `train` runs it, `grid` runs many."""
    with errors():
        recipes = match_recipes([pattern])
    width = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        console.print(f"{recipe.name:{width}}  {recipe.summary}", markup=False)


@app.command()
def show(recipe: Recipe, settings: Setting = None, tiny: Tiny = False) -> None:
    """Print a recipe's settings as `train` would use them: JSON, with what it is and how to run it on stderr."""
    with errors():
        experiment = resolve_recipe(recipe, settings or [], tiny=tiny)
        if getattr(experiment.model, "start", None) == "":
            size = "as large as model.start, which is to be set"
        else:
            size = f"{sum(p.numel() for p in meta_model(experiment).parameters()):,} parameters"
    found = get_recipe(recipe)
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    notes.print(f"{found.name}: {found.summary}; {size}", markup=False)
    given = [part for setting in settings or () for part in ("--set", setting)]
    command = shlex.join(
        ["orchid", "train", found.name, *(["--tiny"] if tiny else []), *given, *wanted_arguments(experiment)]
    )
    notes.print(f"run it:    {command}", markup=False)
    notes.print(f"change it: {command} --set train.steps=100 --set train.batch_size=16", markup=False)
    console.print_json(json.dumps(experiment.to_dict()))


@app.command()
def train(
    recipe: Recipe,
    settings: Setting = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/RECIPE/seed-N")] = None,
    data: Data = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the initialisation and the data.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run that the folder holds.")] = False,
    time_limit: Limit = None,
    tensorboard: Board = False,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Train a recipe into a run folder."""
    from orchid.train.engine import Engine

    with errors():
        experiment = resolve_recipe(recipe, settings or [], seed=seed, tiny=tiny, data=data)
        name = f"{recipe}-tiny" if tiny else recipe
        folder = out or Path("runs") / name / f"seed-{experiment.seed}"
        engine = Engine(experiment, folder, resume=resume, time_limit=time_limit, cpu=cpu, tensorboard=tensorboard)
        outcome = engine.train()
        engine.close()
    console.quiet = int(os.environ.get("RANK", "0")) > 0  # one voice among many processes
    if outcome.result is None:
        leave_stopped(outcome, "the same command with --resume")
    print_result(outcome.result)
    console.print(f"files: {outcome.folder}")


def print_result(result: dict[str, Any]) -> None:
    """Print the metrics of a finished run."""
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items())
    console.print(f"{result['recipe']}  {metrics}  {result['steps']} steps in {result['seconds']:.0f} s")


@app.command("eval")
def eval_command(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    data: Annotated[Path | None, typer.Option(help="Of images: a folder of your own, DATA/CLASS/image.")] = None,
    cpu: Cpu = False,
) -> None:
    """Evaluate the model of a run on the recipe's test set, or on a folder of your own images.

    Where the data the run was trained on no longer exists, ORCHID_DATA names it.
    """
    from orchid.commands.runs import evaluate_folder, evaluate_run, load_run

    with errors():
        engine = load_run(run, cpu=cpu)
        say_if_unfinished(engine)
        metrics = evaluate_run(engine) if data is None else evaluate_folder(engine, data)
    if data is not None:
        console.print(f"predictions: {run / 'own_predictions.tsv'}\npicture: {run / 'own_predictions.png'}")
    for name, value in metrics.items():
        console.print(f"{name}  {value:.4f}")


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="The folder of runs and picture.", show_default="runs/demo")] = None,
    tiny: Tiny = False,
) -> None:
    """Train Orchid, its static control and attention on associative recall, and show what was learned."""
    from orchid.commands.demo import run_demo

    folder = out or Path("runs") / ("demo-tiny" if tiny else "demo")
    with errors():
        check_folder("--out", folder)
        stopped = run_demo(folder, console, tiny=tiny)
    if stopped is not None:
        leave_stopped(stopped, "the same command")


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="The folder of kept results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Where RESULTS.md goes, and the README whose table is kept.")] = Path(),
) -> None:
    """Render RESULTS.md and the README's table from the kept results."""
    from orchid.report.document import write_report

    with errors():
        for path in write_report(results, out):
            console.print(f"wrote {path}")
