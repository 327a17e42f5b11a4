"""Linear regression: mean squared error on the test rows, over the variance of their target.

Every method's predictions are clamped to the declared bounds of the target: otherwise a few outliers of gas would
dominate its figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import baselines, linear_baselines, ours, synthetic_models
from benchmarks.density.choice import Settings
from benchmarks.density.curves import OURS, RACE, Curves, line_of
from benchmarks.density.goals import at_most, budget_text
from benchmarks.density.runs import DELTA, attempted
from benchmarks.density.tables import Split, labels_of, regression, unit_features
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.composition import plan_cost
from dpsketch.schema.columns import HIGHEST, LOWEST
from dpsketch.schema.schema import Schema

GOALS = {"california": 0.37, "gas": 0.40, "airfoil": 0.55}  # at ε=1, δ
TABLES = ("california", "airfoil", "gas", "naval")
HASHED = ("california", "airfoil")
BUDGETS = ((1.0, DELTA), (0.1, DELTA), (1.0, 0.0), (10.0, 0.0))


EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of the curves
RADII = (0.3, 1.0, 3.0)  # of the slopes, for methods that need a bound
MANY_FEATURES = 16  # above which baselines with settings and curves are run once, for time


def run(options: Options, say: Say) -> None:
    say("== regression: mean squared error over the variance of the target, on test rows, mean (worst)")
    for name in TABLES[:2] if options.quick else TABLES:
        if options.wants(name):
            _table(name, options, say)


def _table(name: str, options: Options, say: Say) -> None:
    """Lines of every budget, and of every method over ε, with δ where it uses one."""
    splits = [regression(name, options.seed + run) for run in range(options.runs)]
    features = [(split.features(split.train), split.features(split.test)) for split in splits]
    targets = [2 * unit_features(split.schema, [split.target], split.train)[:, 0] - 1 for split in splits]
    note = "; no goal: shown as a failure" * (name == "naval")
    say(f"{name}: {len(splits[0].train)} rows to train, {features[0][0].shape[1]} features{note}")
    exact = [
        scaled_error(split, baselines.least_squares(train, target, test))
        for split, target, (train, test) in zip(splits, targets, features, strict=True)
    ]
    say(at_most("  OLS, not private", exact))
    passes = [ours.Passes(split.train, split.schema) for split in splits]
    for epsilon, delta in BUDGETS[:1] if options.quick else BUDGETS:
        text = budget_text(epsilon, delta)

        def once(run: int, budget: dps.Budget) -> tuple[float, ours.Scored]:
            scored = ours.predictions(passes[run], splits[run], budget)
            return error_of(splits[run], scored.values), scored

        figures = attempted(f"ours {text}", say, partial(once, budget=dps.Budget(epsilon, delta)), options.runs)
        if figures:
            goal = GOALS.get(name) if (epsilon, delta) == (1.0, DELTA) else None
            say(at_most(f"  ours {text}", figures, goal))
            first, second = two_releases(epsilon, delta)
            values = [error_of(split, ours.tightened_predictions(split, first, second).values) for split in splits]
            say(at_most(f"  ours {text}, in two releases: {first} for bounds, {second}", values, goal))
            if goal is not None:
                shown = [tight(split) for split in splits]
                values = [
                    error_of(
                        split,
                        ours.predictions(ours.Passes(split.train, split.schema), split, dps.Budget(1, DELTA)).values,
                    )
                    for split in shown
                ]
                say(at_most(f"  ours {text}, with bounds that nobody may take from the table", values, goal))
        if name in HASHED and (epsilon, delta) == (1.0, DELTA):
            hashed = [
                error_of(split, ours.hashed_predictions(each, split, dps.Budget(epsilon, delta)).values)
                for split, each in zip(splits, passes, strict=True)
            ]
            say(at_most(f"  hashed surrogate of the paper {text}", hashed))
        noisy: dict[str, list[float]] = {}
        for run, (train, test) in enumerate(features):
            seed, target = options.seed + run, targets[run]
            predicted = baselines.noisy_least_squares(train, target[:, None], test, epsilon, delta, seed, one_hot=False)
            noisy.setdefault("noisy least squares (SSP)", []).append(scaled_error(splits[run], predicted[:, 0]))
            if delta:
                predicted = baselines.ada_ssp(train, target, test, epsilon, delta, seed)
                noisy.setdefault("AdaSSP", []).append(scaled_error(splits[run], predicted))
        for method, values in noisy.items():
            say(at_most(f"  {method} {text}", values))
    if options.quick:
        return
    few = splits[: 1 if features[0][0].shape[1] > MANY_FEATURES else None]
    curves = _baselines(few, features, targets, options.seed, say)
    _own_curves(few, passes, curves)
    curves["OLS, not private"] = dict.fromkeys(EPSILONS, float(np.mean(exact)))
    for method, curve in curves.items():
        say(line_of(name, method, curve))


def _own_curves(splits: list[Split], passes: list[ours.Passes], curves: Curves) -> None:
    """Adds ours, and the paper's surrogate under pure ε."""
    found = Settings()
    for split, each in zip(splits, passes, strict=False):
        for epsilon in EPSILONS:
            scored = ours.predictions(each, split, dps.Budget(epsilon, DELTA))
            found.add(OURS, epsilon, DELTA, "", error_of(split, scored.values))
        for epsilon in EPSILONS:  # apart: one raw sketch at a time
            scored = ours.hashed_predictions(each, split, dps.Budget(epsilon))
            found.add(RACE, epsilon, 0.0, "", error_of(split, scored.values))
    for (method, epsilon, _), best in found.best():
        curves.setdefault(method, {})[epsilon] = best.mean


