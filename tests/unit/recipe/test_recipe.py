"""Rules that choose sizes and shares from public numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpsketch as dps
from conftest import MIXED
from dpsketch.calibration import noise_variance
from dpsketch.errors import RecipeError
from dpsketch.recipe.count_share import LEAST_COUNT_SHARE, count_share
from dpsketch.recipe.noise_to_signal import SumsNoise
from dpsketch.recipe.tasks.clusters_task import cluster_bins, cluster_frequencies
from dpsketch.recipe.tasks.general_task import LEVELS_PART, MOST_FINE_CELLS, PAIR_SD, PURE_SHARES, pair_sizes
from dpsketch.sketch.release import planned


def ratio(schema: dps.Schema, budget: dps.Budget, rows: int, frequencies: int, share: float) -> float:
    """By the noise that a release would have."""
    share = round(share, 4)
    parts = [dps.Part(dps.Count(), share), dps.Part(dps.Fourier(size=frequencies), round(1 - share, 4))]
    return SumsNoise(schema, dps.Recipe(parts)).at(budget, rows).total


@pytest.mark.parametrize("facts", [{}, {"unit": "person", "max_rows_per_unit": 3}], ids=["rows", "units"])
@pytest.mark.parametrize(("rows", "frequencies"), [(3000, 20), (10**6, 100)])
def test_the_counts_share_minimises_the_noise_to_signal_ratio(
    rows: int, frequencies: int, facts: dict[str, object]
) -> None:
    schema = numbers(3, **facts)
    for budget in (dps.Budget(1.0), dps.Budget(0.01), dps.Budget(0.01, 1e-6), dps.Budget(rho=1e-3)):
        best = count_share(schema, rows, budget, frequencies)
        less, found, more = (ratio(schema, budget, rows, frequencies, best * each) for each in (0.7, 1, 1.4))
        assert found < min(less, more)


def test_more_rows_than_the_paper_needs_do_not_take_the_count_away() -> None:
    few, many = (count_share(numbers(3), rows, dps.Budget(1.0), 100) for rows in (10**4, 10**9))
    assert few == pytest.approx(many, rel=0.01)
    assert many > 100 * 1e9 ** (-2 / 3)


@pytest.mark.parametrize("signal", [10, 30, 100, 500])
def test_the_papers_rule_holds_where_the_sums_are_lost_in_noise(signal: float) -> None:
    """Its approximation for many rows comes out with more frequencies than rows·ε, but for Laplace noise's 2."""
    share = count_share(numbers(3), round(10 * signal), dps.Budget(0.1), 10**6)
    assert share == pytest.approx((signal**2 / 2) ** (-1 / 3), rel=0.2)


def test_a_count_without_noise_has_little_of_the_budget() -> None:
    for schema, budget in ((numbers(3, relation="replace-one"), dps.Budget(1.0)), (numbers(3), dps.Budget(math.inf))):
        assert count_share(schema, 1000, budget, 20) == LEAST_COUNT_SHARE


def test_the_counts_share_adds_up_with_the_rest() -> None:
    for rows in (10, 100, 1000, 10_000):
        recipe = dps.Recipe.clusters(numbers(3), rows=rows, budget=dps.Budget(1.0), n_clusters=2)
        assert sum(part.exact_share for part in recipe.parts) == 1


def test_the_general_recipe_takes_every_kind_of_budget() -> None:
    schema = dps.Schema.from_dict(MIXED)
    pure = dps.Recipe.general(schema, rows=50_000, budget=dps.Budget(1.0))
    gaussian = dps.Recipe.general(schema, rows=50_000, budget=dps.Budget(rho=0.5))
    assert dps.Recipe.general(schema, rows=50_000, budget=dps.Budget(1.0, delta=1e-6)) == gaussian
    assert [part.map for part in gaussian.parts if part.map.name != "triples"] == [part.map for part in pure.parts]
    assert [part.share for part in gaussian.parts] == [0.03, 0.0825, 0.2475, 0.468, 0.052, 0.12]
    assert dps.Recipe.general(schema, rows=50_000, budget=dps.Budget(math.inf)).parts[0].share == 0.03


