"""diffprivlib's k-means (noisy Lloyd steps): runs in its own environment.

Reads input.npz (points, between −½ and ½) and options.json, writes output.npz (centres of each run), report.json.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from diffprivlib.models import KMeans


def main(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    with np.load(folder / "input.npz") as given:
        points = given["points"]
    start = time.process_time()
    centres = []
    for seed in options["seeds"]:
        model = KMeans(options["clusters"], epsilon=options["epsilon"], bounds=(-0.5, 0.5), random_state=seed)
        centres.append(model.fit(points).cluster_centers_)
    report = {"seconds": (time.process_time() - start) / len(centres)}
    np.savez(folder / "output.npz", centres=np.array(centres))
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
