"""Recipes: one function per experiment, each with a small twin that runs in seconds."""

from orchid.recipes.registry import get_recipe, list_recipes, match_recipes, resolve_recipe

__all__ = ["get_recipe", "list_recipes", "match_recipes", "resolve_recipe"]