def wide(columns: int, rows: int = 100_000) -> dps.Schema:
    number = {"kind": "number", "lower": 0, "upper": 1}
    return dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": {f"c{j}": number for j in range(columns)}})


@pytest.mark.parametrize("epsilon", [0.005, 1.0, 50.0])
@pytest.mark.parametrize("columns", [2, 9, 16])
def test_few_columns_have_all_pairs(columns: int, epsilon: float) -> None:
    """As tables, or as contrasts where the cells of tables would drown in noise."""
    assert pair_sizes(10_000, dps.Budget(epsilon), columns)[1] is None
    parts = dps.Recipe.general(wide(columns), rows=10_000, budget=dps.Budget(epsilon)).parts
    levels = [part for part in parts if isinstance(part.map, dps.Levels)]
    count, marginals, pairs, totals = (part for part in parts if part not in levels)
    assert isinstance(pairs.map, dps.Pairs)
    assert pairs.map.contrasts == (epsilon == 0.005 or (columns == 16 and epsilon == 1.0))
    shares = (0.03, 0.56, 0.29, 0.12) if pairs.map.contrasts else (0.03, 0.275, 0.575, 0.12)
    choice = sum(part.share for part in levels)
    assert (count.share, choice + marginals.share, pairs.share, totals.share) == pytest.approx(shares)
    assert choice == pytest.approx(LEVELS_PART * shares[1], abs=1e-4)
    assert (pairs.map.pool, pairs.map.most, pairs.map.columns) == (True, None, None)


def test_contrasts_are_for_little_data_and_budget() -> None:
    """More rows or more budget make tables of them; so do Gaussian noise, frequencies, and studies without privacy."""

    def contrasts(rows: int, epsilon: float, delta: float = 0.0, **options: int) -> bool:
        recipe = dps.Recipe.general(wide(9, rows), budget=dps.Budget(epsilon, delta), **options)
        return next(part.map.contrasts for part in recipe.parts if isinstance(part.map, dps.Pairs))

    found = [contrasts(rows, 0.02) for rows in (10**4, 10**5, 10**6)]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (True, False)
    assert not contrasts(10**4, 10.0)
    assert not contrasts(10**4, 0.02, frequencies=20)
    assert not contrasts(10**4, 0.02, 1e-6)
    assert not contrasts(10**4, math.inf)


@pytest.mark.parametrize(
    "budget", [dps.Budget(0.3), dps.Budget(0.1, 1e-6), dps.Budget(rho=0.001), dps.Budget(1.0, 1e-6)], ids=str
)
def test_many_columns_have_as_many_pairs_as_their_noise_allows(budget: dps.Budget) -> None:
    """The noise that a release adds is the predicted one, up to what mixing Laplace and Gaussian parts gains."""
    schema = wide(100)
    recipe = dps.Recipe.general(schema, budget=budget)
    index, pairs = next((at, part.map) for at, part in enumerate(recipe.parts) if isinstance(part.map, dps.Pairs))
    event = planned(schema, recipe, budget)
    assert event is not None
    deviation = math.sqrt(noise_variance(event.noises[index], pairs.bind(schema))) / 100_000
    every = pairs.most is None
    if budget.pure:
        assert (every, pairs.contrasts) == (True, True), "of all pairs, where noise allows not all tables"
        return
    assert deviation < 1.1 * PAIR_SD if every else deviation == pytest.approx(PAIR_SD, rel=0.1)


