"""The ``orchid`` command line."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from orchid.files import check_folder
from orchid.recipes import get_recipe, match_recipes, resolve_recipe
from orchid.train.config import Experiment
from orchid.train.data import DATA, wanted_arguments

app = typer.Typer(
    help="Orchid: data-dependent convolution for sequence modeling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
app.add_typer(bench, name="bench")
# A file or a pipe has no width of its own.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)

Recipe = Annotated[str, typer.Argument(help="A recipe's name, as `orchid list` shows it.")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: a.b=value. Repeatable.")]
Data = Annotated[Path | None, typer.Option(help="The folder of the data: task.data.", show_default=f"that in {DATA}")]
Tiny = Annotated[bool, typer.Option("--tiny", help="The recipe's small twin, which runs in seconds.")]
Patterns = Annotated[list[str], typer.Argument(help="Recipes, or patterns such as 'recall/v20-*'.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard too.")]
Limit = Annotated[float | None, typer.Option(help="Minutes after which to stop, resumable.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")]
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


def meta_model(experiment: Experiment) -> Any:
    """Return the experiment's model without its memory."""
    import torch

    with torch.device("meta"):
        return experiment.build().build_model()


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
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the trials and choices here.")] = None,
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
    from orchid.train.data import check_data
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


@app.command()
def fetch(
    name: Annotated[
        str,
        typer.Argument(help="c4 (allenai/c4, English, streamed), glue (nyu-mll/glue) or cifar10 (uoft-cs/cifar10)."),
    ],
    out: Annotated[Path, typer.Option(help="The folder of the files.")],
    documents: Annotated[int, typer.Option(help="Of c4: how many, from the first on.")] = 1_000_000,
) -> None:
    """Bring data from the Hugging Face hub into a folder, as the other commands read it; again, it goes on."""
    from rich.progress import Progress

    from orchid.ops.checks import check_choice
    from orchid.tasks.hub import fetch_c4, fetch_cifar10, fetch_glue

    with errors(), Progress(console=console) as bar:
        check_choice("NAME", name, ("c4", "glue", "cifar10"))
        check_folder("--out", out)
        task = bar.add_task(name, total=documents if name == "c4" else None)
        if name == "c4":
            found = fetch_c4(out, documents, progress=lambda done: bar.update(task, completed=done))
            if found < documents:
                console.print(f"the stream ended: {found:,} of {documents:,} documents")
        else:
            bring = fetch_glue if name == "glue" else fetch_cifar10
            bring(out, progress=lambda own: bar.update(task, description=own))
    console.print(f"files: {out}")


@app.command()
def tokenize(
    source: Annotated[Path, typer.Argument(help="A folder of .txt or .jsonl files, plain, .gz or .xz.")],
    tokenizer: Annotated[Path, typer.Option(help="A folder with tokenizer.json.")],
    out: Annotated[Path, typer.Option(help="The folder of the shards.")],
) -> None:
    """Tokenise text into shards for pre-training; the same command again goes on, or finds that nothing changed."""
    from rich.progress import Progress

    from orchid.tasks.shards import build_shards

    with errors(), Progress(console=console) as bar:
        task = bar.add_task("tokenizing", total=None)

        def show(path: Path, count: int, done: int, total: int) -> None:
            bar.update(task, description=f"{path.name}: {count:,} documents", completed=done, total=total)

        check_folder("--out", out)
        shards = build_shards(source, tokenizer, out, progress=show)
    kept = sum(entry["documents"] for entry in shards.entries)
    dropped = sum(entry["duplicates"] for entry in shards.entries)
    console.print(f"{shards.tokens:,} tokens of {kept:,} documents, {dropped:,} duplicates dropped\nfiles: {out}")


