"""Which noise a release gets, from public numbers."""

from __future__ import annotations

from fractions import Fraction
from math import expm1, log1p, sqrt

import pytest
from dp_accounting import get_sigma_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch.calibration import keeps_budget, noise_variance
from dpsketch.errors import BudgetError
from dpsketch.maps.base import BoundMap, FeatureMap
from dpsketch.maps.moments.quadratic import BoundQuadratic
from dpsketch.privacy.events import Mechanism, Noise, Release
from dpsketch.recipe.bound_recipe import BoundRecipe
from dpsketch.recipe.recipe import Only
from dpsketch.schema.relation import Relation
from map_examples import EXAMPLES, SCHEMA

COLUMNS = {
    "x": {"kind": "number", "lower": 0, "upper": 1},
    "y": {"kind": "number", "lower": 0, "upper": 1},
    "region": {"kind": "category", "values": ["north", "south"]},
}


def schema(**privacy: object) -> dps.Schema:
    return dps.Schema.from_dict({"privacy": {"rows": 1000} | privacy, "columns": COLUMNS})


ROWS = schema()
REPLACED = schema(relation="replace-one")
COUNT, HISTOGRAM = dps.Count(), dps.Histogram(bins=8)
FOURIER = dps.Fourier(columns=["x", "y"], size=50)
BUNDLE = dps.Recipe([dps.Part(COUNT, 0.1), dps.Part(HISTOGRAM, 0.4), dps.Part(FOURIER, 0.5)])


def one(map_: object, share: float = 1.0, **options: object) -> dps.Recipe:
    return dps.Recipe([dps.Part(map_, share)], **options)  # type: ignore[arg-type]


def event(recipe: dps.Recipe, budget: dps.Budget, facts: dps.Schema = ROWS, mechanism: str = "auto") -> Release:
    return recipe.bind(facts).calibrated(budget, mechanism)


def test_fourier_sums_get_discs_one_bit_ones_a_cube_and_second_moments_a_ball() -> None:
    budget = dps.Budget(0.5)
    assert event(one(FOURIER), budget).noises == (Noise(Mechanism.DISC, 32769, Fraction(2 * 32769)),)
    assert event(one(dps.OneBitFourier(size=50)), budget).noises == (Noise(Mechanism.CUBE, 1, Fraction(2)),)
    moments = one(dps.SecondMoments(columns=["x", "y"]))
    assert event(moments, budget).noises == (Noise(Mechanism.BALL, 32767**2, Fraction(2 * 32767**2)),)
    assert event(one(COUNT), budget).noises == (Noise(Mechanism.LAPLACE, 1, Fraction(2)),)


def test_a_disc_has_a_quarter_of_laplaces_variance() -> None:
    (bound,) = one(FOURIER).bind(ROWS).maps
    disc, laplace = (event(one(FOURIER), dps.Budget(1.0), mechanism=name).noises[0] for name in ("auto", "laplace"))
    m = 50
    assert noise_variance(disc, bound) / noise_variance(laplace, bound) == pytest.approx(
        (m + 0.5) * (m + 1) / (4 * m**2), rel=1e-3
    )


def test_few_of_many_features_keep_laplace() -> None:
    """The disc does not shrink with the features that a mask leaves: it is better from half of them on."""
    few, most = (one(dps.Subsampled(dps.Fourier(columns=["x"], size=100), size)) for size in (20, 50))
    assert event(few, dps.Budget(1.0)).noises[0].mechanism is Mechanism.LAPLACE
    assert event(most, dps.Budget(1.0)).noises[0].mechanism is Mechanism.LAPLACE
    whole = one(dps.Subsampled(dps.Fourier(columns=["x"], size=100), 100))
    assert event(whole, dps.Budget(1.0)).noises[0].mechanism is Mechanism.DISC


def test_delta_makes_gaussian_noise_where_it_is_less() -> None:
    budget = dps.Budget(1.0, 1e-6)
    assert event(one(COUNT), budget).noises[0].mechanism is Mechanism.LAPLACE
    assert event(one(FOURIER), budget).noises[0].mechanism is Mechanism.GAUSSIAN
    forced = event(one(COUNT), budget, mechanism="gaussian").noises[0]
    assert float(forced.scale) == pytest.approx(4.224679, rel=1e-6)