@pytest.mark.parametrize(
    ("columns", "rows", "budget", "there"),
    [
        (129, 5_400, dps.Budget(1.0, 1e-6), True),
        (9, 2_000, dps.Budget(1.0, 1e-6), True),
        (9, 2_000, dps.Budget(rho=0.05), True),
        (9, 2_000, dps.Budget(1.0), False),  # noise hides runs too
        (9, 50_000, dps.Budget(1.0, 1e-6), False),  # levels show enough
        (9, 2_000, dps.Budget(math.inf), False),
    ],
)
def test_runs_of_levels_follow_from_public_numbers(columns: int, rows: int, budget: dps.Budget, there: bool) -> None:
    parts = dps.Recipe.general(wide(columns, rows), budget=budget).parts
    levels = {bool(part.map.runs): part.share for part in parts if isinstance(part.map, dps.Levels)}
    assert (True in levels) == there
    assert not there or levels[True] == levels[False]
    assert sum(part.share for part in parts) == pytest.approx(1)


def test_a_tree_is_the_least() -> None:
    for columns in (17, 50, 200):
        assert pair_sizes(1000, dps.Budget(0.01), columns) == (16, columns - 1)
    assert pair_sizes(10**9, dps.Budget(10.0), 50)[1] is None
    assert pair_sizes(1000, dps.Budget(math.inf), 50)[1] is None
    few = 0.01 * 10**5 * PURE_SHARES[1] / math.sqrt(2)
    assert pair_sizes(10**5, dps.Budget(1.0), 100)[1] == int(few)


@pytest.mark.parametrize(("columns", "bins"), [(50, 128), (100, 64), (200, 16), (447, 16)])
def test_fine_tables_of_wide_tables_stay_small(columns: int, bins: int) -> None:
    schema = wide(columns, 10**9)
    recipe = dps.Recipe.general(schema, budget=dps.Budget(10.0))
    assert recipe.parts[1].map == dps.Levels(bins=bins)
    assert recipe.parts[2].map == dps.AdaptiveMarginals(bins=bins)
    assert recipe.parts[3].map.length(schema) <= MOST_FINE_CELLS


def test_too_many_columns_for_pairs_have_fourier_sums() -> None:
    parts = dps.Recipe.general(wide(448), budget=dps.Budget(1.0)).parts
    assert [part.map.name for part in parts] == ["count", "levels", "adaptive_marginals", "fourier", "totals"]


def test_columns_with_too_many_values_have_marginals_only() -> None:
    facts = wide(3).to_dict()
    facts["columns"] |= {name: {"kind": "category", "values": [str(j) for j in range(9000)]} for name in "ab"}
    schema = dps.Schema.from_dict(facts)
    recipe = dps.Recipe.general(schema, budget=dps.Budget(10.0))
    assert recipe.parts[2].map == dps.AdaptiveMarginals(bins=128)
    assert recipe.parts[3].map == dps.Pairs(("c0", "c1", "c2", "a"), 128, pool=True)
    recipe.bind(schema)


def test_frequencies_take_some_of_the_pairs_share() -> None:
    schema, budget = dps.Schema.from_dict(MIXED), dps.Budget(1.0)
    parts = dps.Recipe.general(schema, rows=100_000, budget=budget, frequencies=50).parts
    assert [(part.map.name, part.share) for part in parts[3:5]] == [("pairs", 0.4025), ("fourier", 0.1725)]
    assert sum(part.exact_share for part in parts) == 1
    assert dps.Recipe.general(schema, rows=100_000, budget=budget, frequencies=0) == dps.Recipe.general(
        schema, rows=100_000, budget=budget
    )


def test_a_single_column_has_its_marginal() -> None:
    assert dps.Recipe.general(wide(1), budget=dps.Budget(1.0)).parts == (
        dps.Part(dps.Count(), 0.05),
        dps.Part(dps.Levels(bins=128), 0.2075),
        dps.Part(dps.AdaptiveMarginals(bins=128), 0.6225),
        dps.Part(dps.Totals(), 0.12),
    )
    with pytest.raises(RecipeError, match=r"this table has only one(.|\n)*leave out frequencies"):
        dps.Recipe.general(wide(1), budget=dps.Budget(1.0), frequencies=50)


