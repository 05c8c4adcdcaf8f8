"""``orchid bench``: speed and memory."""

from pathlib import Path
from typing import Annotated

import typer

from orchid.cli.app import Cpu, Data, Patterns, Setting, Tiny, app, console, errors
from orchid.recipes import match_recipes

bench = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)
app.add_typer(bench, name="bench")


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
