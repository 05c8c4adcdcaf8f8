"""The tables of image classification."""

from typing import Any

import pytest

from orchid.recipes import get_recipe
from orchid.report.vision import image_table, vision_sections


def run(recipe: str, accuracy: float, seed: int = 0, **task: float) -> dict[str, Any]:
    experiment = get_recipe(recipe).build()
    for key, value in task.items():
        setattr(experiment.task, key, value)
    config = {**experiment.to_dict(), "seed": seed}
    where = {"gpu": "a GPU"}
    return {
        "recipe": recipe, "config": config, "seed": seed, "metrics": {"test/accuracy": accuracy}, "parameters": 7,
        "hardware": where,
    }  # fmt: skip


def test_only_seeds_are_averaged() -> None:
    name = "vision/cifar10-s-p4"
    table = image_table([run(name, 0.84), run(name, 0.86, seed=1), run(name, 0.9, mixup=0.3)], "cifar10")
    rows = [line for line in table.splitlines() if f"`{name}`" in line]
    assert len(rows) == 2
    assert "margin 4, mixup 0.8, cutmix 1 | 85.0 (84.0 to 86.0) | 88.5 | 0, 1" in rows[0]
    assert "margin 4, mixup 0.3, cutmix 1 | 90.0 | 88.5 | 0 |" in rows[1]
    assert "| not run | 78.6 |" in table
    assert "not run" not in image_table([run(name, 0.84)], "cifar10", whole=False)


def test_runs_of_another_model_are_told_apart() -> None:
    """A recipe that has changed since: what it has now was not run."""
    name, before = "vision/cifar10-hyena-vit-p4", run("vision/cifar10-hyena-vit-p4", 0.9)
    before["config"]["model"] = {**before["config"]["model"], "options": {}}
    rows = [line for line in image_table([before], "cifar10").splitlines() if f"`{name}`" in line]
    assert len(rows) == 2
    assert rows[0].startswith(f"| `{name}` |") and "not run" in rows[0]
    assert rows[1].startswith(f"| `{name}` with default options |") and "| 90.0 |" in rows[1]


def test_top_5_beside_top_1() -> None:
    ours = run("vision/imagenet-b-p16", 0.75)
    ours["metrics"]["test/top5"] = 0.925
    table = image_table([ours], "imagenet")
    assert "top-1 (/ top-5), %" in table
    assert "| 75.0 / 92.5 | 80.2 / 94.9 |" in table and "| not run | 78.5 / 93.6 |" in table


def test_every_set_has_a_section_and_choices_have_none() -> None:
    runs = [run(f"vision/{name}", 0.5) for name in ("cifar10-s-p4", "imagenette-orchid-p12", "imagenet-b-p16")]
    titles = [section.splitlines()[0] for section in vision_sections(runs)]
    assert titles == ["## CIFAR-10", "## Imagenette", "## ImageNet-1k"]
    choice = run("vision/cifar10-s-p4", 0.5, held_out="valid")
    choice["metrics"] = {"valid/accuracy": pytest.approx(0.5)}
    assert vision_sections([choice]) == []
