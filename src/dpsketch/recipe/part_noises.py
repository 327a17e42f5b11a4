"""The noise of each part of a recipe: the inputs of `calibration`, from a schema, a recipe and its maps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsketch.calibration import PartFacts, calibrate, keeps_budget, matches
from dpsketch.maps.base import Body, BoundMap, Sensitivity
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema


def calibrated(
    schema: Schema, recipe: Recipe, maps: Sequence[BoundMap], budget: Budget, mechanism: str = "auto"
) -> Release:
    """The noise of every part of a recipe, such that all parts together keep the budget: `calibration.calibrate`."""
    parts = [
        PartFacts(
            feature_map.size // feature_map.groups,
            part_sensitivity(schema, recipe, feature_map),
            part_body(schema, recipe, feature_map),
            part.exact_share,
        )
        for part, feature_map in zip(recipe.parts, shown(maps), strict=True)
    ]
    return calibrate(parts, budget, amplifying_rate(schema, recipe), mechanism)


def shown(maps: Sequence[BoundMap]) -> tuple[BoundMap, ...]:
    """The maps that a release publishes, which may contain less than a raw sketch and have smaller sensitivities.

    A map itself always states the sensitivity of all its sums.
    """
    return tuple(feature_map.shown() for feature_map in maps)


def amplifying_rate(schema: Schema, recipe: Recipe) -> Fraction | None:
    """The rate of a sample that amplifies privacy: rows or units drawn independently, under addition or removal; else
    None.
    """
    sampling = recipe.sampling
    if sampling is None or sampling.count is not None or schema.relation is not Relation.ADD_REMOVE:
        return None
    return sampling.exact_rate


def part_sensitivity(schema: Schema, recipe: Recipe, feature_map: BoundMap) -> Sensitivity:
    """Exact sensitivity of a part for this schema's unit and relation, on the whole table or a part of it."""
    bounds = [feature_map.sensitivity(relation, schema.rows_per_unit) for relation in _relations(schema, recipe)]
    return Sensitivity(max(each.l1 for each in bounds), max(each.l2_squared for each in bounds))


def part_body(schema: Schema, recipe: Recipe, feature_map: BoundMap) -> Body | None:
    """The body that contains a part's differences for this schema's unit and relation, if its map has one."""
    bodies = [feature_map.body(relation, schema.rows_per_unit) for relation in _relations(schema, recipe)]
    return max((body for body in bodies if body is not None), key=lambda body: body.radius, default=None)


def _relations(schema: Schema, recipe: Recipe) -> tuple[Relation, ...]:
    """How the sketched rows may differ between neighbouring tables.

    An added row may replace another in a sample of fixed size, and a replaced row may enter or leave a sample or the
    selected part of the table. Source: docs/proofs/row_sampling.md.
    """
    sampling = recipe.sampling
    if schema.relation is Relation.ADD_REMOVE and (sampling is None or sampling.count is None):
        return (Relation.ADD_REMOVE,)
    if schema.relation is Relation.REPLACE_ONE and sampling is None and recipe.only is None:
        return (Relation.REPLACE_ONE,)
    return (Relation.ADD_REMOVE, Relation.REPLACE_ONE)


def promised(schema: Schema, recipe: Recipe, maps: Sequence[BoundMap], release: Release) -> bool:
    """Whether a release's noises are ones that this library adds and keep the stated budget."""
    if not release.budget.private or len(release.noises) != len(maps) or not keeps_budget(release):
        return False
    if release.rate not in (None, amplifying_rate(schema, recipe)):
        return False
    if release.budget.rho is not None and any(noise.epsilon not in (None, 0) for noise in release.noises):
        return False
    return all(
        matches(
            noise,
            part_sensitivity(schema, recipe, feature_map),
            part_body(schema, recipe, feature_map),
            feature_map.certified,
        )
        for noise, feature_map in zip(release.noises, maps, strict=True)
    )
