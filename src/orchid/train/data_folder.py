"""Where an experiment's data lies: ``task.data``, for which ``--data`` is short and ORCHID_DATA stands in."""

import os
from pathlib import Path

from orchid.train.config import Experiment

DATA = "ORCHID_DATA"


def name_data(experiment: Experiment, folder: Path | None) -> None:
    """Let the task read ``folder``, or what ORCHID_DATA names if it is None and the recipe names none itself."""
    task = experiment.task
    if not hasattr(task, "data"):
        if folder is not None:
            raise ValueError(f"--data {folder}: {experiment.recipe} has no setting task.data; {_others(experiment)}")
    elif folder is not None:
        task.data = str(folder)
    elif not task.data:
        task.data = os.environ.get(DATA, "")


def find_data(experiment: Experiment) -> None:
    """Let the task of a run read what ORCHID_DATA names, if what it was trained on no longer exists."""
    if _is_gone(experiment):
        experiment.task.data = os.environ.get(DATA) or experiment.task.data


def check_data(experiment: Experiment) -> None:
    """Accept an experiment only with its data, if it reads any."""
    if getattr(experiment.task, "data", None) == "":
        raise ValueError(f"{experiment.recipe} reads a folder of data: name it by --data FOLDER, or in {DATA}")
    if _is_gone(experiment):
        raise ValueError(
            f"task.data={experiment.task.data!r} does not exist: name a folder by --data FOLDER, or in {DATA}"
        )


def explain_lost_data(experiment: Experiment, run: Path) -> str | None:
    """Return what to do about a run whose data no longer exists; None if it is there, or if it needs none."""
    if not _is_gone(experiment):
        return None
    return f"task.data={experiment.task.data!r} of {run} no longer exists: name its folder in {DATA}"


def wanted_arguments(experiment: Experiment) -> list[str]:
    """Return the arguments of ``orchid train`` that name what the experiment still lacks, with FOLDER to fill in."""
    arguments = ["--data", "FOLDER"] if getattr(experiment.task, "data", None) == "" else []
    for part, key in (("task", "train"), ("task", "valid"), ("model", "start")):
        if getattr(getattr(experiment, part), key, None) == "":
            arguments += ["--set", f"{part}.{key}=FOLDER"]
    return arguments


def _is_gone(experiment: Experiment) -> bool:
    data = getattr(experiment.task, "data", "")
    return isinstance(data, str) and bool(data) and not Path(data).exists()


def _others(experiment: Experiment) -> str:
    named = [f"--set task.{key}=FOLDER" for key in ("train", "valid") if hasattr(experiment.task, key)]
    return f"its data is named by {' and '.join(named)}" if named else "it makes its own data"
