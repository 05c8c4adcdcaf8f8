"""Finished runs, read back and put to use."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchid.recipes import get_recipe
from orchid.train.config import Experiment
from orchid.train.data_folder import explain_lost_data, find_data
from orchid.train.engine import Engine
from orchid.train.overrides import replace_settings
from orchid.train.run_folder import RunFolder


def load_run(path: Path, *, cpu: bool = False) -> Engine:
    """Return the engine of a run with its trained weights, ready to evaluate; the folder is only read."""
    experiment = read_experiment(path)
    find_data(experiment)
    with _data_in_reach(experiment, path):
        engine = Engine(experiment, path, claim=False, cpu=cpu)
    engine.load()
    engine.model.eval()
    return engine


def read_experiment(path: Path) -> Experiment:
    """Return what a run's folder holds a run of."""
    folder = RunFolder(path)
    config = folder.read_config()
    try:
        experiment = get_recipe(config["recipe"]).build()
        replace_settings(experiment, config)
        experiment.train.check()
    except ValueError as error:
        raise ValueError(f"{folder.config} is damaged, or of another version: {error}") from None
    return experiment


def evaluate_run(engine: Engine) -> dict[str, float]:
    """Return the test metrics of a run's model; its pictures, if it has any, are drawn again."""
    with _data_in_reach(engine.experiment, engine.folder.path):
        metrics = engine.evaluate()
    if engine.finished:
        engine.draw()
    return metrics


@contextmanager
def _data_in_reach(experiment: Experiment, path: Path) -> Iterator[None]:
    """Let an error about data that no longer exists say how to name another folder."""
    try:
        yield
    except (ValueError, OSError) as error:
        lost = explain_lost_data(experiment, path)
        if lost is None:
            raise
        raise ValueError(lost) from error


def evaluate_folder(engine: Engine, folder: Path) -> dict[str, float]:
    """Classify a user's own images with a trained model, into the run's folder; return the accuracy, if known."""
    from orchid.tasks.image_files import ImageFilesTask
    from orchid.tasks.vision import ImageTask

    task = engine.task
    if not isinstance(task, ImageTask | ImageFilesTask):
        raise ValueError(f"--data takes a model of images, not {engine.experiment.recipe}")
    own = task.own_images(folder)
    with engine.accelerator.autocast():
        return task.evaluate_own(engine.model, engine.accelerator.device, own, engine.folder.path)
