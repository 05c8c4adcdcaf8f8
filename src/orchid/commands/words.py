"""The scores of GLUE without a model, kept as those of a model are."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orchid.files import write_json
from orchid.tasks.glue import examples_digest
from orchid.tasks.glue_data import GLUE, find_files, read_examples, score
from orchid.tasks.words import RECIPE, predictions
from orchid.train.environment import commit, hardware


def score_words(name: str, data: Path) -> dict[str, Any]:
    """Return the result of a task's training set on its development set, the mean over MNLI's two."""
    spec, began = GLUE[name], time.perf_counter()
    train, dev = find_files(data, spec)
    held = [read_examples(path, spec) for path in dev]
    found = predictions(spec, read_examples(train, spec), held)
    scores = [
        score(spec.metric, predicted, np.array([example.label for example in examples]))
        for predicted, examples in zip(found, held, strict=True)
    ]
    files = {"train": train.name, "dev": [path.name for path in dev]}
    return {
        "recipe": RECIPE,
        "config": {"recipe": RECIPE, "task": {"name": name, **files, "digest": examples_digest(data, spec)}},
        "seed": 0,
        "metrics": {f"dev/{spec.metric}": float(np.mean(scores))},
        "paper": {f"dev/{spec.metric}": spec.paper},
        "seconds": round(time.perf_counter() - began, 2),
        "hardware": hardware(torch.device("cpu")),
        "torch": torch.__version__,
        "commit": commit(),
    }


def keep_words(names: list[str], data: Path, out: Path) -> dict[str, float]:
    """Write the result of every task to OUT/TASK.json; return the scores."""
    results = {name: score_words(name, data) for name in names}
    out.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        write_json(out / f"{name.lower()}.json", result)
    return {name: result["metrics"][f"dev/{GLUE[name].metric}"] for name, result in results.items()}
