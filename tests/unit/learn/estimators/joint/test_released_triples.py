"""Answers about three columns whose dependence no pair of them shows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import dpsketch as dps
from conftest import SEED

ROWS = 50_000
COLUMNS = {name: {"kind": "number", "lower": 0, "upper": 1} for name in "xyz"}
COLUMNS["sign"] = {"kind": "category", "values": ["odd", "even"]}  # type: ignore[dict-item]
SCHEMA = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": COLUMNS})


def exclusive() -> pa.Table:
    """`z` is in its upper half if just one of `x` and `y` is, and `sign` is mostly odd if `x` and `z` are in the same
    half: every two columns are independent.
    """
    rng = np.random.default_rng(SEED)
    x, y = rng.random(ROWS), rng.random(ROWS)
    z = ((x > 0.5) ^ (y > 0.5)) * 0.5 + rng.random(ROWS) * 0.5
    sign = np.where(rng.random(ROWS) < 0.5 + 0.3 * np.sign(x - 0.5) * np.sign(z - 0.5), "odd", "even")
    return pa.table({"x": x, "y": y, "z": z, "sign": sign})


def asked(bins: int | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Errors of 60 answers as shares of the rows, their standard errors, and where answers come from."""
    table, pairs = exclusive(), 0.4 if bins else 0.5
    parts = [(dps.Count(), 0.1), (dps.Marginals(bins=32), 0.4), (dps.AdaptivePairs(bins=32), pairs)]
    if bins:
        parts.append((dps.Triples(bins=bins, pool=True), 0.1))
    raw = dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(*part) for part in parts]))
    view = dps.View(dps.release(raw, dps.Budget(5.0), dps.Ledger("sqlite://"), "exclusive"))
    rng, (x, y, z) = np.random.default_rng(SEED), (table[name].to_numpy() for name in "xyz")
    sign, found = np.array(table["sign"].to_pylist()), []
    for number in range(60):
        a, b, c = rng.uniform(0.2, 0.8, 3)
        text, holds = f"x <= {a} and y <= {b} and z >= {c}", (x <= a) & (y <= b) & (z >= c)
        if number % 2:
            text, holds = f"x <= {a} and sign = 'odd' and z >= {c}", (x <= a) & (sign == "odd") & (z >= c)
        answer = view.sql(f"select count(*) as v from sketch where {text}").rows[0][-1]
        found.append([float(answer.value) - holds.sum(), float(answer.stderr)])
    return (*(np.array(found).T / ROWS), answer.how)


def test_tables_of_three_columns_show_what_pairs_do_not() -> None:
    errors, stderrs, how = asked(16)
    assert np.sqrt(np.mean(errors**2)) < 0.002
    assert np.mean(np.abs(errors) < 2 * stderrs) > 0.9
    assert "and to 4 tables of three columns" in how


def test_without_them_answers_are_far_off() -> None:
    errors, _, how = asked(None)
    assert np.sqrt(np.mean(errors**2)) > 0.01
    assert "three" not in how


def test_tables_whose_cells_are_cut_by_those_of_pairs_are_left_out() -> None:
    _, _, how = asked(15)  # the 32 bins of pairs do not divide them
    assert "three" not in how
