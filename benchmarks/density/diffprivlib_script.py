"""diffprivlib's classifiers: runs in its own environment.

Reads input.npz (features, target, test) and options.json, writes output.npz (scores of the second of two classes, or
labels, one row per model) and report.json. Features lie in [0, 1]: bounds and norms are public.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from diffprivlib.models import GaussianNB, LogisticRegression


def main(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    with np.load(folder / "input.npz") as given:
        features, target, test = given["features"], given["target"], given["test"]
    epsilon, seed, norm = options["epsilon"], options["seed"], features.shape[1] ** 0.5
    some = np.random.default_rng(seed).permutation(len(features))[: options["most_rows"]]
    models = {
        "logistic": LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=500, random_state=seed),
        "naive_bayes": GaussianNB(epsilon=epsilon, bounds=(0.0, 1.0), random_state=seed),
    }
    found, report = {}, {}
    for name, model in models.items():
        start = time.process_time()
        rows = some if name == "logistic" else slice(None)
        model.fit(features[rows], target[rows])
        two = len(model.classes_) == 2
        found[name] = np.nan_to_num(model.predict_proba(test)[:, 1]) if two else model.predict(test)
        report[name] = time.process_time() - start
    np.savez(folder / "output.npz", **found)
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
