"""Section 4.2: masked-language-model pre-training of Orchid-BERT, BERT and M2-BERT, and fine-tuning on GLUE."""

from collections.abc import Callable
from functools import partial
from typing import Any

from orchid.ops.checks import check_at_least
from orchid.recipes.registry import Recipe
from orchid.tasks.glue import GlueConfig, StartConfig, steps_for
from orchid.tasks.glue_data import GLUE, GlueSpec
from orchid.tasks.mlm import EncoderConfig, MaskedLMConfig
from orchid.train.config import Experiment, TrainConfig

MODELS = {"orchid": "Orchid-BERT", "bert": "BERT", "m2": "M2-BERT"}
PRESETS = {"orchid": "orchid-bert-{}", "bert": "bert-{}", "m2": "m2-bert-{}"}
RATE = 8e-4
# The paper's decay, 1e-5 a step whatever the rate, in the terms of an AdamW that multiplies it by the rate.
DECAY = 1e-5 / RATE
SMALL: dict[str, Any] = {"hidden_size": 512, "num_hidden_layers": 6}
# Rows that are cut short and padded, so that a model trained for minutes has met what fine-tuning looks like.
SHORT_SHARE = 0.25
# Of fine-tuning: the paper gives neither; BERT's own.
GLUE_BATCH, GLUE_DROPOUT = 32, 0.1
# Steps of fine-tuning between checkpoints, at least: they take longer to write than so many to take again.
KEPT_STEPS = 2000
TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2}


def _pretraining(
    name: str,
    preset: str,
    changes: dict[str, Any],
    *,
    steps: int,
    batch_size: int,
    every: int,
    length: int = 128,
    short_share: float = 0.0,
) -> Experiment:
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=RATE,
        warmup=max(1, round(0.06 * steps)),
        schedule="linear",
        weight_decay=DECAY,
        beta2=0.98,
        precision="bf16",
        graph=bool(changes),  # small ones wait for launches, large ones for products
        log_every=min(50, every),
        evaluate_every=every,
        checkpoint_every=every,
    )
    model = EncoderConfig(preset=preset, changes=dict(changes))
    task = MaskedLMConfig(length=length, short_share=short_share)
    return Experiment(recipe=name, task=task, model=model, train=train)


def _recipe(name: str, summary: str, build: Callable[[], Experiment], preset: str) -> Recipe:
    def tiny() -> Experiment:
        experiment = _pretraining(name, preset, TINY, steps=4, batch_size=8, every=2, length=16)
        experiment.task.valid_rows, experiment.task.short_share = 8, build().task.short_share
        experiment.train.precision = "no"
        return experiment

    return Recipe(name, summary, build, tiny)


def glue_training(
    spec: GlueSpec,
    examples: int,
    *,
    large: bool = False,
    batch_size: int | None = None,
    learning_rate: float | None = None,
) -> TrainConfig:
    """Return the paper's settings for a task, for a training set of some size, or others in their place.

    The paper does not give the batch size.
    """
    settings = spec.large if large else spec.base
    batch_size = GLUE_BATCH if batch_size is None else batch_size
    rate = settings.learning_rate if learning_rate is None else learning_rate
    steps = steps_for(examples, settings.epochs, check_at_least("--batch-size", batch_size, 1))
    return TrainConfig(
        steps=steps,
        batch_size=batch_size,
        learning_rate=rate,
        warmup=max(1, round(0.06 * steps)),
        schedule="linear",
        # A decoupled decay is not multiplied by the rate; AdamW's is.
        weight_decay=settings.weight_decay / (rate if settings.decoupled else 1.0),
        beta2=0.98,
        precision="bf16",
        graph=True,
        evaluate_every=(epoch := max(1, steps // settings.epochs)),
        checkpoint_every=max(epoch, KEPT_STEPS),
    )


def _glue(spec: GlueSpec, *, large: bool) -> Experiment:
    name = f"bert/glue-{spec.name.lower()}" + ("-large" if large else "")
    paper = {} if large else {f"dev/{spec.metric}": spec.paper}
    train = glue_training(spec, spec.examples, large=large)
    task = GlueConfig(name=spec.name, pooling=(spec.large if large else spec.base).pooling, dropout=GLUE_DROPOUT)
    return Experiment(recipe=name, task=task, model=StartConfig(), train=train, paper=paper)


def _glue_recipe(spec: GlueSpec, *, large: bool) -> Recipe:
    def tiny() -> Experiment:
        experiment = _glue(spec, large=large)
        experiment.task.length = 16
        train = experiment.train
        train.steps, train.warmup, train.batch_size, train.precision = 4, 1, 4, "no"
        train.evaluate_every = train.checkpoint_every = 2
        return experiment

    settings = "the 254M model" if large else "the 77M model"
    summary = f"fine-tuning on {spec.name} with the paper's settings for {settings}, from model.start"
    return Recipe(_glue(spec, large=large).recipe, summary, partial(_glue, spec, large=large), tiny)


def _recipes() -> list[Recipe]:
    recipes = []
    for key, title in MODELS.items():
        for size in ("base", "large"):
            name, preset = f"bert/mlm-{key}-{size}", PRESETS[key].format(size)
            build = partial(_pretraining, name, preset, {}, steps=70_000, batch_size=4096, every=1000)
            summary = f"{title}-{size}, masked language modelling as in the paper: 70,000 steps of 4,096 x 128"
            recipes.append(_recipe(name, summary, build, preset))
        name, preset = f"bert/mlm-{key}-small", PRESETS[key].format("base")
        sizes = {"steps": 2000, "batch_size": 256, "every": 200}
        build = partial(_pretraining, name, preset, SMALL, **sizes, short_share=SHORT_SHARE)
        summary = f"{title} of width 512 and depth 6: 2,000 steps of 256 x 128, minutes on one GPU"
        recipes.append(_recipe(name, summary, build, preset))
    return [*recipes, *(_glue_recipe(spec, large=large) for large in (False, True) for spec in GLUE.values())]


RECIPES = _recipes()
