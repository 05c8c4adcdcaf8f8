"""Recipes by name."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from orchid.ops.checks import did_you_mean
from orchid.train.config import Experiment

FAMILIES = ("recall",)


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


def get_recipe(name: str) -> Recipe:
    """Return the recipe called ``name``."""
    recipes = list_recipes()
    if name not in recipes:
        raise ValueError(f"recipe {name!r} does not exist{did_you_mean(name, recipes)}; `orchid list` shows them all")
    return recipes[name]
