"""Private linear models by other methods: posterior sampling and objective perturbation.

Features lie in [0, 1] and get a constant, so that ‖x‖² is at most their number with it; a target of a regression lies
in [-1, 1]. Everything is calibrated for adding or removing a row. Noise is drawn from the run's seed, for studies only.
"""

from __future__ import annotations

from fractions import Fraction
from math import log, log1p, sqrt
from statistics import NormalDist

import numpy as np

from benchmarks.density.baselines import with_one
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.analytic_gaussian import gaussian_deviation

SWEEPS = 300  # of the sampler of OPS
_FAILURE = 0.05  # of AdaOPS's own estimate of its error, by which it chooses its ridge


def ops(features: Floats, target: Floats, test: Floats, epsilon: float, radius: float, seed: int) -> Floats:
    """OPS (Wang, Fienberg and Smola, 2015): one sample of slopes in a ball from exp(−γ/2·Σ squares).

    A row's loss lies in 0 … B = (1 + ‖x‖·radius)²/2 everywhere in the ball, so that a sample costs γB: γ = ε/B. The
    sampler is Gibbs's, whose last state is taken for a sample.
    """
    generator = np.random.default_rng([seed, 13])
    rows = with_one(features)
    rate = epsilon / (0.5 * (1 + sqrt(rows.shape[1]) * radius) ** 2)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    products = vectors.T @ (rows.T @ target)
    slopes = _ball_sample(rate * values, rate * products, radius, generator)
    return np.asarray(with_one(test) @ (vectors @ slopes))


def _ball_sample(precisions: Floats, products: Floats, radius: float, generator: np.random.Generator) -> Floats:
    """A sample in a ball from exp(−Σ precision·θ²/2 + products·θ), by Gibbs sampling of coordinates."""
    from scipy.special import log_ndtr, ndtri_exp

    deviations = 1 / np.sqrt(np.maximum(precisions, 1e-12))
    means = products * deviations**2
    slopes = means * min(1.0, 0.99 * radius / max(float(np.linalg.norm(means)), 1e-12))
    energy = float(slopes @ slopes)
    for _ in range(SWEEPS):
        for place in range(len(slopes)):
            rest = energy - slopes[place] ** 2
            end = sqrt(max(radius**2 - rest, 0.0))
            low, high = (-end - means[place]) / deviations[place], (end - means[place]) / deviations[place]
            mirrored = low > 0  # the tail with more accuracy
            if mirrored:
                low, high = -high, -low
            first, last = float(log_ndtr(low)), float(log_ndtr(high))
            share = generator.random()
            within = last + log(share + (1 - share) * np.exp(first - last) + 1e-300)
            drawn = float(np.clip(ndtri_exp(within), low, high)) * (-1 if mirrored else 1)
            slopes[place] = np.clip(means[place] + deviations[place] * drawn, -end, end)
            energy = rest + slopes[place] ** 2
    return np.asarray(slopes)


def ada_ops(features: Floats, target: Floats, test: Floats, epsilon: float, delta: float, seed: int) -> Floats:
    """AdaOPS (Wang, 2018, algorithm 1): a sample from a Gaussian posterior with a private ridge and temperature.

    A quarter of ε goes to the smallest eigenvalue, a quarter to the size of residuals, a half to the sample; δ is in
    six parts, one for the noise and one for the tail of each of the first two, two for the sample.
    """
    generator = np.random.default_rng([seed, 14])
    rows = with_one(features)
    width = rows.shape[1]
    square = float(width)  # the largest ‖x‖²
    part, tail = delta / 6, NormalDist().inv_cdf(1 - delta / 6)
    ratio = gaussian_deviation(Fraction(epsilon) / 4, Fraction(part), 1)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    least = float(values[0]) + square * ratio * (generator.normal() - tail) - square  # a bound for the neighbour, too
    least = max(least, 0.0)
    ridge = _ada_ridge(least, square, width, epsilon, delta)
    bottom = least + ridge
    slopes = (vectors.T @ (rows.T @ target)) / (values + ridge)
    size = log(1 + sqrt(square) * float(np.linalg.norm(slopes)))
    change = log1p(square / bottom)
    residual = np.exp(size + change * ratio * (generator.normal() + tail) + change)
    rate = posterior_rate(square / bottom, float(residual), epsilon / 2, delta / 3)
    drawn = slopes + generator.normal(size=width) / np.sqrt(rate * (values + ridge))
    return np.asarray(with_one(test) @ (vectors @ drawn))


