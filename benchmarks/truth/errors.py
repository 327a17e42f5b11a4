"""`python -m benchmarks.truth.errors`: the constants of standard errors of joint answers, chosen on some tables.

For questions about two and three columns to releases of each table it takes the error of the answer and what should
predict it: the spread of refits, what groups of cells may hide, what pair tables cannot show of three columns, and what
cells hide. Variances are added; the constants are those whose standard error is nearest to the 68th percentile of
absolute errors, by quantile regression of their logarithms. It prints the coverage of one and of two standard errors on
the tables that the constants were chosen on, and on those that judge them.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import dpsketch as dps
from benchmarks.truth.questions import questions
from benchmarks.truth.tables import CHOSEN_ON, JUDGED_ON, load
from dpsketch.learn.estimators.joint import unseen
from dpsketch.learn.estimators.joint.from_release import fit_released
from dpsketch.learn.estimators.joint.joint_estimator import ProductEstimator
from dpsketch.learn.estimators.joint.one_column import Single
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, merged
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.numerics.arrays import Floats

ONE_DEVIATION = 0.6827
NAMES = ("refits", "INSIDE", "MORE")
IN_USE = np.array([1.0, unseen.INSIDE, unseen.MORE])
BUDGETS = ((0.1, 0.0), (1.0, 0.0), (1.0, 1e-6), (10.0, 0.0))


@dataclass(frozen=True)
class Errors:
    """Errors of one release, the variances that constants scale, one column each, and those that nothing scales."""

    table: str
    budget: tuple[float, float]
    off: Floats
    scaled: Floats
    fixed: Floats

    def variance(self, constants: Floats) -> Floats:
        return self.scaled @ np.square(constants) + self.fixed + 1e-12

    def coverage(self, constants: Floats, times: float = 1.0) -> float:
        return float(np.mean(np.abs(self.off) <= times * np.sqrt(self.variance(constants))))

    def misfit(self, constants: Floats) -> float:
        """Source: Koenker & Bassett, Econometrica 46 (1978) 33."""
        beyond = np.log(np.abs(self.off) + 1e-6) - np.log(self.variance(constants)) / 2
        return float(np.mean(np.maximum(ONE_DEVIATION * beyond, (ONE_DEVIATION - 1) * beyond)))


def measure(name: str, budget: tuple[float, float], seed: int) -> Errors:
    table, spend = load(name), dps.Budget(*budget)
    recipe = dps.Recipe.general(table.schema, rows=table.schema.rows, budget=spend)
    raw = dps.accumulate(table.arrow, table.schema, recipe)
    with tempfile.TemporaryDirectory() as folder:
        released = dps.release(raw, spend, ledger=dps.Ledger(Path(folder) / "ledger.db"), dataset=name)
    estimator = ProductEstimator(table.schema, ReleaseNoise(released), fit_released(released))
    asked = [each for each in questions(table, seed) if each.kind in ("2-way", "3-way")]
    found = np.array([_row(estimator, table.schema, each.sql.split(" where ", 1)[1]) for each in asked])
    truths = np.array([each.truths[None] for each in asked]) / len(table.train)
    return Errors(name, budget, found[:, 0] - truths, found[:, 1:4], found[:, 4])


def _row(estimator: ProductEstimator, schema: dps.Schema, condition: str) -> list[float]:
    """The answer, the variances that constants scale, and the rest: what cells hide, and in what two estimates
    of the dependence of three columns differ.
    """
    factors = merged(condition_factors(schema, parse_condition(condition, schema)))
    singles = [estimator._single.of(factor) for factor in factors]
    means = [single.means[0] for single in singles]
    third = estimator._third_order(factors, singles, means)
    trends = estimator._trends(factors, singles)
    values = (estimator._found(factors, singles, trends) + third.added)[:, 0]
    more = np.maximum(unseen.of_several(means, [single.variances for single in singles]) - third.seen, 0.0)
    inside, hidden = _inside(estimator, factors, singles, means), float((third.guessed**2 + third.left)[0])
    hidden += float(estimator._hidden_pairs(factors, singles, means)[0]) - inside * unseen.INSIDE**2
    for index, single in enumerate(singles):
        others = float(np.prod([mean[0] for mean in means[:index] + means[index + 1 :]]))
        hidden += float((single.unsure[0] ** 2).sum()) * others**2
    for pair, trend in trends.items():
        others = float(np.prod([mean[0] for at, mean in enumerate(means) if at not in pair]))
        hidden += float(trend.doubt[0]) ** 2 * others**2
    spread = float(np.mean((values[1:] - values[0]) ** 2))
    beyond = float(more[0]) * estimator._dependence**2 if len(factors) > 2 else 0.0
    return [float(values[0]), spread, inside, beyond, hidden]


def _inside(
    estimator: ProductEstimator, factors: Sequence[Factor], singles: Sequence[Single], means: Sequence[Floats]
) -> float:
    """The variance that groups of ordered cells hide, over INSIDE²; without what pooled labels hide."""
    in_use = unseen.INSIDE
    try:
        found = []
        for unseen.INSIDE in (1.0, 0.0):
            found.append(float(estimator._hidden_pairs(factors, singles, means)[0]))
    finally:
        unseen.INSIDE = in_use
    return found[0] - found[1]


def most_likely(errors: list[Errors]) -> Floats:
    def misfit(logarithms: Floats) -> float:
        return sum(each.misfit(np.exp(logarithms)) for each in errors)

    options = {"maxiter": 4000, "xatol": 1e-3, "fatol": 1e-4}
    return np.exp(minimize(misfit, np.log(IN_USE), method="Nelder-Mead", options=options).x)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.errors", description=__doc__)
    parser.add_argument("--skip", nargs="*", default=[], choices=(*CHOSEN_ON, *JUDGED_ON), help="tables to leave out")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    tables = [name for name in (*CHOSEN_ON, *JUDGED_ON) if name not in options.skip]
    wanted = [(name, budget) for name in tables for budget in BUDGETS]
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as executor:
        running = [executor.submit(measure, name, budget, options.seed) for name, budget in wanted]
        every = [each.result() for each in running]
    chosen = most_likely([each for each in every if each.table in CHOSEN_ON])
    for label, constants in (("chosen", chosen), ("in use", IN_USE)):
        print(label + ":", ", ".join(f"{name} {value:.3g}" for name, value in zip(NAMES, constants, strict=True)))
    print("coverage of one and two standard errors: constants chosen now, in use; mean error")
    for each in every:
        shares = [each.coverage(constants, times) for constants in (chosen, IN_USE) for times in (1.0, 2.0)]
        text = "  ".join(f"{share:.2f}" for share in shares)
        group = "chosen on" if each.table in CHOSEN_ON else "judged on"
        budget = f"ε={each.budget[0]:g}" + (f", δ={each.budget[1]:g}" if each.budget[1] else "")
        print(f"{group} {each.table:20} {budget:12} {text}   {np.mean(np.abs(each.off)):.5f}", flush=True)


if __name__ == "__main__":
    main()
