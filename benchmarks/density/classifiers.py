"""Classifiers: AUC for two classes, accuracy for more, on splits without leakage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
from sklearn.metrics import roc_auc_score

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import baselines, ours, synthetic_models
from benchmarks.density.choice import Settings
from benchmarks.density.curves import OURS, RACE, Curves, line_of
from benchmarks.density.goals import at_least, budget_text
from benchmarks.density.linear_baselines import objective_logistic
from benchmarks.density.runs import DELTA, attempted
from benchmarks.density.tables import Split, classification, labels_of
from benchmarks.m2m import environments

GOALS = {"occupancy": 0.994, "htru2": 0.953, "nomao": 0.97, "skin": 0.998, "mnist": 0.81, "covtype": 0.69}  # ε=1, δ
TABLES = ("occupancy", "htru2", "nomao", "skin", "cod_rna", "mnist", "covtype")
HASHED = ("occupancy", "htru2")
BUDGETS = ((1.0, DELTA), (0.1, DELTA), (1.0, 0.0), (0.1, 0.0))


EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the curves, pure
CURVES = ("occupancy", "htru2", "nomao")  # of the paper's figure 4
MANY_FEATURES = 16  # above which baselines and curves are run once, for time
RIDGES = (0.0, 1e-3, 1e-2)  # of objective perturbation, over the number of rows
RACE_ROWS, RACE_BANDWIDTHS = (10, 50, 200), (0.1, 0.5, 1.0)  # of the paper's likelihood classifier


def run(options: Options, say: Say) -> None:
    say("== classifiers: AUC of two classes, accuracy of more, mean (worst)")
    for name in TABLES[:2] if options.quick else TABLES:
        if options.wants(name):
            _table(name, options, say)


def _table(name: str, options: Options, say: Say) -> None:
    """Lines of every budget; for the tables of the paper's figure, also of every method over pure ε."""
    splits = [classification(name, options.seed + run) for run in range(options.runs)]
    features = [(split.features(split.train), split.features(split.test)) for split in splits]
    labels = [np.unique(labels_of(split.train, split.target), return_inverse=True)[1] for split in splits]
    two = labels[0].max() == 1
    metric = "AUC" if two else "accuracy"
    say(f"{name}, {metric}: {len(splits[0].train)} rows to train, {features[0][0].shape[1]} features")
    plain = [
        figure(split, baselines.logistic(train, target, test, options.seed))
        for split, target, (train, test) in zip(splits[:1], labels, features, strict=False)
    ]
    say(at_least(f"  logistic regression, not private, one run, at most {baselines.MOST_ROWS} rows", plain))
    passes = [ours.Passes(split.train, split.schema) for split in splits]
    for epsilon, delta in BUDGETS[:1] if options.quick else BUDGETS:
        text = budget_text(epsilon, delta)

        def once(run: int, budget: dps.Budget) -> tuple[float, ours.Scored]:
            scored = ours.class_scores(passes[run], splits[run], budget)
            return figure(splits[run], scored.values, named=True), scored

        figures = attempted(f"ours {text}", say, partial(once, budget=dps.Budget(epsilon, delta)), options.runs)
        if figures:
            goal = GOALS.get(name) if (epsilon, delta) == (1.0, DELTA) else None
            say(at_least(f"  ours {text}", figures, goal))
        if name in HASHED and (epsilon, delta) == (1.0, DELTA):
            hashed = [
                figure(split, ours.hashed_predictions(each, split, dps.Budget(epsilon, delta)).values)
                for split, each in zip(splits, passes, strict=True)
            ]
            say(at_least(f"  hashed surrogate of the paper's linear SVM {text}", hashed))
        squares = []
        for run, (train, test) in enumerate(features):
            one_hot = np.eye(labels[run].max() + 1)[labels[run]]
            seed = options.seed + run
            scores = baselines.noisy_least_squares(train, one_hot, test, epsilon, delta, seed, one_hot=True)
            squares.append(figure(splits[run], scores[:, 1] - scores[:, 0] if two else scores.argmax(1)))
        say(at_least(f"  noisy least squares {text}", squares))
    if "diffprivlib" not in options.skip:
        for epsilon in (1.0,) if options.quick else (1.0, 0.1):
            _diffprivlib(splits, features, labels, epsilon, options, say)
    if not options.quick:
        few = splits[: 1 if features[0][0].shape[1] > MANY_FEATURES else None]
        curves = _baselines(name, few, features, labels, options.seed, say)
        if name in CURVES:
            _own_curves(few, passes, curves)
            curves["logistic regression, not private"] = dict.fromkeys(EPSILONS, plain[0])
            for method, curve in curves.items():
                say(line_of(name, method, curve))


