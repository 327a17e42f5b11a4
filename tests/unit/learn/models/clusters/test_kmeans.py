"""KMeans as a user meets it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.compressive.tables import simulated_mixture
from threadpoolctl import threadpool_info, threadpool_limits

import dpsketch as dps
from dpsketch.errors import QueryError
from planted_clusters import (
    CENTRES,
    COLUMNS,
    FOURIER,
    ONE_BIT,
    ROWS,
    SHARES,
    SPREAD,
    STRUCTURED,
    SUBSAMPLED,
    Released,
    matrix,
    planted,
)


@pytest.fixture(scope="module")
def model(view: dps.View) -> dps.KMeans:
    return dps.KMeans(2).fit(view)


def test_centres_are_in_the_users_units_largest_first(model: dps.KMeans) -> None:
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 0.15
    assert np.abs(model.weights_ - SHARES).max() < 0.02
    assert model.converged_
    assert 0 < model.goodness_of_fit_ < 1.5


def test_standard_errors_are_of_the_size_of_the_errors(released: Released) -> None:
    """Over releases with more noise, so that noise is most of the error."""
    ratios = []
    for _ in range(3):
        model = dps.KMeans(2).fit(released(FOURIER, 0.2))
        ratios.append((model.cluster_centers_ - CENTRES) / model.cluster_centers_stderr_)
    assert 0.3 < np.sqrt(np.mean(np.square(ratios))) < 2.0


def test_a_fit_uses_one_thread_of_linear_algebra(view: dps.View) -> None:
    """With two, ten clusters took five times as long."""
    seen = []

    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2):
        dps.KMeans(2).fit(view, progress=lambda _: seen.append(threads()))
        assert threads() == {2}
    assert seen[0] == {1}


def test_rows_are_assigned_to_the_nearest_centre(model: dps.KMeans) -> None:
    table = planted(2)
    label = (np.asarray(table["label"]) == "y").astype(int)
    assert np.mean(model.predict(table) == label) > 0.995
    assert np.array_equal(model.predict(matrix(table)), model.predict(pa.table(table)))
    assert np.array_equal(model.transform(matrix(table)).argmin(1), model.predict(table))
    assert model.score(matrix(table)) == pytest.approx(-(model.transform(table).min(1) ** 2).sum())


def test_points_of_the_paper_find_the_clusters_too(released: Released) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        coarse = dps.Fourier(("a", "b", "c"), size=48, radii=(1, 8))
        model = dps.KMeans(2, method="clompr").fit(released(coarse))
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 1.0
    assert np.isnan(model.cluster_centers_stderr_).all()


@pytest.mark.parametrize("kind", [dps.Fourier, dps.OneBitFourier])
def test_points_find_clusters_from_frequencies_of_their_width(released: Released, kind: Any) -> None:
    """Radii of about one over the clusters' deviation, 0.05 of the bounds: also from one-bit sums, whose higher
    harmonics points do not explain.
    """
    widths = kind(("a", "b", "c"), size=60, kernel="gaussian", width=0.05 * 3**0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        model = dps.KMeans(2, method="clompr").fit(released(widths))
    table = matrix(planted())
    assert relative_error(model.cluster_centers_, table) < 1.02


def relative_error(centres: Any, table: Any) -> float:
    """Sum of squared distances over that of the true centres, in widths of the bounds."""
    sums = []
    for each in (centres, CENTRES):
        scaled = (table[:, None, :] - each) / [20, 20, 40]
        sums.append((scaled**2).sum(2).min(1).sum())
    return float(sums[0] / sums[1])


def test_the_run_whose_sums_are_nearest_counts() -> None:
    """More runs never fit worse, as they begin alike; on these sums, single runs end in different places."""
    view = mixture_view("isotropic", 4, 8, 10_000, 1.0)
    fits = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        for runs in (1, 2, 4, 8):
            fits[runs] = dps.KMeans(4, "clompr", n_init=runs).fit(view).goodness_of_fit_
        singles = {dps.KMeans(4, "clompr", seed, n_init=1).fit(view).goodness_of_fit_ for seed in range(4)}
    assert fits[1] >= fits[2] >= fits[4] >= fits[8]
    assert fits[8] < fits[1]
    assert len(singles) > 1


def test_an_interrupt_keeps_the_best_run(released: Released) -> None:
    shares: list[float] = []

    def interrupt(share: float) -> None:
        shares.append(share)
        if len(shares) == 2:
            raise KeyboardInterrupt

    view = released(FOURIER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        model = dps.KMeans(2, "clompr", n_init=5).fit(view, progress=interrupt)
        again = dps.KMeans(2, "clompr", n_init=2).fit(view)
    assert shares == [0.2, 0.4]
    assert not model.converged_
    assert np.array_equal(model.cluster_centers_, again.cluster_centers_)


def test_a_fit_that_the_noise_does_not_explain_is_told(released: Released) -> None:
    few = dps.Fourier(("a", "b", "c"), size=6, radii=(2, 40))  # too few sums for more atoms
    with pytest.warns(dps.FitWarning, match=r"poor fit: \d+% of the .* per degree of freedom\)\.\nHint: try more"):
        dps.KMeans(1).fit(released(few, 10.0))


def test_clusters_that_noise_has_moved_are_told() -> None:
    """Rows·ε of 100 for four clusters in eight columns: sums are fitted as well as their noise allows, or, in one
    of thirty releases, the search itself fails, and this is told.
    """
    moved, failed = (
        r"noise has moved the centres, .* by about \d+%\.\nHint: ask for fewer",
        "as far from it as their noise",
    )
    with pytest.warns(dps.FitWarning, match=f"{moved}|{failed}"):
        dps.KMeans(4).fit(mixture_view("isotropic", 4, 8, 10_000, 0.01))


def test_tight_clusters_of_few_frequencies_and_little_budget_are_told() -> None:
    with pytest.warns(dps.FitWarning, match="raises squared distances"):
        dps.KMeans(4).fit(mixture_view("0.01", 4, 8, 100_000, 0.02))


def view_of(table: pa.Table, columns: Any, epsilon: float, clusters: int) -> dps.View:
    schema = dps.Schema.from_dict({"privacy": {"rows": len(table)}, "columns": columns})
    budget = dps.Budget(epsilon)
    raw = dps.accumulate(
        table, schema, dps.Recipe.clusters(schema, rows=len(table), budget=budget, n_clusters=clusters)
    )
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))


def mixture_view(kind: str, clusters: int, dimension: int, rows: int, epsilon: float) -> dps.View:
    generator = np.random.default_rng(5)
    mixture = simulated_mixture(kind, clusters, dimension, generator)
    points = np.clip(mixture.drawn(rows, generator), mixture.low, mixture.high)
    columns = {f"c{j}": {"kind": "number", "lower": mixture.low, "upper": mixture.high} for j in range(dimension)}
    return view_of(pa.table({f"c{j}": points[:, j] for j in range(dimension)}), columns, epsilon, clusters)


@pytest.mark.parametrize("map_", [SUBSAMPLED, ONE_BIT, STRUCTURED], ids=["subsampled", "one bit", "hadamard"])
def test_other_fourier_sums_find_the_clusters(released: Released, map_: Any) -> None:
    view = released(map_, 3.0)
    for centres in (dps.KMeans(2).fit(view).cluster_centers_, dps.GaussianMixture(2).fit(view).means_):
        assert np.abs((centres - CENTRES) / SPREAD).max() < 0.3


def test_more_atoms_than_clusters_where_one_is_not_enough(view: dps.View) -> None:
    """One cluster of two planted ones: its centre is the mean of all."""
    model = dps.KMeans(1).fit(view)
    assert model._atoms.count > 1
    assert np.abs((model.cluster_centers_[0] - SHARES @ CENTRES) / SPREAD).max() < 0.15


def test_an_interrupt_keeps_the_best_so_far(view: dps.View) -> None:
    shares: list[float] = []

    def interrupt(share: float) -> None:
        shares.append(share)
        if len(shares) == 1:
            raise KeyboardInterrupt

    with pytest.warns(dps.FitWarning, match="interrupted; this is the best fit so far"):
        model = dps.KMeans(2).fit(view, progress=interrupt)
    assert np.abs((model.cluster_centers_ - CENTRES) / SPREAD).max() < 0.2
    assert not model.converged_


def test_progress_ends_at_one(view: dps.View) -> None:
    shares: list[float] = []
    dps.KMeans(2).fit(view, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_bad_parameters_and_tables_are_refused(view: dps.View, model: dps.KMeans) -> None:
    with pytest.raises(QueryError, match="n_clusters must be a whole number from 1 to 1000, got 0 instead"):
        dps.KMeans(0).fit(view)
    with pytest.raises(QueryError, match="method must be one of gaussian, clompr, got 'x' instead"):
        dps.KMeans(2, method="x").fit(view)
    with pytest.raises(QueryError, match="X must have 3 columns: a, b, c"):
        model.predict(np.zeros((2, 2)))
    with pytest.raises(QueryError, match="this KMeans is not fitted"):
        dps.KMeans(2).predict(np.zeros((2, 3)))
    with pytest.raises(QueryError, match="n_init must be a whole number from 1 to 10000, got 0 instead"):
        dps.KMeans(2, "clompr", n_init=0).fit(view)
    expected = {"n_clusters": 3, "method": "gaussian", "random_state": 5, "n_init": 10, "columns": None}
    assert dps.KMeans(3, random_state=5).get_params() == expected


def test_transformed_columns_and_dates_come_back_in_their_units() -> None:
    random = np.random.default_rng(0)
    which = random.random(ROWS) < 0.4
    days = np.where(which, 3000.0, 1000.0) + 100 * random.normal(size=ROWS)
    table = pa.table(
        {
            "money": np.exp(np.where(which, 6.0, 2.0) + 0.3 * random.normal(size=ROWS)),
            "day": np.datetime64("2000-01-01") + days.astype("timedelta64[D]"),
        }
    )
    columns = {
        "money": {"kind": "number", "lower": 0.5, "upper": 2000, "transform": "log"},
        "day": {"kind": "datetime", "lower": "2000-01-01", "upper": "2012-01-01"},
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    budget = dps.Budget(2.0)
    raw = dps.accumulate(table, schema, dps.Recipe.clusters(schema, rows=ROWS, budget=budget, n_clusters=2))
    view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))
    model = dps.KMeans(2).fit(view)
    assert np.log(model.cluster_centers_[:, 0]) == pytest.approx([2.0, 6.0], abs=0.1)
    assert model.cluster_centers_[:, 1] - 10957 == pytest.approx([1000, 3000], abs=40)  # days from 1970 to 2000
    mixture = dps.GaussianMixture(2, "diag").fit(view)
    assert mixture.means_[:, 0] == pytest.approx([2.0, 6.0], abs=0.1)
    assert np.sqrt(mixture.covariances_) == pytest.approx(np.array([[0.3, 100], [0.3, 100]]), rel=0.3)
    for fitted in (model, mixture):
        clusters = fitted.to_table()
        assert clusters.columns == ("cluster", "weight", "money", "day")
        assert [answer.value for answer in clusters["money"]] == pytest.approx(np.exp([2.0, 6.0]), rel=0.2)
        first = clusters[0]["day"]
        assert abs(first.value - np.datetime64("2002-09-27")) < np.timedelta64(40, "D")
        assert np.timedelta64(0) < first.stderr < np.timedelta64(60, "D")
        assert str(clusters.to_pandas()["day"].dtype) == "datetime64[us, UTC]"
    assert model.to_table()[0]["weight"] == model.weights_[0]
    assert mixture.to_table()[0]["weight"].stderr == mixture.weights_stderr_[0]


def test_a_plot_is_a_png_file(model: dps.KMeans, tmp_path: Path) -> None:
    model.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(QueryError, match="not fitted"):
        dps.KMeans(2).plot(tmp_path / "b.png")


def test_the_recipe_takes_numbers_and_sizes_from_public_facts() -> None:
    wider = dps.Schema.from_dict({"columns": COLUMNS | {"d": {"kind": "number", "lower": 0, "upper": 1}}})
    recipe = dps.Recipe.clusters(wider, rows=10**6, budget=dps.Budget(0.001), n_clusters=5)
    count, fourier = (part.map for part in recipe.parts)
    assert isinstance(count, dps.Count)
    assert isinstance(fourier, dps.Fourier)
    assert fourier.columns == ("a", "b", "c", "d")  # not the category
    assert fourier.size == 2 * 5 * 4
    assert "label" in COLUMNS
