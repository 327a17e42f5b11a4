"""MST or AIM of the package `dpmm`: runs in its own environment, on a folder of files.

Reads input.npz (a column each: numbers, or places of labels) and options.json, writes output.npz (columns of synthetic
rows) and report.json. Bins are equal between the declared bounds, so that none of the budget goes to them; everything
else is the package's default.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline

PIPELINES = {"MST": MSTPipeline, "AIM": AIMPipeline}


def main(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text())
    with np.load(folder / "input.npz") as arrays:
        frame = pd.DataFrame({name: arrays[name] for name in options["domain"]})
    for name, facts in options["domain"].items():
        if "categories" in facts:
            frame[name] = frame[name].astype(int).astype("category")
    start = time.process_time()
    pipeline = PIPELINES[options["method"]](
        epsilon=options["epsilon"], delta=options["delta"], proc_epsilon=None, n_bins=options["bins"], n_jobs=1
    )
    pipeline.fit(frame, domain=options["domain"])
    rows = pipeline.generate(n_records=options["rows"])
    seconds = time.process_time() - start
    np.savez(folder / "output.npz", **{name: rows[name].to_numpy(float) for name in options["domain"]})
    (folder / "report.json").write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