def test_race_with_a_thousand_rows_needs_a_deviation_below_133_7() -> None:
    race = one(dps.Race(columns=["x"], rows=1000, width=100))
    (noise,) = event(race, dps.Budget(1.0, 1e-6)).noises
    assert noise.mechanism is Mechanism.GAUSSIAN
    assert 133.5 < noise.scale <= 133.7


def test_gaussian_parts_share_one_squared_budget() -> None:
    budget = dps.Budget(1.0, 1e-6)
    noises = event(BUNDLE, budget, mechanism="gaussian").noises
    ratio = 1 / get_sigma_gaussian(1.0, 1e-6)
    total = sum(2 * noise.rho for noise in noises)
    assert float(total) == pytest.approx(ratio**2, rel=1e-3)
    assert total <= Fraction(ratio**2) * Fraction(1.000001)
    for noise, share in zip(noises, (0.1, 0.4, 0.5), strict=True):
        assert float(2 * noise.rho / total) == pytest.approx(share, rel=1e-9)


def test_the_choice_is_at_least_as_good_as_either_pure_one() -> None:
    budget = dps.Budget(1.0, 1e-6)
    maps = BUNDLE.bind(ROWS).maps

    def score(noises: tuple[Noise, ...]) -> float:
        product = 1.0
        for noise, bound in zip(noises, maps, strict=True):
            product *= noise_variance(noise, bound)
        return product

    best = score(event(BUNDLE, budget).noises)
    pure = score(event(BUNDLE, dps.Budget(1.0)).noises)
    gaussian = score(event(BUNDLE, budget, mechanism="gaussian").noises)
    assert best <= min(pure, gaussian)


def test_rho_is_split_exactly_and_always_gaussian() -> None:
    budget = dps.Budget(rho=0.5)
    found = event(BUNDLE, budget)
    assert {noise.mechanism for noise in found.noises} == {Mechanism.GAUSSIAN}
    assert Fraction(1, 2) * Fraction(999999, 1000000) < found.rho <= Fraction(1, 2)


def test_a_part_that_cannot_differ_leaves_its_share_to_the_others() -> None:
    found = event(BUNDLE, dps.Budget(1.0), REPLACED)
    assert found.noises[0] == Noise(Mechanism.LAPLACE, 0, Fraction(0))
    assert sum(noise.epsilon or 0 for noise in found.noises) == 1
    assert found.noises[1].epsilon == Fraction(4, 9)


def test_replaced_rows_of_a_part_of_a_partition_may_leave_it() -> None:
    only = dps.Recipe([dps.Part(COUNT, 1.0)], only=Only("region", "north"))
    assert event(only, dps.Budget(1.0), REPLACED).noises[0].sensitivity == 1


@pytest.mark.parametrize("relation", list(Relation))
def test_units_multiply_every_sensitivity(relation: Relation) -> None:
    units = schema(unit="id", max_rows_per_unit=3, relation=relation.value)
    times = 3 if relation is Relation.ADD_REMOVE else 6
    for map_ in (HISTOGRAM, FOURIER, dps.SecondMoments(columns=["x", "y"]), dps.OneBitFourier(size=5)):
        recipe = one(map_).bind(units)
        (bound,) = recipe.maps
        single = bound.record_sensitivity(Relation.ADD_REMOVE)
        found = recipe.sensitivity(bound)
        assert (found.l1, found.l2_squared) == (times * single.l1, times**2 * single.l2_squared)
        body, alone = bound.body(relation, 3), bound.record_body(Relation.ADD_REMOVE)
        assert (body and body.radius) == (alone and times * alone.radius)
    assert event(one(COUNT), dps.Budget(1.0), units).noises[0].sensitivity == 3