def _own_curves(splits: list[Split], passes: list[ours.Passes], curves: Curves) -> None:
    """Adds ours, and the paper's classifier at the best of its settings; a release without two classes has 0.5."""
    found = Settings(higher=True)
    for split, each in zip(splits, passes, strict=False):
        for epsilon in EPSILONS:
            budget = dps.Budget(epsilon)
            found.add(OURS, epsilon, 0.0, "", _figure_or_half(split, partial(ours.class_scores, each, split, budget)))
        for rows, bandwidth in product(RACE_ROWS, RACE_BANDWIDTHS):
            for epsilon in EPSILONS:
                scored = partial(ours.race_likelihoods, each, split, dps.Budget(epsilon), rows, bandwidth)
                found.add(RACE, epsilon, 0.0, f"R={rows}, bandwidth {bandwidth:g}", _figure_or_half(split, scored))
    for (method, epsilon, _), best in found.best():
        curves.setdefault(method, {})[epsilon] = best.mean


def _figure_or_half(split: Split, scored: Callable[[], ours.Scored]) -> float:
    """The figure; 0.5 where noise left fewer than two significant classes, or more than the table has."""
    try:
        values = np.asarray(scored().values)
    except dps.QueryError:
        return 0.5
    return figure(split, values, named=True) if values.ndim == 1 and values.dtype.kind == "f" else 0.5


def _baselines(
    name: str,
    splits: list[Split],
    features: list[tuple[np.ndarray, np.ndarray]],
    labels: list[np.ndarray],
    seed: int,
    say: Say,
) -> Curves:
    """Lines of PrivBayes and, for two classes, of objective perturbation; their figures over pure ε."""
    found = Settings(higher=True)
    epsilons = sorted({*(EPSILONS if name in CURVES else ()), *(epsilon for epsilon, _ in BUDGETS)})
    for run, split in enumerate(splits):
        (train, test), target = features[run], labels[run]
        classes = int(target.max()) + 1

        def scores_of(rows: np.ndarray, targets: np.ndarray, test: np.ndarray = test, run: int = run) -> np.ndarray:
            return baselines.logistic_or_constant(rows, targets.astype(int), test, seed + run)

        for setting, epsilon, scores in synthetic_models.predictions(
            split, target, classes, epsilons, scores_of, seed + run
        ):
            found.add("PrivBayes", epsilon, 0.0, setting, figure(split, scores))
        for epsilon, delta, ridge in product(epsilons, (0.0, DELTA), RIDGES) if classes == 2 else ():
            if delta and (epsilon, delta) not in BUDGETS:
                continue
            some = np.random.default_rng(seed).permutation(len(train))[: baselines.MOST_ROWS]
            scores = objective_logistic(train[some], target[some], test, epsilon, delta, ridge * len(some), seed + run)
            found.add("objective perturbation", epsilon, delta, f"ridge {ridge:g}·n", figure(split, scores))
    curves: Curves = {}
    for (method, epsilon, delta), best in found.best():
        if (epsilon, delta) in BUDGETS:
            say(at_least(f"  {method} ({best.setting}) {budget_text(epsilon, delta)}", best.figures))
        if not delta:
            curves.setdefault(method, {})[epsilon] = best.mean
    infeasible = synthetic_models.left_out(splits[0])
    if infeasible:
        say(infeasible)
    return curves


def _diffprivlib(
    splits: list[Split],
    features: list[tuple[np.ndarray, np.ndarray]],
    labels: list[np.ndarray],
    epsilon: float,
    options: Options,
    say: Say,
) -> None:
    figures: dict[str, list[float]] = {}
    for run, (train, test) in enumerate(features):
        arrays = {"features": train, "target": labels[run], "test": test}
        settings = {"epsilon": epsilon, "seed": options.seed + run, "most_rows": baselines.MOST_ROWS}
        output, _ = environments.run_script("diffprivlib", "benchmarks.density.diffprivlib_script", arrays, settings)
        for name, scores in output.items():
            figures.setdefault(name, []).append(figure(splits[run], scores))
    for name, values in figures.items():
        say(at_least(f"  diffprivlib {name}{_part(name)} {budget_text(epsilon, 0.0)}", values))


def _part(name: str) -> str:
    return f", at most {baselines.MOST_ROWS} rows," if name == "logistic" else ""


def figure(split: Split, scores: np.ndarray, named: bool = False) -> float:
    """AUC of scores of the second class; or accuracy of labels, given by name or by their index in sorted order."""
    known = labels_of(split.test, split.target)
    classes = np.unique(labels_of(split.train, split.target))
    if len(classes) == 2:
        return float(roc_auc_score(known == classes[1], scores))
    if named:
        return float(np.mean(ours.right_labels(split, scores)))
    return float(np.mean(classes[scores.astype(int)] == known))
