"""The tables of image classification, rendered from measured runs; what was not run is shown as such."""

from orchid.recipes.vision import IMAGENETTE, ROWS
from orchid.report.markdown import Run, device, grouped, markdown_table, percent, seeds
from orchid.tasks.vision import IMAGE_SETS

LETTER = "vision/cifar10-paper-s-p4"


def vision_sections(runs: list[Run]) -> list[str]:
    """Return RESULTS.md's sections on images."""
    sections = []
    for name, images in IMAGE_SETS.items():
        if table := image_table([run for run in runs if run["recipe"].startswith(f"vision/{name}-")], name):
            sections.append(f"## {images.title}\n\n{table}")
    return sections


def image_table(runs: list[Run], images: str, *, whole: bool = True) -> str:
    """Return the test accuracies on one set of images, in the order of the recipes; not ``whole``, of what was run."""
    if not runs:
        return ""
    keys = [f"cifar10-{key}" for key in ROWS] if images == "cifar10" else [f"imagenette-{key}" for key in IMAGENETTE]
    recipes = [f"vision/{key}" for key in keys] + ([LETTER] if images == "cifar10" else [])
    lines = []
    for recipe in recipes:
        groups = grouped([run for run in runs if run["recipe"] == recipe], _epochs)
        lines += [_line(recipe, group) for group in groups or ([[]] if whole else [])]
    where = device(runs[0])
    caption = (
        f"Test accuracy in percent, mean and range over seeds, on {where}; the test set was evaluated once, at the "
        "end. Several runs shared the GPU: seconds in these files are not timings."
    )
    header = ["recipe", "parameters", "epochs", "accuracy, %", "paper", "seeds"]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def _epochs(run: Run) -> int:
    train = run["config"]["train"]
    images = {"cifar10": 50_000, "imagenette": 9469}[run["config"]["task"]["images"]]
    return round(train["steps"] * train["batch_size"] / images)


def _line(recipe: str, group: list[Run]) -> list[str]:
    name = f"`{recipe}`"
    paper = ROWS.get(recipe.removeprefix("vision/cifar10-"), ROWS["s-p4"] if recipe == LETTER else ({}, None))[1]
    told = "-" if paper is None else f"{100 * paper:.1f}"
    if not group:
        return [name, "", "", "not run", told, ""]
    return [name, f"{group[0]['parameters']:,}", str(_epochs(group[0])), percent(group), told, seeds(group)]
