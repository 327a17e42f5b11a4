"""The search for atoms, and what it says of its own fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.learn.estimators.fourier_sums import FourierSums, fourier_sums
from dpsketch.learn.models.clusters.decoder import Decoded, Decoder
from dpsketch.learn.models.clusters.places import Places
from planted_clusters import CENTRES, FOURIER, ONE_BIT, SCHEMA, SHARES, SPREAD, STRUCTURED, Released


def decoded(sums: FourierSums, count: int = 2) -> Decoded:
    return Decoder(sums, count, np.random.default_rng(0)).run()


def planted_atoms(found: Decoded, sums: FourierSums) -> tuple[np.ndarray, np.ndarray]:
    """Centres in units and weights, in the order of the planted ones."""
    centres = Places(SCHEMA, sums.columns).features(found.atoms.centres)
    order = np.argsort(centres[:, 0])
    return centres[order], found.atoms.weights[order]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("kind", ["dense", "hadamard", "one bit"])
def test_planted_clusters_are_found(released: Released, view: dps.View, kind: str, delta: float) -> None:
    maps = {"dense": FOURIER, "hadamard": STRUCTURED, "one bit": ONE_BIT}
    sums = fourier_sums(released(maps[kind], 1.0, delta).released)
    found = decoded(sums)
    centres, weights = planted_atoms(found, sums)
    assert np.abs((centres - CENTRES) / SPREAD).max() < 0.15
    assert np.abs(weights - SHARES).max() < 0.02
    assert found.converged
    assert found.fits


def test_noise_that_is_larger_than_stated_fails_the_fit(view: dps.View) -> None:
    sums = fourier_sums(view.released)
    assert decoded(sums).fits
    wrong = decoded(replace(sums, deviations=sums.deviations / 3))
    assert wrong.quality > 2
    assert not wrong.fits
    assert wrong.unexplained < 0.02
    assert wrong.useful  # the atoms are right, and what they leave is little


def test_too_few_atoms_do_not_fit(view: dps.View) -> None:
    found = decoded(fourier_sums(view.released), 1)
    assert not found.fits
    assert found.unexplained == pytest.approx(1, abs=1e-3)
    assert not found.useful


def test_the_same_sums_give_the_same_atoms(view: dps.View) -> None:
    first, second = (decoded(fourier_sums(view.released)).atoms.flat() for _ in range(2))
    assert np.array_equal(first, second)


def test_an_unknown_factor_of_all_sums_is_found(view: dps.View) -> None:
    """A count that is 10 % off, within its stated error, does not spoil the fit."""
    sums = fourier_sums(view.released)
    off = replace(sums, values=sums.values * 1.1, scale_deviation=0.1)
    found = decoded(off)
    assert np.exp(found.atoms.log_scale) == pytest.approx(1.1, abs=0.02)
    assert found.fits


def test_an_interrupt_keeps_the_best_so_far(view: dps.View) -> None:
    shares: list[float] = []

    def interrupt(share: float) -> None:
        shares.append(share)
        if len(shares) == 1:
            raise KeyboardInterrupt

    sums = fourier_sums(view.released)
    found = Decoder(sums, 2, np.random.default_rng(0), interrupt).run()
    assert found.interrupted
    assert not found.converged
    assert np.abs((planted_atoms(found, sums)[0] - CENTRES) / SPREAD).max() < 0.2
