"""Clusters and mixtures in named columns, and mixtures of releases that hold no sums for clusters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import FitWarning, QueryError
from planted_clusters import CENTRES, ROWS, SCHEMA, SHARES, SPREAD, matrix, planted

BUDGET = dps.Budget(2.0)
NOT_EXACT = "ignore:GaussianMixture. fitted to rows:dpsketch.FitWarning"


def opened(recipe: dps.Recipe) -> dps.View:
    raw = dps.accumulate(pa.table(planted()), SCHEMA, recipe)
    return dps.View(dps.release(raw, BUDGET, dps.Ledger("sqlite://"), "planted"))


@pytest.fixture(scope="module")
def general() -> dps.View:
    return opened(dps.Recipe.general(SCHEMA, rows=ROWS, budget=BUDGET))


@pytest.fixture(scope="module")
def grid() -> dps.View:
    return opened(dps.Recipe.synthetic(SCHEMA, rows=ROWS, budget=BUDGET, columns=["a", "b"]))


@pytest.mark.filterwarnings(NOT_EXACT)
@pytest.mark.parametrize("shape", ["spherical", "diag", "full"])
def test_a_general_release_gives_a_mixture(general: dps.View, shape: str) -> None:
    model = dps.GaussianMixture(2, shape).fit(general)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.means_ == pytest.approx(CENTRES, abs=0.4)
    assert model.weights_ == pytest.approx(SHARES, abs=0.02)
    variances = np.diagonal(model.covariances_, axis1=1, axis2=2) if shape == "full" else model.covariances_
    ratio = variances / SPREAD**2  # too large where groups of cells are wide, as the warning says
    assert ((ratio > 0.8) & (ratio < 2)).all()
    assert (model.means_stderr_ > 0).all()
    assert np.isnan(model.goodness_of_fit_)
    assert model.predict(matrix(planted(2))[:20]).tolist() == [int(x == "y") for x in planted(2)["label"][:20]]


@pytest.mark.filterwarnings(NOT_EXACT)
def test_a_grid_gives_a_mixture(grid: dps.View) -> None:
    model = dps.GaussianMixture(2, "diag").fit(grid)
    assert model.means_ == pytest.approx(CENTRES[:, :2], abs=0.3)
    assert model.covariances_ == pytest.approx(np.array([SPREAD[:2] ** 2] * 2), rel=0.3)


def test_a_mixture_of_rows_says_what_its_errors_leave_out(general: dps.View) -> None:
    with pytest.warns(
        FitWarning, match=r"fitted to rows of the joint distribution\. Cov.*\nHint: a release by Recipe\.clusters"
    ):
        dps.GaussianMixture(2).fit(general)


@pytest.mark.filterwarnings(NOT_EXACT)
@pytest.mark.parametrize("kind", [dps.KMeans, dps.GaussianMixture])
def test_columns_are_chosen_and_kept(general: dps.View, kind: type, tmp_path: Path) -> None:
    model = kind(2, columns=["c", "a"]).fit(general)
    assert list(model.feature_names_in_) == ["c", "a"]
    centres = model.cluster_centers_ if kind is dps.KMeans else model.means_
    assert centres == pytest.approx(CENTRES[:, [2, 0]], abs=0.5)
    dps.save_model(model, tmp_path / "a.model")
    again = dps.load_model(tmp_path / "a.model")
    assert again.get_params() == model.get_params()
    assert list(again.feature_names_in_) == ["c", "a"]


@pytest.mark.filterwarnings(NOT_EXACT)
@pytest.mark.parametrize("kind", [dps.KMeans, dps.GaussianMixture])
def test_columns_of_sums_and_some_of_them(view: dps.View, kind: type) -> None:
    assert list(kind(2, columns=["b", "a", "c"]).fit(view).feature_names_in_) == ["a", "b", "c"]
    some = kind(2, columns=["b", "a"]).fit(view)  # from the joint distribution that is fitted to the sums
    assert list(some.feature_names_in_) == ["b", "a"]
    centres = some.cluster_centers_ if kind is dps.KMeans else some.means_
    assert centres == pytest.approx(CENTRES[:, [1, 0]], abs=0.5)


@pytest.mark.parametrize("kind", [dps.KMeans, dps.GaussianMixture])
def test_columns_that_cannot_be_are_refused(general: dps.View, kind: type) -> None:
    for columns, message in (
        (["label"], "column 'label' is a category: clusters need numbers or dates"),
        ("a", "columns must be a list of names"),
        ([], "columns must name at least one column, each once"),
        (["a", "a"], "columns must name at least one column, each once"),
        (["z"], "no column 'z'"),
    ):
        with pytest.raises(QueryError, match=message):
            kind(2, columns=columns).fit(general)
