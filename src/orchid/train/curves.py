"""A run's learning curves as a picture, for those who would rather look than read."""

from orchid.files import atomic
from orchid.train.run_folder import RunFolder

# What a metric of a task that belongs in the picture may be called.
SCORES = ("accuracy", "guess", "f1", "matthews", "spearman")

FEW = 20  # points that are drawn as such: one by itself has no line


def draw_curves(folder: RunFolder) -> None:
    """Draw the training loss and every test metric over the steps into the run's curves.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    history = folder.history()
    names = list(dict.fromkeys(name for entry in history for name in entry if name.endswith(SCORES)))
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot([entry["step"] for entry in history], [entry["train/loss"] for entry in history], color="black")
    left.set(title="training loss", xlabel="step")
    for name in names:
        points = [(entry["step"], entry[name]) for entry in history if name in entry]
        right.plot(*zip(*points, strict=True), label=name, marker="o" if len(points) < FEW else None)
    right.set(title="score", xlabel="step")
    if names:
        right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.25)
    with atomic(folder.path / "curves.png") as temporary:
        figure.savefig(temporary, dpi=100, format="png")
