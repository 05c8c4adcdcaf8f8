"""``orchid bench``: speed and memory."""

from typing import Annotated

import typer

from orchid.cli.app import Cpu, Data, JsonFile, Patterns, Setting, Tiny, app, console, errors
from orchid.files import check_file
from orchid.recipes import match_recipes

bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command()
def runtime(
    lengths: Annotated[
        str | None, typer.Option(help="Comma separated.", show_default="the paper's, fewer on a CPU")
    ] = None,
    d_model: Annotated[int | None, typer.Option(help="Channels.", show_default="768, 256 on a CPU")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences, with --lengths.", show_default="1")] = None,
    mixers: Annotated[str, typer.Option(help="Mixers, comma separated.", show_default="all that are installed")] = "",
    json_file: JsonFile = None,
    cpu: Cpu = False,
) -> None:
    """Time every mixer and backend, forward and forward + backward, against attention in the same run."""
    from orchid.bench.runtime import parse_lengths, run_benchmark

    with errors():
        check_file("--json", json_file)
        if batch is not None and lengths is None:
            raise ValueError(f"--batch {batch} goes with --lengths: its own cases have batches of their own")
        run_benchmark(
            console,
            lengths=None if lengths is None else parse_lengths(lengths),
            d_model=d_model,
            batch=1 if batch is None else batch,
            mixers=[name.strip() for name in mixers.split(",") if name.strip()] or None,
            json_file=json_file,
            cpu=cpu,
        )


@bench.command()
def training(
    recipes: Patterns,
    settings: Setting = None,
    data: Data = None,
    json_file: JsonFile = None,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Time the training steps of recipes, and the share of making their batches."""
    from orchid.bench.training import run_training_benchmark

    with errors():
        check_file("--json", json_file)
        names = [recipe.name for recipe in match_recipes(recipes)]
        run_training_benchmark(console, names, settings or [], json_file, cpu=cpu, tiny=tiny, data=data)


@bench.command()
def models(
    families: Annotated[str, typer.Option(help="bert, vit, comma separated.")] = "bert,vit",
    json_file: JsonFile = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Time each by torch.compile too: minutes more.")] = False,
    cpu: Cpu = False,
) -> None:
    """Time training steps of whole models (forward and backward) beside the same with attention."""
    from orchid.bench.models import run_models_benchmark

    with errors():
        check_file("--json", json_file)
        names = [name.strip() for name in families.split(",") if name.strip()]
        run_models_benchmark(console, names, json_file, cpu=cpu, compiled=compiled)
