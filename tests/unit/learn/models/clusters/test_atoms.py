"""Predictions of atoms and their derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from dpsketch.learn.estimators.fourier_sums import FourierSums, one_bit_harmonics
from dpsketch.learn.models.clusters.atoms import SHAPES, Atoms, Model
from dpsketch.numerics.arrays import Floats

RANDOM = np.random.default_rng(3)
SIZE, DIMENSION = 30, 3


def sums(one_bit: bool = False) -> FourierSums:
    harmonics = ((1, np.ones(SIZE, np.complex128)),)
    if one_bit:
        harmonics = one_bit_harmonics(np.linspace(0, 6, SIZE))
    frequencies = np.random.default_rng(1).normal(size=(SIZE, DIMENSION)) * 5
    deviations = np.linspace(0.5, 2, SIZE)
    return FourierSums(("a", "b", "c"), frequencies, np.zeros(SIZE, complex), deviations, 0.1, harmonics)


def some_atoms(shape: str) -> Atoms:
    random = np.random.default_rng(2)
    start = Atoms(random.normal(size=4), random.uniform(-0.4, 0.4, (4, DIMENSION)), random.normal(-6, 0.5, (4, 1)), 0.1)
    shaped = start.shaped("diag").shaped(shape) if shape == "full" else start.shaped(shape)
    flat = shaped.flat()
    flat[1 + 4 + 12 :] += random.normal(0, 0.2, flat[1 + 4 + 12 :].shape)
    return shaped.like(flat)


def as_real(values: np.ndarray) -> Floats:
    return np.ascontiguousarray(values).view(np.float64)


@pytest.mark.parametrize("one_bit", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_derivatives_are_those_of_the_predictions(shape: str, one_bit: bool) -> None:
    model, atoms = Model(sums(one_bit)), some_atoms(shape)
    assert atoms.shape == shape
    _, rows = model.linearised(atoms)
    flat = atoms.flat()
    for place in range(len(flat)):
        ends = []
        for step in (1e-6, -1e-6):
            moved = flat.copy()
            moved[place] += step
            ends.append(as_real(model.predicted(atoms.like(moved))))
        numeric = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(rows[place], numeric, atol=1e-6 * max(1.0, np.abs(numeric).max()))


@pytest.mark.parametrize("shape", SHAPES)
def test_predictions_are_averages_over_drawn_points(shape: str) -> None:
    model, atoms = Model(sums()), some_atoms(shape)
    points = atoms.drawn(40_000, np.random.default_rng(4))
    features = np.exp(1j * points @ model.sums.frequencies.T).mean(0) / model.sums.deviations
    expected = model.predicted(atoms) / np.exp(atoms.log_scale)
    assert np.abs(features - expected).max() < 0.02  # no point is cut off at a bound


def test_leaving_an_atom_out_costs_what_it_says() -> None:
    model, atoms = Model(sums()), some_atoms("diag")
    each = [model.chi_squared(atoms.without(place)) for place in range(atoms.count)]
    np.testing.assert_allclose(model.chi_squared_without(atoms), each)


def test_the_searchs_gradient_is_that_of_its_inner_product() -> None:
    model, along = Model(sums()), RANDOM.normal(size=(1, SIZE)) + 1j * RANDOM.normal(size=(1, SIZE))
    centre, spread = np.array([[0.1, -0.2, 0.3]]), np.array([-4.0])

    def inner(centres: Floats, spreads: Floats) -> float:
        quadratic = np.exp(spreads)[:, None] * (model.sums.frequencies**2).sum(1)
        return float((along * model._waves(centres @ model.sums.frequencies.T, quadratic).plain).real.sum())

    by_centre, by_spread = model.gradients(along, model.spherical_waves(centre, spread), spread)
    step = 1e-5
    for j in range(DIMENSION):
        aside = step * np.eye(DIMENSION)[j]
        numeric = (inner(centre + aside, spread) - inner(centre - aside, spread)) / (2 * step)
        assert by_centre[0, j] == pytest.approx(numeric, rel=1e-3, abs=1e-3)
    numeric = (inner(centre, spread + step) - inner(centre, spread - step)) / (2 * step)
    assert by_spread[0] == pytest.approx(numeric, rel=1e-3, abs=1e-3)
