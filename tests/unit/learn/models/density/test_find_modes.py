"""The places of planted heaps are found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 20_000},
        "columns": {
            "a": {"kind": "number", "lower": 0, "upper": 10},
            "b": {"kind": "number", "lower": 0, "upper": 100},
            "tags": {"kind": "set", "universe": 9},
        },
    }
)


def view(map_: dps.FeatureMap) -> dps.View:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal([3, 40], [0.4, 4], (12_000, 2)), rng.normal([7, 70], [0.4, 4], (8000, 2))])
    table = pa.table({"a": points[:, 0], "b": points[:, 1], "tags": [[1]] * 20_000})
    raw = dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(map_, 1.0)]))
    return dps.View(dps.release(raw, dps.Budget(1.0, 1e-6), dps.Ledger("sqlite://"), "d"))


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("method", ["restart", "cells"])
@pytest.mark.parametrize(
    "map_", [dps.Histogram(2, ["a", "b"], 25), dps.Race(["a", "b"], 300, 500, hash=dps.Euclidean(0.08))]
)
def test_two_heaps(method: str, map_: dps.FeatureMap) -> None:
    modes = dps.find_modes(view(map_), 2, ["a", "b"], method)
    assert len(modes) == 2
    one, two = modes.to_dicts()
    assert one["density"] > two["density"] > 10 * two["stderr"]
    assert (one["a"], one["b"]) == (pytest.approx(3, abs=0.4), pytest.approx(40, abs=4))
    assert (two["a"], two["b"]) == (pytest.approx(7, abs=0.4), pytest.approx(70, abs=4))


def test_wrong_questions_are_refused() -> None:
    asking = view(dps.Race(["tags"], 20, 50, hash=dps.MinHash()))
    with pytest.raises(QueryError, match="modes of sets"):
        dps.find_modes(asking)
    with pytest.raises(QueryError, match="k must be a whole number"):
        dps.find_modes(asking, 0)
    with pytest.raises(QueryError, match="method must be one of restart, cells"):
        dps.find_modes(asking, method="newton")
