from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.learn.estimators.joint.from_release import fit_released, noisy_sums, product_parts

SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 20_000},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 1},
            "y": {"kind": "number", "lower": 0, "upper": 1},
            "z": {"kind": "category", "values": ["a", "b"]},
        },
    }
)


PAIRS = (("y", "x"), ("z", "x"), ("z", "y"))


def table(rows: int = 20_000) -> pa.Table:
    random = np.random.default_rng(3)
    hidden = random.random(rows)
    near = [np.clip(hidden + random.normal(0, 0.1, rows), 0, 1) for _ in range(2)]
    return pa.table({"x": near[0], "y": near[1], "z": np.where(hidden > 0.7, "a", "b")})


def released(budget: dps.Budget, contrasts: bool = False) -> dps.ReleasedSketch:
    parts = [
        dps.Part(dps.Count(), 0.05),
        dps.Part(dps.Marginals(bins=32), 0.45),
        dps.Part(dps.Pairs(("y", "x", "z"), 32, PAIRS, pool=True, contrasts=contrasts), 0.5),
    ]
    return dps.release(dps.accumulate(table(), SCHEMA, dps.Recipe(parts)), budget, dps.Ledger("sqlite://"), "a")


@pytest.mark.parametrize("contrasts", [False, True])
@pytest.mark.parametrize("budget", [dps.Budget(1.0), dps.Budget(1.0, 1e-6)], ids=str)
def test_a_release_tells_three_columns_together(budget: dps.Budget, contrasts: bool) -> None:
    found = fit_released(released(budget, contrasts))
    assert found.halved == contrasts
    assert found.columns == ("y", "x", "z")
    y, x, z = found.products.marginals
    rows = table()
    holds = (rows["x"].to_numpy() <= 0.5) & (rows["y"].to_numpy() <= 0.5) & (rows["z"].to_numpy() == "b")
    letter = (np.arange(len(z.shares)) == 1).astype(float)
    mixture, events = found.products.mixture, (y.below(0.5), x.below(0.5), letter)
    answer = mixture.weights @ np.prod([mixture.expectations(j, event) for j, event in enumerate(events)], axis=0)
    alone = (rows["x"].to_numpy() <= 0.5).mean() * (rows["y"].to_numpy() <= 0.5).mean() * 0.7
    assert answer == pytest.approx(holds.mean(), abs=0.05 if contrasts else 0.02), "halves tell less than tables"
    assert abs(alone - holds.mean()) > 0.1, "independent columns would answer otherwise"


def test_the_fit_depends_on_the_file_alone() -> None:
    release = released(dps.Budget(1.0))
    one, two = (fit_released(release).products.mixture for _ in range(2))
    assert (one.weights == two.weights).all()


def test_contrasts_are_read_as_contrasts() -> None:
    """Of halves as numerous as they are, and no totals of columns; answers come with honest errors."""
    release = released(dps.Budget(0.5), contrasts=True)
    parts = product_parts(release)
    assert parts is not None
    sums = noisy_sums(release, parts)
    assert (sums.halved, sums.totals()) == (True, [None] * 3)
    assert {table.shape for table in sums.tables.values()} == {(1, 1)}
    rows = table()
    alike = (rows["x"].to_numpy() > 0.5) == (rows["y"].to_numpy() > 0.5)
    assert sums.tables[0, 1][0, 0] / 20_000 == pytest.approx(2 * alike.mean() - 1, abs=0.05)
    view = dps.View(release)
    for condition, holds in (("x > 0.5 and y > 0.5", 0.4), ("x < 0.3 and z = 'a'", 0.0)):
        answer = view.fraction(condition)
        assert answer.value == pytest.approx(holds, abs=5 * float(answer.stderr) + 0.05)
        assert 0 < float(answer.stderr) < 0.1
    assert "3 contrasts of pairs and the marginals" in view.fraction("x > 0.5 and y > 0.5").how
