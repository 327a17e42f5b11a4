from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.engines.fit_embedding import fit_embedding
from dpsketch.errors import SourceError

NAMES = [f"c{j}" for j in range(24)]
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 3000},
        "columns": {name: {"kind": "number", "lower": -1, "upper": 1} for name in NAMES}
        | {"label": {"kind": "boolean"}, "size": {"kind": "number", "lower": -8, "upper": 8}},
    }
)


def simulated(rng: np.random.Generator, count: int) -> pa.Table:
    """Only the sum of two columns matters; the other 22 are noise."""
    points = rng.uniform(-1, 1, (count, 24))
    columns = {name: points[:, j] for j, name in enumerate(NAMES)}
    return pa.table(columns | {"label": points[:, 0] + points[:, 1] > 0, "size": 4 * (points[:, 0] + points[:, 1])})


@pytest.mark.parametrize(("target", "hidden"), [("label", ()), ("label", (16,)), ("size", ())])
def test_a_public_embedding_finds_what_matters(rng: np.random.Generator, target: str, hidden: tuple[int, ...]) -> None:
    """Classes told apart by kernel sums of the embedded records; without embedding the noise columns hide them."""
    public, private, test = (simulated(rng, count) for count in (2000, 3000, 300))
    embedding = fit_embedding(public, target, SCHEMA, columns=NAMES, outputs=2, hidden=hidden)
    accuracy = {}
    for name, used in (("embedded", embedding), ("plain", None)):
        race = dps.Race(NAMES, 200, 500, hash=dps.Euclidean(0.05), embedding=used, weight="label", weights=[-1, 1])
        raw = dps.accumulate(private, SCHEMA, dps.Recipe([dps.Part(race, 1.0)]))
        view = dps.View(dps.release(raw, dps.Budget(float("inf"))))
        scores = view.kernel_sum(np.stack([test[c].to_numpy() for c in NAMES], axis=1)).value
        accuracy[name] = np.mean((scores > 0) == test["label"].to_numpy(zero_copy_only=False))
    assert accuracy["embedded"] > 0.9
    assert accuracy["embedded"] > accuracy["plain"] + 0.1


def test_a_public_table_without_targets_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(SourceError, match="fewer than 10 rows"):
        fit_embedding(simulated(rng, 5), "label", SCHEMA)
