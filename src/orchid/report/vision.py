"""The tables of image classification, rendered from measured runs; what was not run is shown as such."""

from typing import Any

from orchid.recipes import get_recipe
from orchid.recipes.vision import IMAGENET, IMAGENETTE, ROWS
from orchid.report.markdown import Run, device, grouped, markdown_table, percent, seeds

LETTER = "vision/cifar10-paper-s-p4"
# What a set is called, its recipes in order, and the images of an epoch.
SETS = {
    "cifar10": ("CIFAR-10", [f"vision/cifar10-{key}" for key in ROWS] + [LETTER], 50_000),
    "imagenette": ("Imagenette", [f"vision/imagenette-{key}" for key in IMAGENETTE], 9469),
    "imagenet": ("ImageNet-1k", [f"vision/imagenet-{key}" for key in IMAGENET], 1_281_167),
}
AUGMENTATION = ("margin", "erasing", "mixup", "cutmix")


def vision_sections(runs: list[Run]) -> list[str]:
    """Return RESULTS.md's sections on images."""
    tables = {name: image_table(runs, name) for name in SETS}
    return [f"## {SETS[name][0]}\n\n{table}" for name, table in tables.items() if table]


def image_table(runs: list[Run], images: str, *, whole: bool = True) -> str:
    """Return the test accuracies on one set of images, in the order of the recipes; not ``whole``, of what was run.

    Runs that held out training images are for choices and have no place here. A row's runs differ in their seed alone.
    """
    _, recipes, count = SETS[images]
    found = [run for run in runs if run["recipe"] in recipes and "test/accuracy" in run["metrics"]]
    if not found:
        return ""
    lines = []
    for recipe in recipes:
        groups = grouped([run for run in found if run["recipe"] == recipe], _settings)
        lines += [_line(recipe, group, count) for group in groups or ([[]] if whole else [])]
    caption = (
        f"Test accuracy in percent, mean and range over seeds, on {device(found[0])}; the test set was evaluated once, "
        "at the end. Several runs shared the GPU: seconds in these files are not timings."
    )
    header = ["recipe", "parameters", "epochs", "augmentation", "accuracy, %", "paper", "seeds"]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run["config"].items() if key != "seed"}


def _line(recipe: str, group: list[Run], images: int) -> list[str]:
    paper = get_recipe(recipe).build().paper.get("test/accuracy")
    told = "-" if paper is None else f"{100 * paper:.1f}"
    if not group:
        return [f"`{recipe}`", "", "", "", "not run", told, ""]
    first, task = group[0], group[0]["config"]["task"]
    train = first["config"]["train"]
    epochs = round(train["steps"] * train["batch_size"] / images)
    used = ", ".join(f"{name} {task[name]:g}" for name in AUGMENTATION if task.get(name)) or "none"
    return [f"`{recipe}`", f"{first['parameters']:,}", str(epochs), used, percent(group), told, seeds(group)]
