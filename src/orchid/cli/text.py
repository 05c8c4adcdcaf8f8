"""Commands of language: data from the hub, shards, fine-tuning on GLUE, models for Hugging Face."""

from pathlib import Path
from typing import Annotated

import typer

from orchid.cli.app import Cpu, Tiny, app, console, errors, leave_stopped, say_if_unfinished
from orchid.files import check_folder
from orchid.train.data_folder import DATA

PAPERS = "the paper's for each task"


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

    from orchid.tasks.tokenize_text import build_shards

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
    pooling: Annotated[str, typer.Option(help="Classify by cls or mean.", show_default=PAPERS)] = "",
    learning_rate: Annotated[float | None, typer.Option(help="At its peak.", show_default=PAPERS)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.", show_default="32")] = None,
    dropout: Annotated[float | None, typer.Option(help="Of the hidden layers.", show_default="0.1")] = None,
    mnli: Annotated[
        bool, typer.Option("--mnli/--no-mnli", help="Start RTE, MRPC and STS-B from the model fine-tuned on MNLI.")
    ] = True,
    keep: Annotated[Path | None, typer.Option(help="Copy the result of every finished run here.")] = None,
    cpu: Cpu = False,
    tiny: Tiny = False,
) -> None:
    """Fine-tune a pre-trained model on GLUE; the same command again skips what is done."""
    from orchid.commands.glue import Changes, glue_experiments, run_glue
    from orchid.commands.glue_table import glue_table, remarks
    from orchid.tasks.glue_data import GLUE
    from orchid.train.grid import parse_numbers

    with errors():
        check_folder("--out", out)
        if keep is not None:
            check_folder("--keep", keep)
            if tiny:
                raise ValueError("--keep keeps the results of recipes as they are: not with --tiny")
        names = [name.strip() for name in tasks.split(",") if name.strip()] or list(GLUE)
        numbers = parse_numbers("--seeds", seeds, int)
        changes = Changes(pooling, learning_rate, batch_size, dropout)
        planned = glue_experiments(start, data, out, names, numbers, large=large, tiny=tiny, mnli=mnli, changes=changes)
        for experiment, folder in planned:
            for remark in remarks(experiment, folder):
                console.print(f"{experiment.task.name}, seed {experiment.seed}: {remark}", markup=False)
        stopped = run_glue(planned, cpu=cpu, keep=keep)
        glue_table(planned, out, console)
    if stopped is not None:
        leave_stopped(stopped, "the same command")


@app.command("glue-words")
def glue_words(
    data: Annotated[Path, typer.Option(envvar=DATA, help="The folder of the tasks: DATA/CoLA/train.tsv and so on.")],
    out: Annotated[Path, typer.Option(help="The folder of the scores: OUT/TASK.json.")],
    tasks: Annotated[str, typer.Option(help="Tasks, comma separated.", show_default="all eight")] = "",
) -> None:
    """Score GLUE without a model, by counted words: what a fine-tuned model is to be compared with."""
    from orchid.commands.words import keep_words
    from orchid.ops.checks import check_choice
    from orchid.tasks.glue_data import GLUE

    with errors():
        check_folder("--out", out)
        names = [check_choice("--tasks", name.strip(), GLUE) for name in tasks.split(",") if name.strip()]
        for name, value in keep_words(names or list(GLUE), data, out).items():
            console.print(f"{name}: {GLUE[name].metric} {100 * value:.1f}")
    console.print(f"files: {out}")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a pre-training run.")],
    out: Annotated[Path, typer.Option(help="The folder of the Hugging Face model.")],
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer's folder, copied beside the model.")] = None,
) -> None:
    """Write the model of a pre-training run as a Hugging Face folder with a model card, for from_pretrained."""
    from orchid.commands.export import export_run

    with errors():
        check_folder("--out", out)
        say_if_unfinished(export_run(run, out, tokenizer))
    console.print(f"files: {out}")
