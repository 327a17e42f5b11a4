import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.draws import shares_in_cells

ROWS = 40_000


def marginal(offsets: list[float]) -> Marginal:
    return Marginal(np.full(len(offsets), 1 / len(offsets)), np.array(offsets))


def test_shares_in_cells_have_the_mean_of_the_cell() -> None:
    positions = np.tile((np.arange(100) + 0.5) / 100 - 0.5, (7, 1))
    offsets = np.array([-0.45, -0.3, -0.1, 0.0, 0.01, 0.2, 0.45])
    shares = shares_in_cells(marginal(offsets.tolist()), positions)
    assert (shares * positions).sum(1) == pytest.approx(offsets)
    assert shares[3] == pytest.approx(0.01)
    assert (np.diff(shares[:3], axis=1) <= 0).all()


def test_the_mean_of_two_values_says_how_many_have_each() -> None:
    shares = shares_in_cells(marginal([-0.2, 0.1, 0.4]), np.tile([-0.25, 0.25], (3, 1)))
    assert shares[:, 1] == pytest.approx([0.1, 0.7, 1.0], abs=1e-3)  # 0.4 is farther out than any value


def test_single_values_in_cells_of_two_are_told_apart(tmp_path) -> None:
    """Bins hold one or two of a hundred values, of which the tenth ones are common."""
    rng = np.random.default_rng(3)
    values = np.clip(np.rint(rng.normal(45, 15, ROWS)), 0, 99)
    values = np.where(rng.random(ROWS) < 0.3, np.minimum(10 * np.rint(values / 10), 90), values)
    schema = dps.Schema.from_dict(
        {"privacy": {"rows": ROWS}, "columns": {"x": {"kind": "integer", "lower": 0, "upper": 99}}}
    )
    recipe = dps.Recipe([dps.Part(dps.maps.Count(), 0.1), dps.Part(dps.maps.Marginals(), 0.9)])
    raw = dps.accumulate(pa.table({"x": values}), schema, recipe)
    released = dps.release(raw, dps.Budget(1.0), ledger=dps.Ledger(tmp_path / "ledger.db"), dataset="x")
    smooth = next(each for each in dps.View(released).estimators(["x"]) if each.how.startswith("smooth"))
    from dpsketch.learn.factors import Factor

    levels = np.arange(20, 71)
    at = Factor(("x",), lambda frame: (frame.values("x") == levels[:, None]).astype(float))
    found = smooth.expect([at])
    off = np.abs(ROWS * found.value - [(values == level).sum() for level in levels])
    assert off.max() < 100
    assert (off > 3 * ROWS * found.stderr).mean() <= 0.1
