"""Finished runs, read back."""

from pathlib import Path

from orchid.recipes import get_recipe
from orchid.train.config import Experiment, replace_settings
from orchid.train.engine import Engine
from orchid.train.run_folder import RunFolder


def load_run(path: Path, *, cpu: bool = False) -> Engine:
    """Return the engine of a run with its trained weights, ready to evaluate."""
    config = RunFolder(path).read_config()
    experiment: Experiment = get_recipe(config["recipe"]).build()
    replace_settings(experiment, config)
    engine = Engine(experiment, path, resume=True, cpu=cpu)
    engine.load()
    engine.model.eval()
    return engine
