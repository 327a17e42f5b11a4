"""Contrasts of halved columns, and the hidden causes behind them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import multivariate_normal, norm

import dpsketch as dps
from conftest import SEED, seeded_noise
from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.latent_factors import both_below, factor_mixture, tetrachoric

ROWS, COLUMNS = 50_000, 40


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.5, 0.95])
def test_a_correlation_is_found_from_how_often_both_are_below(correlation: float) -> None:
    one, two, known = np.array([-1.0, 0.0, 0.7]), np.array([0.3, 0.0, 1.5]), np.full(3, correlation)
    below = both_below(one, two, known)
    covariance = [[1, correlation], [correlation, 1]]
    exact = [multivariate_normal.cdf([h, k], cov=covariance) for h, k in zip(one, two, strict=True)]
    np.testing.assert_allclose(below, exact, atol=1e-4)
    np.testing.assert_allclose(tetrachoric(below, one, two), known, atol=2e-3)


def test_a_mixture_has_the_dependence_of_its_contrasts_and_the_marginals() -> None:
    """One cause behind six columns of ten equal cells, with correlations of 0.49: the contrast of two columns halved
    at their medians is 2·arcsin(0.49)/π.
    """
    marginals = [Marginal(np.full(10, 0.1), np.zeros(10)) for _ in range(6)]
    halves = [np.repeat([0, 1], 5) for _ in range(6)]
    contrasts = dict.fromkeys(combinations(range(6), 2), float(2 * np.arcsin(0.49) / np.pi))
    mixture = factor_mixture(contrasts, 1e-6, marginals, halves)
    np.testing.assert_allclose(mixture.marginal(3), 0.1, atol=1e-6)
    tail = multivariate_normal.cdf([norm.ppf(0.2)] * 3, cov=0.51 * np.eye(3) + 0.49)
    lowest = [mixture.expectations(column, np.arange(10) < 2) for column in range(3)]
    assert float(mixture.weights @ np.prod(lowest, axis=0)) == pytest.approx(tail, abs=0.004)


def test_labels_of_halves_without_order_depend_on_other_columns_alike() -> None:
    marginals = [Marginal(np.full(4, 0.25), np.zeros(4)) for _ in range(6)]
    halves = [np.array([0, 1, 0, 1]) for _ in range(6)]
    mixture = factor_mixture(dict.fromkeys(combinations(range(6), 2), 0.3), 1e-6, marginals, halves)
    joint = mixture.pair(0, 1)
    np.testing.assert_allclose(joint, joint[[2, 3, 0, 1]], atol=1e-12)
    assert joint[0, 2] > joint[0, 1]


def test_columns_without_a_common_cause_stay_independent() -> None:
    random = np.random.default_rng(SEED)
    marginals = [Marginal(np.full(4, 0.25), np.zeros(4)) for _ in range(20)]
    halves = [np.repeat([0, 1], 2) for _ in range(20)]
    noise = {pair: 0.3 * random.normal() for pair in combinations(range(20), 2)}
    mixture = factor_mixture(noise, 0.3, marginals, halves)
    assert all(np.abs(mixture.pair(i, j) - 1 / 16).max() < 0.03 for i, j in combinations(range(6), 2))


def test_wide_tables_are_answered_better_than_by_independent_columns() -> None:
    """At pure ε = 1, forty columns: tables of some pairs were no better than none."""
    random = np.random.default_rng(SEED)
    causes = random.normal(size=(ROWS, 3))
    weights = random.normal(size=(3, COLUMNS))
    behind = causes @ (weights / np.linalg.norm(weights, axis=0)) * 0.8 + 0.6 * random.normal(size=(ROWS, COLUMNS))
    names = [f"x{place}" for place in range(COLUMNS)]
    columns = {name: {"kind": "number", "lower": -5, "upper": 5} for name in names}
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    budget = dps.Budget(1.0)
    table = pa.table(dict(zip(names, behind.T, strict=True)))
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=budget))
    with seeded_noise():
        view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "wide"))
    off, alone, beyond = [], [], []
    for _ in range(40):
        chosen = random.choice(COLUMNS, 3, replace=False)
        limits = random.normal(size=3)
        held = [behind[:, column] <= limit for column, limit in zip(chosen, limits, strict=True)]
        truth = float(np.logical_and.reduce(held).mean())
        where = " and ".join(f"{names[c]} <= {limit}" for c, limit in zip(chosen, limits, strict=True))
        answer = view.fraction(where)
        off.append(abs(float(answer.value) - truth))
        beyond.append(off[-1] > 3 * float(answer.stderr))
        alone.append(abs(float(np.prod([each.mean() for each in held])) - truth))
    assert np.mean(off) < np.mean(alone) / 3
    assert not any(beyond)
