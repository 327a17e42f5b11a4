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


def close_heaps(*parts: dps.Part) -> dps.View:
    """Two heaps, six hundredths of the bounds apart."""
    rng = np.random.default_rng(0)
    a = np.concatenate([rng.normal(3, 0.08, 12_000), rng.normal(3.6, 0.08, 8000)])
    table = pa.table({"a": a, "b": np.full(20_000, 50.0), "tags": [[1]] * 20_000})
    recipe, budget = dps.Recipe(parts), dps.Budget(1.0, 1e-6)
    return dps.View(dps.release(dps.accumulate(table, SCHEMA, recipe), budget, dps.Ledger("sqlite://"), "d"))


@pytest.mark.usefixtures("seeded")
def test_heaps_are_told_apart_at_the_bandwidth_of_the_release() -> None:
    recipe = dps.Recipe.density(SCHEMA, budget=dps.Budget(1.0, 1e-6), columns=["a"], bandwidth=0.01)
    asking = close_heaps(*recipe.parts)
    found = sorted(float(place) for place in dps.find_modes(asking, 2).points["a"][:2])
    assert found == [pytest.approx(3, abs=0.1), pytest.approx(3.6, abs=0.1)]
    wide = dps.find_modes(asking, 2, bandwidth=0.2)
    assert wide.densities[0] > 0.5  # nearly all records are within one bandwidth


@pytest.mark.usefixtures("seeded")
def test_the_bandwidth_selects_the_counters() -> None:
    races = [dps.Race(["a"], 300, 500, seed, hash=dps.Euclidean(each)) for seed, each in enumerate((0.3, 0.01))]
    asking = close_heaps(*(dps.Part(race, 0.5) for race in races))
    for method in ("restart", "cells"):
        narrow = dps.find_modes(asking, 2, method=method, kernel=dps.Euclidean(0.01))
        assert sorted(float(place) for place in narrow.points["a"]) == [
            pytest.approx(3, abs=0.15),
            pytest.approx(3.6, abs=0.15),
        ]


def test_wrong_questions_are_refused() -> None:
    asking = view(dps.Race(["tags"], 20, 50, hash=dps.MinHash()))
    with pytest.raises(QueryError, match="modes of sets"):
        dps.find_modes(asking)
    with pytest.raises(QueryError, match="k must be a whole number"):
        dps.find_modes(asking, 0)
    with pytest.raises(QueryError, match="method must be one of restart, cells"):
        dps.find_modes(asking, method="newton")
