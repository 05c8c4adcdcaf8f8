"""Section 4.3: Orchid-ViT and its baselines on CIFAR-10, at every patch size."""

from functools import partial
from typing import Any

from orchid.recipes.registry import Recipe
from orchid.tasks.vision import Cifar10Config, ViTConfig
from orchid.train.config import Experiment, TrainConfig

IMAGES, BATCH, EPOCHS, PAPER_EPOCHS = 50_000, 512, 200, 500
SMALL, MEDIUM = 128, 220
# The paper's table, and the operator it names as future work: name, settings of the model, the paper's accuracy.
ROWS: dict[str, tuple[dict[str, Any], float | None]] = {
    "s-p4": ({}, 0.885),
    "s-p2": ({"patch_size": 2}, 0.922),
    "s-cc-p2": ({"patch_size": 2, "options": {"conditioning": "cross"}}, 0.923),
    "m-p2": ({"patch_size": 2, "d_model": MEDIUM}, 0.9333),
    "m-p1": ({"patch_size": 1, "d_model": MEDIUM}, 0.930),
    "2d-s-p4": ({"mixer": "orchid-2d"}, None),
    "2d-s-p2": ({"mixer": "orchid-2d", "patch_size": 2}, None),
    "2d-m-p2": ({"mixer": "orchid-2d", "patch_size": 2, "d_model": MEDIUM}, None),
    "vit-p4": ({"mixer": "attention", "blocks": 1}, 0.786),
    "vit-monarch-p4": ({"mixer": "attention"}, 0.790),
    "hyena-vit-p4": ({"mixer": "hyena", "blocks": 1}, 0.806),
    "m2-vit-p4": ({"mixer": "monarch"}, 0.808),
}


def _experiment(name: str, model: dict[str, Any], paper: float | None, *, to_the_letter: bool) -> Experiment:
    epochs = PAPER_EPOCHS if to_the_letter else EPOCHS
    steps = epochs * IMAGES // BATCH
    train = TrainConfig(
        steps=steps,
        batch_size=BATCH,
        learning_rate=1e-3 if to_the_letter else 2e-3,
        warmup=500,
        schedule="constant" if to_the_letter else "cosine",
        weight_decay=0.05,
        precision="bf16",
        graph=True,
        compile=True,
        log_every=100,
        evaluate_every=steps,  # the test set is touched once, at the end
        checkpoint_every=max(1, steps // 10),
    )
    measured = {} if paper is None else {"test/accuracy": paper}
    return Experiment(recipe=name, task=Cifar10Config(), model=ViTConfig(**model), train=train, paper=measured)


def _recipe(name: str, model: dict[str, Any], paper: float | None, *, to_the_letter: bool) -> Recipe:
    build = partial(_experiment, name, model, paper, to_the_letter=to_the_letter)

    def tiny() -> Experiment:
        experiment = build()
        experiment.model.d_model, experiment.model.depth, experiment.model.patch_size = 16, 1, 8
        train = experiment.train
        train.steps, train.warmup, train.batch_size, train.precision = 4, 1, 8, "no"
        train.evaluate_every, train.checkpoint_every = 4, 2
        return experiment

    config = ViTConfig(**model)
    how = f"{PAPER_EPOCHS} epochs at a constant rate, as in the paper" if to_the_letter else f"{EPOCHS} epochs, cosine"
    patch = config.patch_size
    summary = f"CIFAR-10 in patches of {patch} x {patch}, {config.mixer}, width {config.d_model}: {how}"
    return Recipe(name, summary, build, tiny)


RECIPES = [
    *(_recipe(f"vision/cifar10-{key}", model, paper, to_the_letter=False) for key, (model, paper) in ROWS.items()),
    _recipe("vision/cifar10-paper-s-p4", *ROWS["s-p4"], to_the_letter=True),
]
