"""The tables of image classification, rendered from measured runs; what was not run is shown as such."""

from dataclasses import asdict
from typing import Any

from orchid.recipes import get_recipe
from orchid.recipes.vision import FILES, IMAGENET, IMAGENETTE, ROWS
from orchid.report.markdown import Run, device, grouped, markdown_table, percent, seeds

LETTER = "vision/cifar10-paper-s-p4"
# What a set is called, its recipes in order, and the images of an epoch.
SETS = {
    "cifar10": ("CIFAR-10", [f"vision/cifar10-{key}" for key in ROWS] + [LETTER], 50_000),
    "imagenette": ("Imagenette", [f"vision/imagenette-{key}" for key in (*IMAGENETTE, FILES)], 9469),
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
        if whole and all(_other_model(recipe, group[0]) for group in groups):
            groups = [[], *groups]  # what the recipe has now was not run
        lines += [_line(recipe, group, count) for group in groups]
    trained = [run["config"]["train"] for run in found]
    once = all(train["evaluate_every"] >= train["steps"] for train in trained)
    caption = (
        f"Test accuracy in percent, mean and range over seeds, on {device(found[0])}; "
        + ("each run evaluates the test set once, at its end. " if once else "that of the last step. ")
        + "Where runs shared a device, seconds in these files are not timings."
    )
    measured = "accuracy, %" if images == "cifar10" else "top-1 (/ top-5), %"
    header = ["recipe", "parameters", "epochs", "augmentation", measured, "paper", "seeds"]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def _settings(run: Run) -> dict[str, Any]:
    config = {key: value for key, value in run["config"].items() if key != "seed"}
    return {**config, "task": {key: value for key, value in config["task"].items() if key not in ("data", "digest")}}


def _other_model(recipe: str, run: Run) -> dict[str, Any]:
    """Return the settings of a run's model that are not its recipe's."""
    own = asdict(get_recipe(recipe).build().model)
    return {key: value for key, value in run["config"]["model"].items() if key in own and value != own[key]}


def _line(recipe: str, group: list[Run], images: int) -> list[str]:
    paper = get_recipe(recipe).build().paper
    told = [f"{100 * paper[name]:.1f}" if name in paper else "-" for name in ("test/accuracy", "test/top5")]
    told = told if "test/top5" in paper else told[:1]
    if not group:
        return [f"`{recipe}`", "", "", "", "not run", " / ".join(told), ""]
    changed = _other_model(recipe, group[0]).items()
    other = ", ".join(f"default {key}" if value == {} else f"{key} {value}" for key, value in changed)
    name = f"`{recipe}`" + (f" with {other}" if other else "")
    first, task = group[0], group[0]["config"]["task"]
    train = first["config"]["train"]
    epochs = round(train["steps"] * train["batch_size"] / images)
    used = ", ".join(f"{name} {task[name]:g}" for name in AUGMENTATION if task.get(name)) or "none"
    top5 = [f" / {percent(group, 'test/top5')}"] if "test/top5" in first["metrics"] else []
    accuracy = "".join([percent(group), *top5])
    return [name, f"{first['parameters']:,}", str(epochs), used, accuracy, " / ".join(told), seeds(group)]