def numbers(count: int, **privacy: object) -> dps.Schema:
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(count)}
    return dps.Schema.from_dict({"privacy": privacy, "columns": columns})


def test_frequencies_for_clusters_have_twice_the_sampling_error_as_noise() -> None:
    """Against the noise that a release would have."""
    rows, schema = 10**6, numbers(10, rows=10**6)
    for budget in (dps.Budget(0.3), dps.Budget(0.05, 1e-6), dps.Budget(rho=1e-4)):
        recipe = dps.Recipe.clusters(schema, rows=rows, budget=budget, n_clusters=10)
        event = planned(schema, recipe, budget)
        (bound,) = recipe.bind(schema).maps[1:]
        deviation = math.sqrt(noise_variance(event.noises[1], bound)) / bound.grid / rows
        assert deviation == pytest.approx(2 / math.sqrt(2 * rows), rel=0.05)


def test_frequencies_for_clusters_stay_between_two_and_ten_a_cluster_and_column() -> None:
    schema = numbers(10)
    assert cluster_frequencies(schema, 10**6, dps.Budget(1e-4), 5, 10) == 2 * 5 * 10
    assert cluster_frequencies(schema, 10**6, dps.Budget(100.0), 5, 10) == 10 * 5 * 10
    assert cluster_frequencies(schema, 10**6, dps.Budget(float("inf")), 5, 10) == 10 * 5 * 10
    between = cluster_frequencies(schema, 10**6, dps.Budget(0.2), 5, 10)
    assert cluster_frequencies(numbers(10, relation="replace-one"), 10**6, dps.Budget(0.2), 5, 10) == between // 2


def test_recipes_for_clusters_are_refused_with_a_hint() -> None:
    schema = numbers(3)
    with pytest.raises(RecipeError, match=r"needs a budget\nHint: pass budget=Budget"):
        dps.Recipe.clusters(schema, rows=1000)
    with pytest.raises(RecipeError, match="n_clusters must be a whole number from 1 to 10000, got 0 instead"):
        dps.Recipe.clusters(schema, rows=1000, budget=dps.Budget(1.0), n_clusters=0)
    labels = dps.Schema.from_dict({"columns": {"a": {"kind": "boolean"}}})
    with pytest.raises(RecipeError, match="needs a column of numbers"):
        dps.Recipe.clusters(labels, rows=1000, budget=dps.Budget(1.0), n_clusters=2)
    few = (
        dps.Recipe.clusters(
            numbers(6), rows=1000, budget=dps.Budget(1.0), n_clusters=2, columns=["c1", "c2", "c3", "c5"]
        )
        .parts[1]
        .map
    )
    assert isinstance(few, dps.Fourier)
    assert few.columns == ("c1", "c2", "c3", "c5")


def test_clusters_of_few_columns_have_a_table_and_a_coarser_one() -> None:
    recipe = dps.Recipe.clusters(numbers(4), rows=10**6, budget=dps.Budget(0.1), n_clusters=10, columns=["c1", "c3"])
    count, table, coarse = (part.map for part in recipe.parts)
    assert isinstance(count, dps.Count)
    assert table == dps.Histogram(2, ("c1", "c3"), 256)
    assert coarse == dps.Histogram(2, ("c1", "c3"), 16)
    assert sum(part.exact_share for part in recipe.parts) == 1


