"""diffprivlib's logistic regression (objective perturbation, the family of DP-ERM): runs in its own environment.

Reads input.npz (features, target, test) and options.json, writes output.npz (scores of the test rows), report.json.
Features lie in [0, 1], so that their norm is bounded by public facts alone.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression


def main(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    with np.load(folder / "input.npz") as given:
        features, target, test = given["features"], given["target"], given["test"]
    start = time.process_time()
    model = LogisticRegression(
        epsilon=options["epsilon"], data_norm=options["norm"], max_iter=1000, random_state=options["seed"]
    )
    model.fit(features, target)
    report = {"seconds": time.process_time() - start}
    np.savez(folder / "output.npz", scores=model.decision_function(test))
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
