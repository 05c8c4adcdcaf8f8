"""The demo: three models learn associative recall; a table and one picture show what the paper is about."""

import math
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from orchid.commands.demo_figure import draw_demo
from orchid.recipes import get_recipe
from orchid.report.markdown import PASS, steps_to
from orchid.train.engine import Engine, Outcome

RUNS = {
    "recall/demo-orchid": "Orchid",
    "recall/demo-static": "static kernel",
    "recall/demo-attention": "attention",
}

INTRODUCTION = """\
Associative recall: a sequence of key-value pairs from a dictionary that is new in every sequence, then a key.
Which value belongs to it?   a 2  b 1  c 2  a 2 ... b ?   The model must look up b and find 1.
Three models of the same width and depth, which mix the sequence in three ways, learn it on this CPU:
  Orchid         a convolution whose kernel is computed from the sequence itself
  static kernel  the same layer with a learned kernel that is the same for every sequence
  attention      softmax attention, with learned positions and a learning rate of its own
"""


def run_demo(out: Path, console: Console, *, tiny: bool) -> Outcome | None:
    """Train what is not trained yet under ``out``, print the table and draw the picture.

    Returns the outcome of a run that was stopped before its end, or None when all is done.
    """
    console.print(INTRODUCTION, markup=False)
    # Tensors this small gain nothing from a second thread, and wait long for it where the other core is busy.
    torch.set_num_threads(1)
    results = []
    for recipe in RUNS:
        found = get_recipe(recipe)
        experiment = found.tiny() if tiny else found.build()
        outcome = Engine(experiment, out / recipe.rpartition("/")[2], resume=True, cpu=True).train()
        if outcome.result is None or outcome.stopped is not None:
            return outcome
        results.append(outcome.result)
    console.print()
    console.print(_table(results))
    picture = draw_demo(out, list(RUNS.items()))
    console.print(f"\n{_reading(results)}\n\npicture: {picture}\nruns:    {out}")
    return None


def _table(results: list[dict[str, Any]]) -> Table:
    task = results[0]["config"]["task"]
    keys = (task["vocab_size"] - 2) // 2
    title = f"recall, {task['length']} tokens, {keys} keys, {results[0]['steps']} steps"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("model", "right answers", f"steps to {PASS:.0%}", "parameters", "seconds"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for result in results:
        accuracy = f"{100 * result['metrics']['test/accuracy']:.1f} %"
        size, seconds = f"{result['parameters']:,}", f"{result['seconds']:.0f}"
        table.add_row(RUNS[result["recipe"]], accuracy, steps_to_pass(result), size, seconds)
    guess = f"{100 * results[0]['metrics']['test/best_guess']:.1f} %"
    table.add_row("best guess that only knows which values occur", guess, "-", "-", "-")
    return table


def steps_to_pass(result: dict[str, Any]) -> str:
    """Return the step of the first evaluation at or above ``PASS``, as text."""
    step = steps_to(result, PASS)
    return "not reached" if step == math.inf else f"{step:.0f}"


def _reading(results: list[dict[str, Any]]) -> str:
    """Say in words what the numbers show, whatever they are."""
    orchid, static, attention = (100 * result["metrics"]["test/accuracy"] for result in results)
    guess = 100 * results[0]["metrics"]["test/best_guess"]
    verdict = "has learned to look up" if attention > guess + 10 else "is still guessing"
    return (
        f"After the same {results[0]['steps']} steps Orchid answers {orchid:.1f} % of the queries and attention "
        f"{verdict} ({attention:.1f} %). With one kernel for all sequences the same layer comes to {static:.1f} %. "
        f"Steps to {PASS:.0%}: Orchid {steps_to_pass(results[0])}, static kernel {steps_to_pass(results[1])}."
    )
