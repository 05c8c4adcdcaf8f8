"""What is kept under a folder of results: runs and benchmarks, by the tables they go into."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchid.report.markdown import Run

# The folder of runs that were trained through the fused kernels.
KERNELS = "kernels"


@dataclass
class Results:
    """What is kept under a folder of results."""

    runs: list[Run] = field(default_factory=list)
    benchmarks: list[dict[str, Any]] = field(default_factory=list)
    tuning: list[dict[str, Any]] = field(default_factory=list)
    training: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    fused: list[Run] = field(default_factory=list)  # the same recipes, trained through the kernels
    mlm: list[Run] = field(default_factory=list)
    vision: list[Run] = field(default_factory=list)
    glue: dict[str, list[Run]] = field(default_factory=dict)  # by the pre-trained model: their folder's name


def load_results(folder: Path) -> Results:
    """Return what is kept under ``folder``."""
    results = Results()
    for path in sorted(folder.rglob("*.json")):
        try:
            data = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged and cannot be read ({error})") from None
        if "rows" in data:
            results.benchmarks.append(data)
        elif "training" in data:
            results.training.append(data)
        elif "models" in data:
            results.models.append(data)
        elif "tuning" in data:
            results.tuning += data["tuning"]
        elif "recipe" in data:
            if data["recipe"].startswith("recall/"):
                (results.fused if path.parent.name == KERNELS else results.runs).append(data)
            elif data["recipe"].startswith("bert/mlm-"):
                results.mlm.append(data)
            elif data["recipe"].startswith("bert/glue-"):
                results.glue.setdefault(path.parent.name, []).append(data)
            elif data["recipe"].startswith("vision/"):
                results.vision.append(data)
            else:
                raise ValueError(f"there is no table for results of recipe {data['recipe']!r}, in {path}")
        else:
            raise ValueError(f"{path} is neither the result of a run nor a benchmark")
    return results
