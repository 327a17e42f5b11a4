"""Classifiers trained on a summary and judged on the target's test set."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.market.case import Case
from dpsketch.federate.market.sold_rows import Rows

MODELS = ("linear SVM", "32 units", "boosting")


def accuracies(case: Case, codes: NDArray[np.int16], seed: int) -> dict[str, float]:
    """Accuracy of each model. Weight decay stands in for the paper's dropout, which scikit-learn does not have."""
    models = {
        "linear SVM": make_pipeline(StandardScaler(), LinearSVC(C=0.1, max_iter=5000, random_state=seed)),
        "32 units": make_pipeline(StandardScaler(), MLPClassifier((32,), alpha=1.0, max_iter=100, random_state=seed)),
        "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=seed),
    }
    points, labels = case.points(codes), codes[-1]
    test = Rows.read(case.terms, case.study.test)
    truth = test.codes[-1]
    found = {}
    for name, model in models.items():
        if len(np.unique(labels)) < 2:
            found[name] = float((truth == labels[0]).mean())
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found[name] = float((model.fit(points, labels).predict(case.points(test.codes)) == truth).mean())
    return found