def _baselines(
    splits: list[Split],
    features: list[tuple[Floats, Floats]],
    targets: list[Floats],
    seed: int,
    say: Say,
) -> Curves:
    """Lines of the methods that have settings, each at its best; errors of all over ε."""
    found = Settings()
    budgets = [*BUDGETS, *((e, d) for e in EPSILONS for d in (0.0, DELTA) if (e, d) not in BUDGETS)]
    for run, split in enumerate(splits):
        (train, test), target = features[run], targets[run]
        for epsilon, delta in budgets:
            for method, setting, predicted in _predictions(train, target, test, epsilon, delta, seed + run):
                found.add(method, epsilon, delta, setting, scaled_error(split, predicted))

        def fit(rows: Floats, drawn: Floats, test: Floats = test) -> Floats:
            return baselines.least_squares(rows, 2 * drawn - 1, test)

        pure = sorted({epsilon for epsilon, delta in budgets if not delta})
        for setting, epsilon, predicted in synthetic_models.predictions(
            split, (target + 1) / 2, 0, pure, fit, seed + run
        ):
            found.add("PrivBayes", epsilon, 0.0, setting, scaled_error(split, predicted))
    curves: Curves = {}
    for (method, epsilon, delta), best in sorted(found.best(), key=lambda item: budgets.index(item[0][1:])):
        if (epsilon, delta) in BUDGETS and method not in ("SSP", "AdaSSP"):  # printed above, with all runs
            setting = f" ({best.setting})" if best.setting else ""
            say(at_most(f"  {method}{setting} {budget_text(epsilon, delta)}", best.figures))
        if epsilon in EPSILONS and (delta > 0) == (method not in ("OPS", "PrivBayes")):
            curves.setdefault(method, {})[epsilon] = best.mean
    infeasible = synthetic_models.left_out(splits[0])
    if infeasible:
        say(infeasible)
    return curves


def _predictions(
    train: Floats, target: Floats, test: Floats, epsilon: float, delta: float, seed: int
) -> Iterator[tuple[str, str, Floats]]:
    """Method, setting and predictions of the target in [-1, 1]."""
    if delta:
        squares = baselines.noisy_least_squares(train, target[:, None], test, epsilon, delta, seed, one_hot=False)
        yield "SSP", "", squares[:, 0]
        yield "AdaSSP", "", baselines.ada_ssp(train, target, test, epsilon, delta, seed)
        yield "AdaOPS", "", linear_baselines.ada_ops(train, target, test, epsilon, delta, seed)
    for radius in RADII:
        predicted = linear_baselines.objective_squares(train, target, test, epsilon, delta, radius, seed)
        yield "objective perturbation", f"‖θ‖ ≤ {radius:g}", predicted
        if not delta:
            yield "OPS", f"‖θ‖ ≤ {radius:g}", linear_baselines.ops(train, target, test, epsilon, radius, seed)


def two_releases(epsilon: float, delta: float) -> tuple[dps.Budget, dps.Budget]:
    """Budgets of two releases: a tenth for bounds, and the rest.

    With δ, they are a plan of Gaussian noises in terms of ρ that costs no more together.
    """
    if not delta:
        return dps.Budget(round(0.1 * epsilon, 9)), dps.Budget(round(0.9 * epsilon, 9))
    low, high = 1e-9, epsilon
    for _ in range(40):
        middle = (low * high) ** 0.5
        if plan_cost(_split(middle), Fraction(repr(delta))) <= Fraction(repr(epsilon)):
            low = middle
        else:
            high = middle
    return _split(low)


def _split(rho: float) -> tuple[dps.Budget, dps.Budget]:
    return dps.Budget(rho=float(f"{0.1 * rho:.4g}")), dps.Budget(rho=float(f"{0.9 * rho:.4g}"))


def tight(split: Split) -> Split:
    """The split with bounds at the 0.5 % and 99.5 % quantiles of the table: shows the cost of rough bounds; not
    private.
    """
    facts = split.schema.to_dict()
    for name, column in facts["columns"].items():
        low, high = np.quantile(labels_of(split.train, name).astype(np.float64), [0.005, 0.995])
        if high > low:
            column["lower"], column["upper"] = float(low), float(high)
    return replace(split, schema=Schema.from_dict(facts))


def error_of(split: Split, predicted: Floats) -> float:
    known = labels_of(split.test, split.target).astype(np.float64)
    return float(np.mean((np.clip(predicted, *_bounds(split)) - known) ** 2) / np.var(known))


def scaled_error(split: Split, predicted: Floats) -> float:
    """Error of predictions of the target scaled to [-1, 1] by its bounds."""
    low, high = _bounds(split)
    return error_of(split, low + (predicted + 1) / 2 * (high - low))


def _bounds(split: Split) -> tuple[float, float]:
    low, high = split.schema.column(split.target).values_of(np.array([LOWEST, HIGHEST]))
    return float(low), float(high)