@app.command()
def glue(
    start: Annotated[Path, typer.Argument(help="A pre-trained model's folder, with its tokenizer.")],
    data: Annotated[Path, typer.Option(envvar=DATA, help="The folder of the tasks: DATA/CoLA/train.tsv and so on.")],
    out: Annotated[Path, typer.Option(help="The folder of the runs: OUT/TASK/seed-N.")],
    tasks: Annotated[str, typer.Option(help="Tasks, comma separated.", show_default="all eight")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds, comma separated.")] = "0",
    large: Annotated[bool, typer.Option("--large", help="The paper's settings for the 254M model.")] = False,
    pooling: Annotated[
        str, typer.Option(help="Classify by cls or mean.", show_default="the paper's for each task")
    ] = "",
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Fine-tune a pre-trained model on GLUE; the same command again skips what is done."""
    from orchid.report.glue import glue_experiments, glue_table, remarks, run_glue
    from orchid.tasks.glue_data import GLUE
    from orchid.train.grid import parse_numbers

    with errors():
        check_folder("--out", out)
        names = [name.strip() for name in tasks.split(",") if name.strip()] or list(GLUE)
        planned = glue_experiments(
            start, data, out, names, parse_numbers("--seeds", seeds, int), large=large, tiny=tiny, pooling=pooling
        )
        for experiment, folder in planned:
            for remark in remarks(experiment, folder):
                console.print(f"{experiment.task.name}, seed {experiment.seed}: {remark}", markup=False)
        stopped = run_glue(planned, cpu=cpu)
        glue_table(planned, out, console)
    if stopped is not None:
        leave_stopped(stopped, "the same command")


def say_if_unfinished(engine: Any) -> None:
    """Say which step a model is of, where it is not that of a finished run."""
    if not engine.finished:
        trained = "nothing is trained yet" if engine.step == 0 else "the run has no finished model"
        notes = Console(stderr=True, highlight=False, soft_wrap=True)
        notes.print(f"checkpoint of step {engine.step} of {engine.config.steps}: {trained}", markup=False)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a pre-training run.")],
    out: Annotated[Path, typer.Option(help="The folder of the Hugging Face model.")],
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer's folder, copied beside the model.")] = None,
) -> None:
    """Write the model of a pre-training run as a Hugging Face folder with a model card, for from_pretrained."""
    from orchid.report.export import export_run

    with errors():
        check_folder("--out", out)
        say_if_unfinished(export_run(run, out, tokenizer))
    console.print(f"files: {out}")


@app.command("eval")
def eval_command(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    data: Annotated[Path | None, typer.Option(help="Of images: a folder of your own, DATA/CLASS/image.")] = None,
    cpu: Cpu = False,
) -> None:
    """Evaluate the model of a run on the recipe's test set, or on a folder of your own images.

    Where the data the run was trained on is not there any more, ORCHID_DATA names it.
    """
    from orchid.report.runs import evaluate_folder, evaluate_run, load_run

    with errors():
        engine = load_run(run, cpu=cpu)
        say_if_unfinished(engine)
        metrics = evaluate_run(engine) if data is None else evaluate_folder(engine, data)
    if data is not None:
        console.print(f"predictions: {run / 'own_predictions.tsv'}")
    for name, value in metrics.items():
        console.print(f"{name}  {value:.4f}")


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="The folder of runs and picture.", show_default="runs/demo")] = None,
    tiny: Tiny = False,
) -> None:
    """Train Orchid, its static control and attention on associative recall, and show what was learned."""
    from orchid.report.demo import run_demo

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


@bench.command()
def runtime(
    lengths: Annotated[str, typer.Option(help="Comma separated.", show_default="the paper's, fewer on a CPU")] = "",
    d_model: Annotated[int | None, typer.Option(help="Channels.", show_default="768, 256 on a CPU")] = None,
    batch: Annotated[int, typer.Option(help="Sequences, with --lengths.")] = 1,
    mixers: Annotated[str, typer.Option(help="Mixers, comma separated.", show_default="all that are installed")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
    cpu: Cpu = False,
) -> None:
    """Time every mixer and backend, forward and forward + backward, against attention in the same run."""
    from orchid.bench.runtime import parse_lengths, run_benchmark

    with errors():
        run_benchmark(
            console,
            lengths=parse_lengths(lengths) if lengths else None,
            d_model=d_model,
            batch=batch,
            mixers=[name.strip() for name in mixers.split(",") if name.strip()] or None,
            json_file=json_file,
            cpu=cpu,
        )


@bench.command()
def training(
    recipes: Patterns,
    settings: Setting = None,
    data: Data = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Time the training steps of recipes, and the share of making their batches."""
    from orchid.bench.training import run_training_benchmark

    with errors():
        names = [recipe.name for recipe in match_recipes(recipes)]
        run_training_benchmark(console, names, settings or [], json_file, cpu=cpu, tiny=tiny, data=data)


@bench.command()
def models(
    families: Annotated[str, typer.Option(help="bert, vit, comma separated.")] = "bert,vit",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Time each by torch.compile too: minutes more.")] = False,
    cpu: Cpu = False,
) -> None:
    """Time training steps of whole models (forward and backward) beside the same with attention."""
    from orchid.bench.models import run_models_benchmark

    with errors():
        names = [name.strip() for name in families.split(",") if name.strip()]
        run_models_benchmark(console, names, json_file, cpu=cpu, compiled=compiled)


def print_result(result: dict[str, Any]) -> None:
    """Print the metrics of a finished run."""
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items())
    console.print(f"{result['recipe']}  {metrics}  {result['steps']} steps in {result['seconds']:.0f} s")
