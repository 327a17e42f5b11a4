"""One choice of cells for the marginals, and of groups for the pair tables or contrasts, of several sites, so that
their releases merge. The choice is that of one site's release, which is public.
"""

from __future__ import annotations

from dataclasses import replace

from dpsketch.errors import MergeError, RecipeError
from dpsketch.maps.base import BoundMap
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch


def check_source(schema: Schema, other: ReleasedSketch) -> None:
    """Refuse a sketch that no table of this schema can take groups from, whatever the recipe."""
    if not other.private:
        raise MergeError(
            "groups of a sketch marked NOT PRIVATE follow from exact sums", "take them from a private release"
        )
    if replace(schema, rows=None) != replace(other.schema, rows=None):
        raise MergeError(
            "the sketch that groups are taken from has another schema", "use one schema file at every site"
        )


def agreed_maps(bound: BoundRecipe, other: ReleasedSketch) -> dict[int, BoundMap]:
    """Map the index of each adaptive part to its map with the groups and pairs of `other`.

    Refuses what would not merge with `other`.

    Guarantee: a function of public numbers. Source: docs/proofs/release.md.
    """
    check_source(bound.schema, other)
    different = MergeError(
        "the sketch that groups are taken from has another recipe",
        "sketch the table by its recipe: dpsketch release TABLE --groups-from without --recipe, --only and "
        "--frequencies does (accumulate(table, schema, other.recipe))",
    )
    if len(bound.maps) != len(other.maps):
        raise different
    agreed: dict[int, BoundMap] = {}
    for index, (ours, theirs) in enumerate(zip(bound.maps, other.maps, strict=True)):
        if not ours.adaptive:
            continue
        try:
            agreed[index] = ours.settle_as(theirs)
        except RecipeError:  # other maps, cells, columns or number of pairs
            raise different from None
    mine = bound.settled([agreed.get(index, own) for index, own in enumerate(bound.maps)])
    if _of_any_snapshot(mine.recipe) != _of_any_snapshot(other.recipe):
        raise different
    return agreed


def _of_any_snapshot(recipe: Recipe) -> Recipe:
    only = None if recipe.only is None else replace(recipe.only, snapshot=None)
    return Recipe(recipe.parts, sampling=recipe.sampling, only=only)
