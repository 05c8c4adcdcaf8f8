"""What fine-tuning on GLUE has come to: the table of one model, for the terminal and for glue.json."""

import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orchid.commands.glue import FIRST, mnli_model, runs_under
from orchid.files import write_json
from orchid.tasks.glue_data import GLUE, find_files, is_sample
from orchid.train.config import Experiment
from orchid.train.run_folder import RunFolder


def glue_table(planned: list[tuple[Experiment, Path]], out: Path, console: Console) -> None:
    """Print every task's metric, mean and range over the seeds, and the average; keep it in OUT/glue.json.

    What earlier calls have measured of other tasks and seeds is in that file too.
    """
    measured: dict[str, dict[str, float]] = {}
    for name, folder, _ in runs_under(out):
        if (result := RunFolder(folder).read_result()) is not None:
            measured.setdefault(name, {})[folder.name] = result["metrics"][f"dev/{GLUE[name].metric}"]
    scores: dict[str, list[float]] = {}
    said: dict[str, list[str]] = {}
    for experiment, folder in planned:
        name = experiment.task.name
        if (score := measured.get(name, {}).get(folder.name)) is not None:
            scores.setdefault(name, []).append(score)
            said.setdefault(name, []).extend(remarks(experiment, folder))
    notes = {name: ", ".join(dict.fromkeys(lines)) for name, lines in said.items()}
    large = any(experiment.recipe.endswith("-large") for experiment, _ in planned)
    paper = [] if large else ["paper, 77M"]
    table = Table("task", "metric", "mean", "range", "seeds", *paper, "", box=None, padding=(0, 2, 0, 0))
    for name, values in scores.items():
        spec = GLUE[name]
        spread = f"{100 * min(values):.1f} to {100 * max(values):.1f}"
        mean = f"{100 * statistics.mean(values):.1f}"
        theirs = [] if large else [f"{100 * spec.paper:.1f}"]
        table.add_row(name, spec.metric, mean, spread, str(len(values)), *theirs, notes[name])
    console.print(table)
    means = {name: statistics.mean(values) for name, values in scores.items()}
    if means:
        console.print(f"average of {len(means)} tasks: {100 * statistics.mean(means.values()):.1f}")
        means = {name: statistics.mean(own.values()) for name, own in measured.items()}
        write_json(out / "glue.json", {"scores": measured, "means": means, "notes": notes})


def remarks(experiment: Experiment, folder: Path) -> list[str]:
    """Return what sets a run apart from the paper's, beside its start: what a table of scores has to say."""
    spec = GLUE[experiment.task.name]
    found = []
    if spec.from_mnli and experiment.model.start != str(mnli_model(folder)):
        found.append(f"not from {FIRST}")
    train, dev = find_files(Path(experiment.task.data), spec)
    if spec.name == FIRST and len(dev) == 1:
        found.append(f"{dev[0].name.split('.')[0]} alone; the paper's is the mean of two")
    if is_sample(train):
        found.append("trained on a sample")
    if any(map(is_sample, dev)):
        found.append("scored on a sample")
    return found