def test_cells_for_clusters_balance_their_width_with_their_noise() -> None:
    """The squared errors that the rule adds up are within a factor of the least over all numbers of bins, for the
    noise that a release would have.
    """
    for columns, clusters, budget in ((1, 5, dps.Budget(0.1)), (2, 10, dps.Budget(0.1)), (3, 4, dps.Budget(0.1, 1e-6))):
        rows, schema = 10**5, numbers(columns, rows=10**5)
        recipe = dps.Recipe.clusters(schema, rows=rows, budget=budget, n_clusters=clusters)
        table = recipe.parts[1].map
        assert isinstance(table, dps.Histogram)
        bound = recipe.bind(schema).maps[1]
        noise = noise_variance(planned(schema, recipe, budget).noises[1], bound) / rows**2
        widths = 1 / np.arange(2, 4096)
        errors = widths**2 / 12 + noise * clusters ** (1 - 2 / columns) / (12 * widths**columns)
        best = 1 / widths[errors.argmin()]
        assert 1 <= table.bins / best < 2  # 1.4 times the best, to a power of two


def test_cells_for_clusters_follow_rows_budget_clusters_and_relation() -> None:
    def bins(count: int, budget: dps.Budget, clusters: int = 4, columns: int = 2, **privacy: object) -> int:
        return cluster_bins(numbers(columns, **privacy), count, budget, clusters, columns)[0]

    assert bins(10**6, dps.Budget(1.0)) == bins(10**9, dps.Budget(float("inf"))) == 512
    assert bins(10**9, dps.Budget(1.0), columns=1) == 4096
    assert bins(10**9, dps.Budget(1.0), columns=3) == 64
    assert bins(10**4, dps.Budget(0.1)) < bins(10**5, dps.Budget(0.1)) < bins(10**6, dps.Budget(0.1))
    assert bins(10**5, dps.Budget(0.1), relation="replace-one", rows=10**5) <= bins(10**5, dps.Budget(0.1))
    assert bins(100, dps.Budget(0.01), clusters=100) == 32  # at least 2·√100


@pytest.mark.parametrize(
    ("columns", "rows", "budget", "there"),
    [
        (7, 300_000, dps.Budget(10.0), True),
        (7, 300_000, dps.Budget(1.0), False),  # noise
        (7, 3_000_000, dps.Budget(1.0), True),
        (30, 300_000, dps.Budget(10.0), False),  # too many triples
        (2, 300_000, dps.Budget(10.0), False),
        (3, 300_000, dps.Budget(math.inf), False),
    ],
)
def test_tables_of_three_columns_follow_from_public_numbers(
    columns: int, rows: int, budget: dps.Budget, there: bool
) -> None:
    facts = {f"c{number}": {"kind": "number", "lower": 0, "upper": 1} for number in range(columns)}
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": facts})
    shares = {part.map.name: part.share for part in dps.Recipe.general(schema, rows=rows, budget=budget).parts}
    assert ("triples" in shares) == there
    assert sum(shares.values()) == pytest.approx(1)


def test_tasks_that_draw_rows_have_the_tables_of_a_general_release() -> None:
    schema, budget = wide(10, 10_000_000), dps.Budget(10.0)
    general = dps.Recipe.general(schema, rows=10_000_000, budget=budget)
    drawn = dps.Recipe.synthetic(schema, rows=10_000_000, budget=budget)
    assert "triples" in [part.map.name for part in drawn.parts]
    assert [part.exact_share for part in drawn.parts] == [part.exact_share for part in general.parts]


@pytest.mark.parametrize("most", [6, 23, 88, 119])
def test_cells_of_pair_tables_divide_those_of_three_columns(most: int) -> None:
    """Whole numbers raise the number of bins: not every number of bins of three columns fits it."""
    facts = {"whole": {"kind": "integer", "lower": 0, "upper": most}, "flag": {"kind": "boolean"}}
    facts |= {f"c{number}": {"kind": "number", "lower": 0, "upper": 1} for number in range(3)}
    schema = dps.Schema.from_dict({"privacy": {"rows": 50_000_000}, "columns": facts})
    recipe = dps.Recipe.general(schema, rows=50_000_000, budget=dps.Budget(1.0))
    bound = {part.map.name: part.map.bind(schema) for part in recipe.parts}
    for three, two in zip(bound["triples"].cells, bound["pairs"].cells, strict=True):
        assert np.isin(three.first_levels, two.first_levels).all()