def test_a_sample_by_rate_needs_less_noise_between_tables_with_one_row_more() -> None:
    sampled = one(COUNT, sampling=dps.RowSampling(rate=0.125))
    found = event(sampled, dps.Budget(1.0))
    assert found.rate == Fraction(1, 8)
    assert float(found.noises[0].epsilon or 0) == pytest.approx(log1p(8 * expm1(1)), abs=1e-9)
    assert event(sampled, dps.Budget(1.0), REPLACED).rate is None
    counted = one(COUNT, sampling=dps.RowSampling(count=10))
    assert event(counted, dps.Budget(1.0)).noises[0].epsilon == 1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BudgetError, match="Gaussian noise needs delta above 0"):
        event(one(COUNT), dps.Budget(1.0), mechanism="gaussian")
    with pytest.raises(BudgetError, match="a rho budget is spent by Gaussian noise"):
        event(one(COUNT), dps.Budget(rho=1.0), mechanism="laplace")
    with pytest.raises(BudgetError, match="mechanism must be one of auto, laplace, gaussian, got 'normal' instead"):
        event(one(COUNT), dps.Budget(1.0), mechanism="normal")


BUDGETS = st.one_of(
    st.builds(dps.Budget, st.floats(0.01, 20)),
    st.builds(dps.Budget, st.floats(0.01, 20), st.floats(1e-12, 1e-2)),
    st.builds(lambda rho: dps.Budget(rho=rho), st.floats(1e-6, 10)),
)


@settings(max_examples=60, deadline=None)
@given(budget=BUDGETS, relation=st.sampled_from(Relation), rate=st.sampled_from([None, 0.5, 0.01]), c=st.integers(1, 5))
def test_every_choice_keeps_the_budget_and_less_noise_does_not(
    budget: dps.Budget, relation: Relation, rate: float | None, c: int
) -> None:
    facts = schema(relation=relation.value, unit="id", max_rows_per_unit=c)
    sampling = None if rate is None else dps.RowSampling(rate=rate)
    found = event(dps.Recipe(BUNDLE.parts, sampling=sampling), budget, facts)
    assert keeps_budget(found)
    less = tuple(Noise(n.mechanism, n.sensitivity, n.scale * Fraction(99, 100)) for n in found.noises)
    assert not keeps_budget(Release(budget, less, found.rate))


def test_variances_of_parts_in_groups_are_those_of_a_group() -> None:
    grouped = one(dps.Grouped(FOURIER, "region"))
    (alone,), (each,) = one(FOURIER).bind(ROWS).maps, grouped.bind(ROWS).maps
    assert isinstance(each, BoundMap)
    noise = event(grouped, dps.Budget(1.0)).noises[0]
    assert noise.mechanism is Mechanism.DISC
    assert noise_variance(noise, each) == noise_variance(noise, alone)
    assert sqrt(noise_variance(noise, each)) < 32769 * 52


def test_a_release_must_promise_what_its_maps_need() -> None:
    bound = BUNDLE.bind(ROWS)
    for budget in (dps.Budget(1.0), dps.Budget(1.0, 1e-6), dps.Budget(rho=0.5)):
        honest = event(BUNDLE, budget)
        assert bound.promised(honest)
        assert not BoundRecipe(REPLACED, BUNDLE, bound.maps).promised(honest), "sensitivities of another relation"
        for place, noise in enumerate(honest.noises):
            half = Noise(
                noise.mechanism, noise.sensitivity // 2, noise.scale / 2 if noise.sensitivity > 1 else Fraction(0)
            )
            noises = (*honest.noises[:place], half, *honest.noises[place + 1 :])
            assert not bound.promised(Release(budget, noises))


COUNTING = [each for each in EXAMPLES if not getattr(each, "pool", False) and each.length(SCHEMA)]


@pytest.mark.parametrize("kind", COUNTING, ids=str)
def test_only_certified_bounds_may_be_a_little_short(kind: FeatureMap) -> None:
    """Exact sensitivities allow nothing less, not even by one; certified ones of another machine may differ."""
    bound = kind.bind(SCHEMA)
    recipe = BoundRecipe(SCHEMA, dps.Recipe([dps.Part(kind, 1.0)]), (bound,))
    [noise] = recipe.calibrated(dps.Budget(rho=0.5)).noises
    for sensitivity, fine in ((noise.sensitivity, True), (noise.sensitivity - 1, bound.certified)):
        release = Release(dps.Budget(rho=0.5), (Noise(noise.mechanism, sensitivity, noise.scale),))
        assert recipe.promised(release) == fine
    inner = getattr(bound, "inner", bound)
    assert bound.certified == isinstance(inner, BoundQuadratic)
