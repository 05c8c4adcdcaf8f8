"""The ``orchid`` command line."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from orchid.recipes import get_recipe, list_recipes
from orchid.train.config import Experiment, apply_overrides

app = typer.Typer(
    help="Orchid: data-dependent convolution for sequence modeling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
app.add_typer(bench, name="bench")
console = Console(highlight=False, soft_wrap=True)

Recipe = Annotated[str, typer.Argument(help="A recipe's name, as `orchid list` shows it.")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: a.b=value. Repeatable.")]
Tiny = Annotated[bool, typer.Option("--tiny", help="The recipe's small twin, which runs in seconds.")]
Cpu = Annotated[bool, typer.Option("--cpu", help="Stay on the CPU even where there is a GPU.")]


@contextmanager
def errors() -> Iterator[None]:
    """Turn bad input into a message and exit code 2, and a diverged run into exit code 1."""
    from orchid.train.engine import Diverged

    try:
        yield
    except (ValueError, OSError, Diverged) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", markup=False)
        raise typer.Exit(1 if isinstance(error, Diverged) else 2) from None


def leave_stopped(outcome: Any, how: str) -> NoReturn:
    """Say how to go on with a run that was stopped, and exit as the shell expects."""
    console.print(f"stopped at step {outcome.step} ({outcome.stopped}); {how} goes on\nfiles: {outcome.folder}")
    raise typer.Exit({"interrupt": 130, "termination": 143}.get(outcome.stopped, 0))


def resolve(recipe: str, settings: list[str] | None, seed: int | None, tiny: bool) -> Experiment:
    """Return the experiment of a recipe with the user's changes."""
    found = get_recipe(recipe)
    experiment = found.tiny() if tiny else found.build()
    apply_overrides(experiment, settings or [])
    if seed is not None:
        experiment.seed = seed
    return experiment


@app.command("list")
def list_command() -> None:
    """Show the recipes."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it runs")
    for recipe in list_recipes().values():
        table.add_row(recipe.name, recipe.summary)
    console.print(table)


@app.command()
def show(recipe: Recipe, settings: Setting = None, tiny: Tiny = False) -> None:
    """Print a recipe's settings as `train` would use them."""
    with errors():
        experiment = resolve(recipe, settings, None, tiny)
        console.print_json(json.dumps(experiment.to_dict()))


@app.command()
def train(
    recipe: Recipe,
    settings: Setting = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/RECIPE/seed-N]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the initialisation and the data.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run that the folder holds.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Minutes after which to stop, resumable.")] = None,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Train a recipe into a run folder."""
    from orchid.train.engine import Engine

    with errors():
        experiment = resolve(recipe, settings, seed, tiny)
        name = f"{recipe}-tiny" if tiny else recipe
        folder = out or Path("runs") / name / f"seed-{experiment.seed}"
        outcome = Engine(experiment, folder, resume=resume, time_limit=time_limit, cpu=cpu).train()
    console.quiet = int(os.environ.get("RANK", "0")) > 0  # one voice among many processes
    if outcome.result is None:
        leave_stopped(outcome, "the same command with --resume")
    print_result(outcome.result)
    console.print(f"files: {outcome.folder}")


@app.command("eval")
def eval_command(run: Annotated[Path, typer.Argument(help="A run's folder.")], cpu: Cpu = False) -> None:
    """Evaluate the model of a run on the recipe's test set."""
    from orchid.report.runs import load_run

    with errors():
        metrics = load_run(run, cpu=cpu).evaluate()
    for name, value in metrics.items():
        console.print(f"{name}  {value:.4f}")


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="The folder of runs and picture. [default: runs/demo]")] = None,
    tiny: Tiny = False,
) -> None:
    """Train Orchid, its static control and attention on associative recall, and show what was learned."""
    from orchid.report.demo import run_demo

    folder = out or Path("runs") / ("demo-tiny" if tiny else "demo")
    with errors():
        stopped = run_demo(folder, console, tiny=tiny)
    if stopped is not None:
        leave_stopped(stopped, "the same command")


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="The folder of kept results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Where RESULTS.md goes, and the README whose table is kept.")] = Path(),
) -> None:
    """Render RESULTS.md and the README's table from the kept results."""
    from orchid.report.tables import write_report

    with errors():
        for path in write_report(results, out):
            console.print(f"wrote {path}")


@bench.command()
def runtime(
    lengths: Annotated[str, typer.Option(help="Sequence lengths, comma separated.")] = "512,1024,2048,4096,8192",
    d_model: Annotated[int, typer.Option(help="Channels.")] = 256,
    batch: Annotated[int, typer.Option(help="Sequences.")] = 1,
    mixers: Annotated[str, typer.Option(help="Mixers, comma separated. [default: all]")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
    cpu: Cpu = False,
) -> None:
    """Time the mixers, forward and forward + backward, against attention in the same run."""
    from orchid.bench.runtime import parse_lengths, run_benchmark

    with errors():
        names = [name.strip() for name in mixers.split(",") if name.strip()] or None
        run_benchmark(console, parse_lengths(lengths), d_model, batch, names, json_file, cpu=cpu)


def print_result(result: dict[str, Any]) -> None:
    """Print the metrics of a finished run."""
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items())
    console.print(f"{result['recipe']}  {metrics}  {result['steps']} steps in {result['seconds']:.0f} s")
