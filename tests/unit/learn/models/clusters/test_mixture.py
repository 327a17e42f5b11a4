"""GaussianMixture as a user meets it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from planted_clusters import CENTRES, FOURIER, SHARES, SPREAD, Released, matrix, planted


@pytest.fixture(scope="module")
def model(view: dps.View) -> dps.GaussianMixture:
    return dps.GaussianMixture(2, "diag").fit(view)


def true_score(points: np.ndarray) -> float:
    standard = (points[:, None, :] - CENTRES) / SPREAD
    logs = -0.5 * (standard**2).sum(2) - np.log(SPREAD).sum() - 1.5 * np.log(2 * np.pi) + np.log(SHARES)
    return float(np.logaddexp.reduce(logs, axis=1).mean())


@pytest.mark.parametrize("shape", ["spherical", "diag", "full"])
def test_a_fit_is_nearly_as_likely_as_the_truth(view: dps.View, shape: str) -> None:
    """The planted clusters are round in widths of the bounds but for column c, which is twice as wide in units. On a
    sample of points, a fit very close to the truth may be slightly more likely by chance.
    """
    model = dps.GaussianMixture(2, shape).fit(view)
    points = matrix(planted(2))
    assert -0.001 < true_score(points) - model.score(points) < 0.03
    assert model.covariances_.shape == ((2, 3, 3) if shape == "full" else (2, 3))


def test_components_are_in_the_users_units(model: dps.GaussianMixture) -> None:
    assert np.abs((model.means_ - CENTRES) / SPREAD).max() < 0.15
    assert np.abs(np.sqrt(model.covariances_) / SPREAD - 1).max() < 0.25
    assert np.abs(model.weights_ - SHARES).max() < 0.02


@pytest.mark.usefixtures("seeded")
def test_standard_errors_are_of_the_size_of_the_errors(released: Released) -> None:
    """Of shares: against those of the table, which is taken as it is."""
    means, weights = [], []
    first = float(np.mean(planted()["label"] == "x"))
    for _ in range(3):
        model = dps.GaussianMixture(2).fit(released(FOURIER, 0.2))
        means.append((model.means_ - CENTRES) / model.means_stderr_)
        weights.append((model.weights_ - [first, 1 - first]) / model.weights_stderr_)
    assert 0.3 < np.sqrt(np.mean(np.square(means))) < 2.0
    assert np.sqrt(np.mean(np.square(weights))) < 3.0


def test_the_width_for_a_second_release(released: Released, model: dps.GaussianMixture) -> None:
    """Every component has a deviation of 0.05 of the bounds in each of three columns."""
    assert model.kernel_width_ == pytest.approx(0.05 * 3**0.5, rel=0.05)
    small = dps.GaussianMixture(2).fit(released(FOURIER, 0.1))
    assert small.kernel_width_ == pytest.approx(0.05 * 3**0.5, rel=0.15)
    second = dps.Fourier(("a", "b", "c"), size=60, kernel="gaussian", width=small.kernel_width_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        found = dps.KMeans(2, "clompr").fit(released(second))
    assert np.abs((found.cluster_centers_ - CENTRES) / SPREAD).max() < 0.2


def test_rows_go_to_the_most_probable_component(model: dps.GaussianMixture) -> None:
    table = planted(2)
    label = (np.asarray(table["label"]) == "y").astype(int)
    assert np.mean(model.predict(table) == label) > 0.995
    shares = model.predict_proba(table)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert np.array_equal(shares.argmax(1), model.predict(table))
    assert model.score_samples(table).mean() == pytest.approx(model.score(table))


def test_bad_parameters_are_refused(view: dps.View) -> None:
    with pytest.raises(QueryError, match="covariance_type must be one of spherical, diag, full, got 'tied' instead"):
        dps.GaussianMixture(2, "tied").fit(view)
    with pytest.raises(QueryError, match="n_components must be a whole number"):
        dps.GaussianMixture(2.5).fit(view)  # type: ignore[arg-type]


def test_an_interrupt_before_all_components_are_there_is_an_interrupt(
    view: dps.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsketch.learn.models.clusters.decoder.best_atoms", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dps.GaussianMixture(2).fit(view)
