"""Models trained on rows or weighted points and scored on real held-out rows."""

from __future__ import annotations

import numpy as np

from benchmarks.m2m.answers import Weighted
from benchmarks.m2m.tables import Table
from dpsketch.numerics.arrays import Floats

PENALTY = 1e-4  # of ½‖θ‖², beside the mean loss
STEPS = 200
WORST_R2 = -1.0  # shown for anything worse: negative weights have no guarantee


def encode(table: Table, rows: Floats) -> Floats:
    """All columns but the label: numbers and binary categories as they are, other categories one-hot."""
    parts = []
    for j, column in enumerate(table.columns):
        if j == table.label:
            continue
        values = rows[:, j]
        if column.ordered:
            parts.append(np.nan_to_num(values, nan=0.5)[:, None])
        elif column.levels == 2:
            parts.append(np.where(values < 2, values, 0.5)[:, None])
        else:
            parts.append((values[:, None] == np.arange(column.levels)).astype(float))
    return np.hstack(parts)


def score(table: Table, training: Weighted) -> float:
    """AUC of logistic regression or, for a label that is a number, R² of linear regression."""
    from sklearn.metrics import r2_score

    assert table.label is not None
    numeric = table.columns[table.label].ordered
    rows, weights = training.rows, training.weights
    if not numeric:
        known = rows[:, table.label] < 2
        rows, weights = rows[known], weights[known]
    features, target = encode(table, rows), rows[:, table.label]
    mean, deviation = features.mean(0), features.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    features, test = (features - mean) / deviation, (encode(table, table.test) - mean) / deviation
    truth = table.test[:, table.label]
    if numeric:
        return max(WORST_R2, float(r2_score(truth, _linear(features, target, weights, test))))
    return auc(truth, test @ logistic(features, target, weights))


def auc(truth: Floats, scores: Floats) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, scores))


def _linear(features: Floats, target: Floats, weights: Floats, test: Floats) -> Floats:
    """Predictions of the weighted loss's stationary point: its minimum, unless weights are negative."""
    design = np.column_stack([np.ones(len(features)), features])
    gram = (design * weights[:, None]).T @ design / abs(weights.sum())
    right = design.T @ (weights * target) / abs(weights.sum())
    gram += PENALTY * np.diag(np.r_[0.0, np.ones(features.shape[1])])
    coefficients = np.linalg.lstsq(gram, right, rcond=None)[0]
    return np.column_stack([np.ones(len(test)), test]) @ coefficients


def logistic(features: Floats, target: Floats, weights: Floats) -> Floats:
    """Slopes of a weighted logistic regression; zeros if there is only one class.

    This is the paper's implicit learning: weights may be negative, so the loss is bounded only by its penalty, and the
    result is where L-BFGS from zero ends.
    """
    from scipy.optimize import minimize

    if len(np.unique(target)) < 2:
        return np.zeros(features.shape[1])
    signs, weights = 2 * target - 1, weights / max(abs(weights.sum()), 1e-12)

    def loss(theta: Floats) -> tuple[float, Floats]:
        margin = signs * (features @ theta[1:] + theta[0])
        pull = -weights * signs / (1 + np.exp(np.clip(margin, -500, 500)))
        value = weights @ np.logaddexp(0.0, -margin) + 0.5 * PENALTY * theta[1:] @ theta[1:]
        return float(value), np.r_[pull.sum(), features.T @ pull + PENALTY * theta[1:]]

    start = np.zeros(features.shape[1] + 1)
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x[1:])
