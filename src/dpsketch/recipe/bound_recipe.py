"""A recipe on a schema: its maps, the stages in which a release settles them, and the noise of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dpsketch.calibration import PartFacts, calibrate, keeps_budget, matches
from dpsketch.maps.base import Body, BoundMap, Sensitivity
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import Release
from dpsketch.privacy.masks import Masks
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.recipe.recipe import Recipe


@dataclass(frozen=True, eq=False)
class BoundRecipe:
    """What accumulate, release and file reader share. `Recipe.bind` makes one; `settled` is that of what a release
    shows.
    """

    schema: Schema
    recipe: Recipe
    maps: tuple[BoundMap, ...]

    @cached_property
    def noised(self) -> tuple[BoundMap, ...]:
        """Maps with the sensitivities of what gets noise, which may be less than all that a raw sketch holds.

        A map itself always states the sensitivity of all its sums.
        """
        return tuple(each.noised() for each in self.maps)

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the maps by stages of a release: those of a stage depend on maps of earlier stages alone."""
        stages: list[tuple[int, ...]] = []
        left = set(range(len(self.maps)))
        while left:
            waiting = {one for one in left for two in left - {one} if self.maps[one].depends_on(self.maps[two])}
            if waiting == left:
                raise RuntimeError("a bug: these maps wait for each other")
            stages.append(tuple(sorted(left - waiting)))
            left = waiting
        return tuple(stages)

    def settled(self, maps: Sequence[BoundMap]) -> BoundRecipe:
        """The same with the maps that a release settled on, also in the recipe."""
        return BoundRecipe(self.schema, self.recipe.settled(maps), tuple(maps))

    def calibrated(
        self,
        budget: Budget,
        mechanism: str = "auto",
        agreed: Mapping[int, BoundMap] | None = None,
        consortium: Consortium | None = None,
    ) -> Release:
        """The noise of every part, such that all parts together keep the budget: `calibration.calibrate`.

        A part without sums, such as levels beside `agreed` cells, leaves its share to the others. With a `consortium`,
        the noise is a sum of its holders' shares.
        """
        parts = []
        for index, (part, each) in enumerate(zip(self.recipe.parts, self.noised, strict=True)):
            counts = (agreed or {}).get(index, each).size > 0
            sensitivity = self.sensitivity(each) if counts else Sensitivity(0, 0)
            facts = PartFacts(each.size // each.groups, sensitivity, self.body(each), part.exact_share)
            parts.append(replace(facts, masks=self.masks(each), groups=each.groups, consortium=consortium))
        return calibrate(parts, budget, self.amplifying_rate, mechanism)

    @property
    def amplifying_rate(self) -> Fraction | None:
        """The rate of a sample that hides who is in it: rows or units drawn independently, one more or less."""
        sampling = self.recipe.sampling
        if sampling is None or sampling.count is not None or self.schema.relation is not Relation.ADD_REMOVE:
            return None
        return sampling.exact_rate

    def sensitivity(self, feature_map: BoundMap) -> Sensitivity:
        """A map's sensitivity for this schema's unit and relation, on all of the table or a part of it."""
        bounds = [feature_map.sensitivity(relation, self.schema.rows_per_unit) for relation in self.relations]
        return Sensitivity(max(each.l1 for each in bounds), max(each.l2_squared for each in bounds))

    def body(self, feature_map: BoundMap) -> Body | None:
        """The body that holds a map's differences for this schema's unit and relation, if the map names one."""
        bodies = [feature_map.body(relation, self.schema.rows_per_unit) for relation in self.relations]
        return max((body for body in bodies if body is not None), key=lambda body: body.radius, default=None)

    def masks(self, feature_map: BoundMap) -> Masks | None:
        """The masks on which Laplace noise may count: where a unit more or less changes nothing else."""
        return feature_map.masks if self.relations == (Relation.ADD_REMOVE,) else None

    @property
    def relations(self) -> tuple[Relation, ...]:
        """How the rows that are sketched may differ between neighbouring tables.

        A row more may take another's place in a sample of a fixed count, and a row replaced may enter or leave a sample
        or the kept part of the table. Source: docs/proofs/row_sampling.md.
        """
        relation, sampling = self.schema.relation, self.recipe.sampling
        if relation is Relation.ADD_REMOVE and (sampling is None or sampling.count is None):
            return (Relation.ADD_REMOVE,)
        if relation is Relation.REPLACE_ONE and sampling is None and self.recipe.only is None:
            return (Relation.REPLACE_ONE,)
        return (Relation.ADD_REMOVE, Relation.REPLACE_ONE)

    def promised(self, release: Release) -> bool:
        """Whether a release's noises are such as this library adds, and keep the budget that it states."""
        if not release.budget.private or len(release.noises) != len(self.maps) or not keeps_budget(release):
            return False
        if release.rate not in (None, self.amplifying_rate):
            return False
        if release.budget.rho is not None and any(noise.epsilon not in (None, 0) for noise in release.noises):
            return False
        return all(
            matches(noise, self.sensitivity(each), self.body(each), each.certified, self.masks(each), each.size)
            or (each.size == 0 and noise.sensitivity == 0)  # nothing was counted
            for noise, each in zip(release.noises, self.maps, strict=True)
        )
