"""Clusters and mixtures from tables of cells, and k-means from a general release."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import FitWarning
from dpsketch.learn.models.clusters.places import Places
from dpsketch.learn.models.clusters.table import CellTable, released_table, table_sums
from dpsketch.learn.saved import load_model, save_model
from dpsketch.numerics.arrays import Floats

ROWS = 50_000
CENTRES = np.array([[1.0, 20.0], [3.0, 60.0], [3.2, 25.0]])
SPREAD = np.array([0.15, 3.0])
SHARES = np.array([0.5, 0.3, 0.2])
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 10},
            "label": {"kind": "category", "values": ["p", "q"]},
            "age": {"kind": "integer", "lower": 0, "upper": 99},
        },
    }
)


@cache
def drawn() -> tuple[Any, Floats]:
    random = np.random.default_rng(3)
    points = CENTRES[random.choice(3, ROWS, p=SHARES)] + SPREAD * random.normal(size=(ROWS, 2))
    points[:, 1] = np.rint(points[:, 1])
    return pa.table({"x": points[:, 0], "label": ["p"] * ROWS, "age": points[:, 1].astype(np.int64)}), points


@cache
def raw(recipe: dps.Recipe) -> dps.RawSketch:
    return dps.accumulate(drawn()[0], SCHEMA, recipe)


def view_of(recipe: dps.Recipe, epsilon: float, delta: float = 0.0) -> dps.View:
    budget = dps.Budget(epsilon, delta)
    if not budget.private:
        return dps.View(dps.release(raw(recipe), budget))
    return dps.View(dps.release(raw(recipe), budget, dps.Ledger("sqlite://"), "a"))


def clusters_view(epsilon: float, delta: float = 0.0) -> dps.View:
    return view_of(
        dps.Recipe.clusters(SCHEMA, rows=ROWS, budget=dps.Budget(epsilon, delta), n_clusters=3), epsilon, delta
    )


def cells(view: dps.View) -> CellTable:
    found = released_table(view.released)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def model() -> dps.KMeans:
    return dps.KMeans(3).fit(clusters_view(0.2))


def test_centres_are_found_from_cells(model: dps.KMeans) -> None:
    assert list(model.feature_names_in_) == ["x", "age"]
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 0.2
    assert np.abs(model.weights_ - SHARES).max() < 0.02
    assert model.converged_
    assert np.isnan(model.goodness_of_fit_)


def test_a_far_smaller_space_than_the_bounds_is_found_with_little_budget() -> None:
    """Records fill a tenth of the bounds: noise of all cells together is a third of a cluster, and a coarser table
    says which cells are empty.
    """
    model = dps.KMeans(3).fit(clusters_view(0.05))
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 0.6


def test_standard_errors_are_of_the_size_of_the_errors() -> None:
    exact = dps.KMeans(3).fit(view_of(dps.Recipe([dps.Part(dps.Histogram(2, ("x", "age"), 400), 1.0)]), np.inf))
    ratios = []
    for _ in range(4):
        model = dps.KMeans(3).fit(clusters_view(0.1))
        ratios.append((model.cluster_centers_ - exact.cluster_centers_) / model.cluster_centers_stderr_)
    assert 0.3 < np.sqrt(np.mean(np.square(ratios))) < 2.5


def test_a_fit_can_be_saved_drawn_and_asked(model: dps.KMeans, tmp_path: Path) -> None:
    save_model(model, tmp_path / "a.model")
    again = load_model(tmp_path / "a.model")
    table, points = drawn()
    assert np.array_equal(again.predict(table), model.predict(points))
    assert np.array_equal(again.cluster_centers_stderr_, model.cluster_centers_stderr_)
    assert np.isnan(again.goodness_of_fit_)
    again.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupt_keeps_the_best_so_far() -> None:
    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.warns(dps.FitWarning, match="interrupted; this is the best fit so far"):
        model = dps.KMeans(3).fit(clusters_view(1.0), interrupt)
    assert not model.converged_
    assert model.cluster_centers_.shape == (3, 2)


def test_noise_that_moves_the_centres_is_told() -> None:
    with pytest.warns(dps.FitWarning, match="noise has moved the centres"):
        dps.KMeans(12).fit(clusters_view(0.004))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (0.3, 1e-6)])
def test_mixtures_are_fitted_to_the_fourier_sums_of_a_table(epsilon: float, delta: float) -> None:
    mixture = dps.GaussianMixture(3, "diag").fit(clusters_view(epsilon, delta))
    assert np.abs((mixture.means_ - CENTRES) / SPREAD).max() < 0.3
    assert np.sqrt(mixture.covariances_) == pytest.approx(np.broadcast_to(SPREAD, (3, 2)), rel=0.4)


def test_points_of_the_paper_are_fitted_to_them_too() -> None:
    with pytest.warns(dps.FitWarning):
        model = dps.KMeans(3, method="clompr").fit(clusters_view(1.0))
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 1.5


def test_fourier_sums_of_exact_cells_are_those_of_the_records() -> None:
    """Up to what the places of records inside of cells make of them."""
    view = clusters_view(np.inf)
    sums = table_sums(view.released, cells(view), 3)
    exact = np.exp(1j * Places(SCHEMA, ("x", "age")).of(drawn()[0]) @ sums.frequencies.T).mean(0)
    assert sums.columns == ("x", "age")
    assert np.abs(sums.values - exact).max() < 2e-3
    apart = np.linalg.norm(sums.frequencies[:, None] - sums.frequencies, axis=2)[~np.eye(sums.size, dtype=bool)]
    assert apart.min() >= 2 * np.pi


@pytest.mark.parametrize("parts", [2, 3], ids=["one table", "two tables"])
def test_fourier_sums_have_the_noise_that_they_say(parts: int) -> None:
    recipe = dps.Recipe.clusters(SCHEMA, rows=ROWS, budget=dps.Budget(0.02), n_clusters=3)
    recipe, left = dps.Recipe(recipe.parts[:parts]), []
    exact = view_of(recipe, np.inf)
    truth = table_sums(exact.released, cells(exact), 3)
    for _ in range(6):
        view = view_of(recipe, 0.02)
        sums = table_sums(view.released, cells(view), 3)
        left.append(np.abs(sums.values - truth.values) / sums.deviations)
    assert np.sqrt(np.mean(np.square(left)) / 2) == pytest.approx(1, abs=0.12)


def test_clearing_keeps_the_total_and_empties_empty_space() -> None:
    table = cells(clusters_view(0.1))
    points = Places(SCHEMA, table.columns).of(drawn()[0])
    empty = (table.places > points.max(0) + 0.02).all(1)
    assert empty.sum() > 100
    assert (table.cleared >= 0).all()
    assert table.cleared.sum() == pytest.approx(table.counts.sum())
    assert table.cleared.ravel()[empty].sum() < 0.002 * ROWS
    assert np.abs(table.counts.ravel()[empty]).sum() > 0.05 * ROWS


def test_two_tables_agree_in_the_wider_cells() -> None:
    recipe = dps.Recipe.clusters(SCHEMA, rows=ROWS, budget=dps.Budget(0.1), n_clusters=3)
    view = view_of(recipe, 0.1)
    table = cells(view)
    assert table.blocks is not None
    fine, coarse = view.released.parts[1].noise_variance, view.released.parts[2].noise_variance
    left = table.blocks.summed(table.counts) - table.blocks.summed(cells(view_of(recipe, np.inf)).counts)
    cells_of_each = table.blocks.summed(np.ones(table.counts.shape))
    expected = 1 / (1 / (cells_of_each * fine) + 1 / coarse)
    inner = (slice(1, -1),) * 2  # missing values go to the first cells, with their noise
    assert np.mean(left[inner] ** 2 / expected[inner]) == pytest.approx(1, abs=0.5)


def test_a_missing_value_counts_as_the_lower_bound() -> None:
    table = pa.table({"x": [None, 5.0, 0.0], "label": ["p", "p", "q"], "age": pa.array([50, None, 3])})
    schema, recipe = SCHEMA, dps.Recipe([dps.Part(dps.Histogram(2, ("x", "age"), 8), 1.0)])
    found = released_table(dps.release(dps.accumulate(table, schema, recipe), dps.Budget(np.inf)))
    assert found is not None
    at = found.places[np.flatnonzero(found.counts.ravel())]
    assert found.counts.sum() == 3
    assert at[:, 0].tolist().count(-0.5) == 2
    assert at[:, 1].min() == -0.5


def test_any_table_of_few_numbers_will_do_and_other_tables_will_not() -> None:
    alone = view_of(dps.Recipe([dps.Part(dps.Histogram(1, ("x",), 200), 1.0)]), 1.0)
    model = dps.KMeans(2).fit(alone)
    assert model.cluster_centers_[:, 0] == pytest.approx([1.0, 3.08], abs=0.05)
    assert released_table(view_of(dps.Recipe([dps.Part(dps.Histogram(2, None, 8), 1.0)]), 1.0).released) is None


def test_a_general_release_has_clusters_too() -> None:
    view = view_of(dps.Recipe.general(SCHEMA, rows=ROWS, budget=dps.Budget(1.0)), 1.0)
    model = dps.KMeans(3).fit(view)
    assert list(model.feature_names_in_) == ["x", "age"]
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 0.5
    assert np.isfinite(model.cluster_centers_stderr_).all()
    with pytest.warns(FitWarning, match="fitted to rows of the joint distribution"):
        mixture = dps.GaussianMixture(3).fit(view)
    assert sorted(mixture.means_[:, 0]) == pytest.approx(sorted(model.cluster_centers_[:, 0]), abs=0.5)
