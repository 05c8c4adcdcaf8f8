"""Recipes by name."""

import fnmatch
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from orchid.ops.checks import check_seed, did_you_mean
from orchid.train.config import Experiment
from orchid.train.data_folder import name_data
from orchid.train.overrides import apply_overrides

FAMILIES = ("recall", "bert", "vision")


@dataclass(frozen=True)
class Recipe:
    """A named experiment; ``tiny`` is its twin of a few steps, different in sizes and steps only."""

    name: str
    summary: str
    build: Callable[[], Experiment]
    tiny: Callable[[], Experiment]


def list_recipes() -> dict[str, Recipe]:
    """Return every recipe by its name."""
    recipes: dict[str, Recipe] = {}
    for family in FAMILIES:
        for recipe in importlib.import_module(f"orchid.recipes.{family}").RECIPES:
            recipes[recipe.name] = recipe
    return recipes


def match_recipes(patterns: Iterable[str]) -> list[Recipe]:
    """Return the recipes whose names match any of the patterns (``recall/v20-*``), in their order."""
    recipes, wanted = list_recipes(), set()
    for pattern in patterns:
        found = fnmatch.filter(recipes, pattern)
        if not found:
            raise ValueError(f"no recipe matches {pattern!r}{did_you_mean(pattern, recipes)} (`orchid list` shows all)")
        wanted.update(found)
    return [recipe for name, recipe in recipes.items() if name in wanted]


def get_recipe(name: str) -> Recipe:
    """Return the recipe called ``name``."""
    recipes = list_recipes()
    if name not in recipes:
        hint = did_you_mean(str(name), recipes)
        raise ValueError(f"recipe {name!r} does not exist{hint} (`orchid list` shows them all)")
    return recipes[name]


def resolve_recipe(
    name: str, settings: list[str], *, seed: int | None = None, tiny: bool = False, data: Path | None = None
) -> Experiment:
    """Return the experiment of a recipe with a user's changes.

    Args:
        name: the recipe's.
        settings: ``a.b=value``s, which come last.
        seed: in place of the recipe's.
        tiny: its small twin instead.
        data: the folder of its data; None is what ORCHID_DATA names.
    """
    recipe = get_recipe(name)
    experiment = recipe.tiny() if tiny else recipe.build()
    name_data(experiment, data)
    apply_overrides(experiment, settings)
    if seed is not None:
        experiment.seed = seed
    check_seed(experiment.seed)
    return experiment
