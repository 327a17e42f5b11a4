"""A recipe on a schema: the stages in which a release settles its maps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.calibration import noise_variance
from dpsketch.maps.base import BoundMap, NoisyPart, Sums
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.sketch.adaptive import noisy_in_stages


class Follower(BoundHistogram):
    """A histogram that a release settles after the maps in `after`, on one with as many bins as they have sums."""

    adaptive = True
    after: tuple[BoundMap, ...] = ()

    def depends_on(self, other: BoundMap) -> bool:
        return any(other is each for each in self.after)

    def settle(self, earlier: Sequence[NoisyPart], variance: float) -> BoundMap:
        self.seen = [(part.map, part.sums.tolist(), part.variance) for part in earlier]
        return SETTLED

    def coarsen(self, sums: Sums, settled: BoundMap) -> Sums:
        assert settled is SETTLED
        return sums[: settled.size]


SCHEMA = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": {"x": {"kind": "number", "lower": 0, "upper": 1}}})
SETTLED = dps.Histogram(bins=1).bind(SCHEMA)


def followers(count: int) -> list[Follower]:
    return [Follower(dps.Histogram(bins=4), SCHEMA) for _ in range(count)]


def bound(maps: Sequence[BoundMap]) -> BoundRecipe:
    recipe = dps.Recipe([dps.Part(each.description, 1 / len(maps)) for each in maps])
    return BoundRecipe(SCHEMA, recipe, tuple(maps))


def test_maps_wait_for_those_that_they_depend_on() -> None:
    last, middle, other = followers(3)
    count = dps.Count().bind(SCHEMA)
    last.after, middle.after = (middle, count), (count,)
    assert bound([last, middle, other, count]).stages == ((2, 3), (1,), (0,))
    assert bound([count, count]).stages == ((0, 1),)


def test_maps_that_wait_for_each_other_are_a_bug() -> None:
    one, two = followers(2)
    one.after, two.after = (two,), (one,)
    with pytest.raises(RuntimeError, match="a bug: these maps wait for each other"):
        bound([one, two, SETTLED]).stages  # noqa: B018


def test_a_stage_sees_the_settled_maps_and_noisy_sums_that_it_depends_on_alone() -> None:
    last, middle, other = followers(3)
    count = dps.Count().bind(SCHEMA)
    last.after, middle.after = (middle,), (count,)
    maps = [last, other, middle, count]
    exact = [np.full(each.size, 10 * place, np.int64) for place, each in enumerate(maps)]
    noises = tuple(Noise(Mechanism.LAPLACE, 1, Fraction(scale)) for scale in (1, 2, 3, 4))
    variances = [noise_variance(noise, each) for noise, each in zip(noises, maps, strict=True)]
    noised: list[int] = []

    def add_noise(place: int, settled: BoundMap, sums: Sums) -> Sums:
        noised.append(place)
        assert len(sums) == settled.size
        return sums + 1

    parts = noisy_in_stages(bound(maps), exact, Release(dps.Budget(1.0), noises), add_noise, {})
    assert noised == [1, 3, 2, 0]
    assert middle.seen == [(count, [31], variances[3])]
    assert last.seen == [(SETTLED, [21] * SETTLED.size, variances[2])], "neither the count nor exact sums"
    assert other.seen == []
    assert [part.map for part in parts] == [SETTLED, SETTLED, SETTLED, count]
    assert [part.variance for part in parts] == variances
    assert all(part.laplace for part in parts)


def test_an_agreed_map_is_not_settled() -> None:
    (one,) = followers(1)
    exact = [np.arange(one.size)]
    noisy_in_stages(bound([one]), exact, None, lambda place, settled, sums: sums, {0: SETTLED})
    assert not hasattr(one, "seen")
