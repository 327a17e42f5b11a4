"""Classifiers: AUC for two classes, accuracy for more, on splits without leakage."""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.metrics import roc_auc_score

import dpsketch as dps
from benchmarks.compressive.options import Options, Say
from benchmarks.density import baselines, ours
from benchmarks.density.goals import at_least, budget_text
from benchmarks.density.runs import DELTA, attempted
from benchmarks.density.tables import Split, classification, labels_of
from benchmarks.m2m import environments

GOALS = {"occupancy": 0.994, "htru2": 0.953, "nomao": 0.97, "skin": 0.998, "mnist": 0.81, "covtype": 0.69}  # ε=1, δ
TABLES = ("occupancy", "htru2", "nomao", "skin", "cod_rna", "mnist", "covtype")
HASHED = ("occupancy", "htru2")
BUDGETS = ((1.0, DELTA), (0.1, DELTA), (1.0, 0.0), (0.1, 0.0))


def run(options: Options, say: Say) -> None:
    say("== classifiers: AUC of two classes, accuracy of more, mean (worst)")
    for name in TABLES[:2] if options.quick else TABLES:
        _table(name, options, say)


def _table(name: str, options: Options, say: Say) -> None:
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
