"""Recipes: one function per experiment, each with a small twin that runs in seconds."""

from orchid.recipes.registry import get_recipe, list_recipes, match_recipes

__all__ = ["get_recipe", "list_recipes", "match_recipes"]
