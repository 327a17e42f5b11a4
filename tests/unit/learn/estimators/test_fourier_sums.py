"""What a release's sums say of the characteristic function, and how well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.estimators.fourier_sums import FourierSums, fourier_sums
from dpsketch.learn.models.clusters.places import Places
from dpsketch.sketch.released import ReleasedSketch
from planted_clusters import FOURIER, ONE_BIT, SCHEMA, STRUCTURED, SUBSAMPLED, Released, planted, releases


@pytest.fixture(scope="module")
def released() -> Released:
    return releases()


def empirical(sums: FourierSums) -> Any:
    """Σ_h c_h·φ(h·ω) of the table itself."""
    points = Places(SCHEMA, sums.columns).of(planted())
    phases = points @ sums.frequencies.T
    return sum(factor * np.exp(1j * order * phases).mean(0) for order, factor in sums.harmonics)


@pytest.mark.parametrize("map_", [FOURIER, STRUCTURED], ids=["dense", "hadamard"])
def test_exact_sums_are_the_characteristic_function(released: Released, map_: Any) -> None:
    sums = fourier_sums(released(map_, float("inf")).released)
    assert np.abs(sums.values - empirical(sums)).max() < 2e-4
    assert sums.scale_deviation == 0


def test_signs_have_the_harmonics_of_a_square_wave(released: Released) -> None:
    sums = fourier_sums(released(ONE_BIT, float("inf")).released)
    left = np.abs(sums.values - empirical(sums))
    assert [order for order, _ in sums.harmonics][:4] == [1, -3, 5, -7]
    assert np.sqrt(np.mean(left**2)) < 0.01
    assert np.sqrt(np.mean(np.abs(sums.values - empirical_first(sums)) ** 2)) > 0.05


def empirical_first(sums: FourierSums) -> Any:
    points = Places(SCHEMA, sums.columns).of(planted())
    return np.exp(1j * points @ sums.frequencies.T).mean(0)


@pytest.mark.parametrize(
    ("map_", "budget"),
    [(FOURIER, (0.2, 0.0)), (FOURIER, (0.2, 1e-6)), (SUBSAMPLED, (1.0, 0.0)), (ONE_BIT, (0.2, 0.0))],
    ids=["disc", "gaussian", "subsampled", "one bit"],
)
def test_deviations_are_those_of_noise_and_sampling(released: Released, map_: Any, budget: tuple[float, float]) -> None:
    """Residuals to the exact sums of this table, but for the common factor, have noise and no sampling error."""
    sums = fourier_sums(released(map_, *budget).released)
    exact = empirical(sums)
    factor = np.vdot(exact, sums.values).real / np.vdot(exact, exact).real
    assert abs(factor - 1) < 9 * sums.scale_deviation
    left = (sums.values / factor - exact) / sums.deviations
    ratio = float(np.mean(np.abs(left) ** 2)) / 2
    assert 0.3 < ratio < 2.2


def test_some_frequencies_keep_their_own_facts(released: Released) -> None:
    sums = fourier_sums(released(ONE_BIT).released)
    low, few = sums.lowest(0.5), sums.thinned(10)
    radii = np.linalg.norm(sums.frequencies, axis=1)
    assert low.size == sums.size // 2
    assert np.linalg.norm(low.frequencies, axis=1).max() <= np.median(radii)
    assert few.size == 10
    assert np.linalg.norm(few.frequencies, axis=1).max() == radii.max()
    place = int(np.flatnonzero(sums.values == few.values[3])[0])
    for (_, all_factors), (_, own) in zip(sums.harmonics, few.harmonics, strict=True):
        assert own[3] == all_factors[place]


def test_a_release_without_fourier_sums_is_refused() -> None:
    raw = dps.accumulate(planted_table(), SCHEMA, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
    released: ReleasedSketch = dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a")
    with pytest.raises(QueryError, match=r"no Fourier sums\nHint: release with Recipe\.clusters"):
        fourier_sums(released)


def planted_table() -> Any:
    import pyarrow as pa

    return pa.table(planted())
