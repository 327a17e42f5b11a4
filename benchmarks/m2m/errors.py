"""`python -m benchmarks.m2m.errors`: fit the constants of standard errors of joint answers on some tables.

For 300 three-way questions to releases of each table it takes the error of the answer and its predictors: the variation
between refits, two- and three-column dependences, and the resolution of cells. Variances are added. The constants are
those whose standard error is closest to the 68th percentile of absolute errors, by quantile regression of their
logarithms. It prints the coverage of one standard error, on each table with the constants fitted on all others.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import log

import numpy as np
from scipy.optimize import minimize

import dpsketch as dps
from benchmarks.m2m.ours import released_by
from benchmarks.m2m.questions import where
from benchmarks.m2m.study import Study
from benchmarks.m2m.tables import HELD_OUT, TUNED, load
from dpsketch.learn.estimators.joint import unseen
from dpsketch.learn.estimators.joint.from_release import fit_released
from dpsketch.learn.estimators.joint.joint_estimator import ProductEstimator
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import merged
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.numerics.arrays import Floats

ALSO = ("skin", "naval")  # few values per column: the resolution of cells matters
ONE_DEVIATION = 0.6827
NAMES = ("SMOOTH", "PAIRS", "MORE")
IN_USE = (unseen.SMOOTH, unseen.PAIRS, unseen.MORE)


@dataclass(frozen=True)
class Errors:
    """Errors of one release, variances to be scaled by constants, one column each, and the variance from cells."""

    table: str
    epsilon: float
    off: Floats
    scaled: Floats
    hidden: Floats

    def variance(self, constants: Floats) -> Floats:
        return self.scaled @ np.square(constants) + self.hidden + 1e-12

    def coverage(self, constants: Floats) -> float:
        return float(np.mean(np.abs(self.off) <= np.sqrt(self.variance(constants))))

    def misfit(self, constants: Floats) -> float:
        """Quantile loss. Source: Koenker & Bassett, Econometrica 46 (1978) 33."""
        beyond = np.log(np.abs(self.off) + 1e-6) - np.log(self.variance(constants)) / 2
        return float(np.mean(np.maximum(ONE_DEVIATION * beyond, (ONE_DEVIATION - 1) * beyond)))


def measure(name: str, epsilon: float, delta: float, seed: int) -> Errors:
    table, budget = load(name), dps.Budget(epsilon, delta)
    study = Study(table, (seed, 1))
    released, _ = released_by(table, dps.Recipe.general(table.schema, rows=table.declared_rows, budget=budget), budget)
    estimator = ProductEstimator(table.schema, ReleaseNoise(released), fit_released(released))
    rows = [_row(estimator, table.schema, where(question)) for question in study.at_quantiles]
    found = np.array(rows)
    return Errors(name, epsilon, found[:, 0] - study.quantile_shares, found[:, 1:-1], found[:, -1])


def _row(estimator: ProductEstimator, schema: dps.Schema, condition: str) -> list[float]:
    """The answer, the variances to be scaled by constants, and the variance from cells."""
    singles = [
        estimator._single(factor) for factor in merged(condition_factors(schema, parse_condition(condition, schema)))
    ]
    weights = estimator._weights
    found = np.prod([single.means[:, 0] for single in singles], axis=0) * weights[:, 0]
    values = found.sum(1)
    means = [single.means[0] @ weights[0, 0] for single in singles]
    pairs, more = unseen.together(means, [single.variances for single in singles])
    hidden = 0.0
    for place, single in enumerate(singles):
        others = float(np.prod([mean[0] for mean in means[:place] + means[place + 1 :]]))
        hidden += float((single.unsure[0] ** 2).sum()) * others**2
    spread = float(np.mean((values[1:] - values[0]) ** 2))
    return [float(values[0]), spread, float(pairs[0]), float(more[0]), hidden]


def most_likely(errors: list[Errors]) -> Floats:
    def misfit(logarithms: Floats) -> float:
        return sum(each.misfit(np.exp(logarithms)) for each in errors)

    start = np.array([log(max(each, 1e-4)) for each in IN_USE])
    options = {"maxiter": 4000, "xatol": 1e-3, "fatol": 1e-4}
    return np.exp(minimize(misfit, start, method="Nelder-Mead", options=options).x)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.m2m.errors", description=__doc__)
    parser.add_argument("--tables", nargs="*", default=(*TUNED, *ALSO), choices=(*TUNED, *ALSO))
    parser.add_argument("--epsilon", nargs="*", type=float, default=[10.0, 1.0, 0.1])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    wanted = [(name, epsilon) for name in (*options.tables, *HELD_OUT) for epsilon in options.epsilon]
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as executor:
        running = [executor.submit(measure, name, epsilon, 0.0, options.seed) for name, epsilon in wanted]
        every = [each.result() for each in running]
    tuned = [each for each in every if each.table not in HELD_OUT]
    found = most_likely(tuned)
    for label, constants in (("found", found), ("in use", np.array(IN_USE))):
        print(label + ":", ", ".join(f"{name} {value:.3g}" for name, value in zip(NAMES, constants, strict=True)))
    print("coverage of one standard error: constants found on the other tables, found on all, in use")
    for each in every:
        others = most_likely([other for other in tuned if other.table != each.table])
        shares = [each.coverage(constants) for constants in (others, found, np.array(IN_USE))]
        size = np.mean(np.abs(each.off))
        text = "  ".join(f"{share:.2f}" for share in shares)
        print(f"{each.table:20} ε={each.epsilon:<4g} {text}   mean error {size:.4f}", flush=True)


if __name__ == "__main__":
    main()
