"""A simulated table of two known clusters, and maps to sketch it by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps
from dpsketch.numerics.arrays import Floats

ROWS = 20_000
CENTRES = np.array([[-4.0, -3.0, 10.0], [4.0, 3.0, 20.0]])
SPREAD = np.array([1.0, 1.0, 2.0])
SHARES = np.array([0.65, 0.35])
COLUMNS = {
    "a": {"kind": "number", "lower": -10, "upper": 10},
    "b": {"kind": "number", "lower": -10, "upper": 10},
    "c": {"kind": "number", "lower": 0, "upper": 40},
    "label": {"kind": "category", "values": ["x", "y"]},
}
SCHEMA = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": COLUMNS})


def planted(seed: int = 1) -> Mapping[str, Any]:
    """Two clusters in columns a, b and c."""
    random = np.random.default_rng(seed)
    which = (random.random(ROWS) < SHARES[1]).astype(int)
    points = CENTRES[which] + SPREAD * random.normal(size=(ROWS, 3))
    return {"a": points[:, 0], "b": points[:, 1], "c": points[:, 2], "label": np.array(["x", "y"])[which]}


def matrix(table: Mapping[str, Any]) -> Floats:
    return np.stack([table[name] for name in "abc"], axis=1)


Released = Callable[..., dps.View]
FOURIER = dps.Fourier(("a", "b", "c"), size=48, radii=(2, 40))
ONE_BIT = dps.OneBitFourier(("a", "b", "c"), size=48, radii=(2, 40))
STRUCTURED = dps.Fourier(("a", "b", "c"), size=64, radii=(2, 40), structure="hadamard")
SUBSAMPLED = dps.Subsampled(FOURIER, size=12)


def releases() -> Released:
    """A function from a map of columns a, b and c to a view of the planted table, sketched once for each map."""
    raws: dict[Any, dps.RawSketch] = {}

    def view(map_: Any, epsilon: float = 1.0, delta: float = 0.0) -> dps.View:
        if map_ not in raws:
            recipe = dps.Recipe([dps.Part(dps.Count(), 0.02), dps.Part(map_, 0.98)])
            raws[map_] = dps.accumulate(pa.table(planted()), SCHEMA, recipe)
        budget = dps.Budget(epsilon, delta)
        ledger = dps.Ledger("sqlite://") if budget.private else None
        return dps.View(dps.release(raws[map_], budget, *(() if ledger is None else (ledger, "planted"))))

    return view