def _ada_ridge(least: float, square: float, width: int, epsilon: float, delta: float) -> float:
    """The ridge with the least bound of the error in the paper, of those for which a sample can be private."""
    tail, logs = NormalDist().inv_cdf(1 - delta / 6), log(6 / delta)
    smallest = max(2 * square * tail**2 / epsilon - least, 1e-9)  # μz²/2 is at most half of ε/2
    inner = (-1 + sqrt(1 + logs * epsilon / 2)) / logs
    first = (width / 2 + sqrt(width * log(1 / _FAILURE)) + log(1 / _FAILURE)) * logs / inner**2
    second = logs / (epsilon / 4)
    tried = smallest + np.concatenate([[0.0], np.geomspace(1e-3, 1e9, 400)])
    logs_of = np.log(first * square**2) + 2 * second * np.log1p(square / (tried + least)) - np.log(tried + least)
    return float(tried[np.argmin(np.logaddexp(logs_of, np.log(tried)))])


def posterior_rate(ratio: float, residual: float, epsilon: float, delta: float) -> float:
    """The largest γ for which a sample of N(θ̂, (γH)⁻¹) is (ε, δ)-private.

    Let a neighbour have one row (x, y) more, μ = xᵀH⁻¹x ≤ `ratio` and |y − xᵀθ̂| ≤ `residual`. The logarithm of the
    ratio of the densities is at most γr²μ/(2(1+μ)) + √(γμ)·r·z + max(μz², log(1+μ))/2 unless a normal variable exceeds
    z on either side, in both directions; every term increases with μ.
    """
    tail = NormalDist().inv_cdf(1 - delta / 2)
    left = epsilon - 0.5 * max(ratio * tail**2, log1p(ratio))
    if left <= 0:
        raise ValueError("the ridge is too small for this budget")
    quadratic, linear = 0.5 * ratio / (1 + ratio), sqrt(ratio) * tail
    root = (sqrt(linear**2 + 4 * quadratic * left) - linear) / (2 * quadratic)
    return (root / residual) ** 2


def objective_squares(
    features: Floats, target: Floats, test: Floats, epsilon: float, delta: float, radius: float, seed: int
) -> Floats:
    """Least squares by objective perturbation (Kifer, Smith and Thakurta, 2012, algorithm 1), slopes in a ball."""
    generator = np.random.default_rng([seed, 15])
    rows = with_one(features)
    square = float(rows.shape[1])
    steepest = (1 + sqrt(square) * radius) * sqrt(square)
    noise, ridge = _perturbation(rows.shape[1], steepest, square, epsilon, delta, generator)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    products = vectors.T @ (rows.T @ target - noise)
    return np.asarray(with_one(test) @ (vectors @ _in_ball(values + ridge, products, radius)))


def objective_logistic(
    features: Floats, labels: np.ndarray, test: Floats, epsilon: float, delta: float, ridge: float, seed: int
) -> Floats:
    """Scores of logistic regression by objective perturbation; `labels` are 0 and 1.

    `ridge` is a share of the rows, at least what privacy asks for.
    """
    from scipy.optimize import minimize

    generator = np.random.default_rng([seed, 16])
    rows, signs = with_one(features), 2.0 * labels - 1
    square = float(rows.shape[1])
    noise, least = _perturbation(rows.shape[1], sqrt(square), square / 4, epsilon, delta, generator)
    total = max(least, ridge)

    def loss(slopes: Floats) -> tuple[float, Floats]:
        margins = signs * (rows @ slopes)
        value = np.logaddexp(0, -margins).sum() + noise @ slopes + 0.5 * total * slopes @ slopes
        pulls = -signs / (1 + np.exp(np.clip(margins, -500, 500)))
        return float(value), rows.T @ pulls + noise + total * slopes

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    return np.asarray(with_one(test) @ found.x)


def _perturbation(
    width: int, steepest: float, curvature: float, epsilon: float, delta: float, generator: np.random.Generator
) -> tuple[Floats, float]:
    """Noise for the gradient of a sum of losses, and the ridge that it needs.

    A row moves the gradient by at most `steepest` and the determinant of the Hessian, of rank one in the row, by a
    factor of at most 1 + curvature/ridge, which gets half of ε.
    """
    if delta:  # theorem 2: the other half of ε bounds the density ratio of the noise except with probability δ
        deviation = steepest * sqrt(8 * log(2 / delta) + 4 * epsilon) / epsilon
        return generator.normal(scale=deviation, size=width), 2 * curvature / epsilon
    direction = generator.normal(size=width)
    length = generator.gamma(width, 2 * steepest / epsilon)
    return length * direction / np.linalg.norm(direction), float(curvature / np.expm1(epsilon / 2))


def _in_ball(values: Floats, products: Floats, radius: float) -> Floats:
    """The minimum in a ball of Σ value·θ²/2 − products·θ."""
    slopes = products / values
    if np.linalg.norm(slopes) <= radius:
        return np.asarray(slopes)
    low, high = 0.0, float(np.linalg.norm(products)) / radius
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.linalg.norm(products / (values + middle)) > radius else (low, middle)
    return np.asarray(products / (values + high))
