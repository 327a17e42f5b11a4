"""Counts and quantiles of one number are as far off as they say, where records lie between levels, share values, or
stop at night.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from conftest import SEED, seeded_noise
from dpsketch.numerics.arrays import Floats

ROWS = 200_000
LEVEL = 1000 / 65_534


def released(values: Any, epsilon: float = 1.0, **declared: Any) -> dps.View:
    schema = dps.Schema.from_dict({"privacy": {"rows": len(values)}, "columns": {"x": declared}})
    budget = dps.Budget(epsilon)
    recipe = dps.Recipe.general(schema, rows=len(values), budget=budget)
    raw = dps.accumulate(pa.table({"x": values}), schema, recipe)
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))


def in_stderr(answers: list[tuple[dps.Answer, float]]) -> Floats:
    return np.array([(answer.value - truth) / answer.stderr for answer, truth in answers])


@pytest.mark.parametrize("seed", range(3))
def test_a_narrow_peak_between_wide_bounds(seed: int) -> None:
    """A threshold inside a level takes a part of its records; a quantile is resolved better than a level."""
    rng = np.random.default_rng([SEED, seed])
    values = rng.normal(12.3, 0.05, ROWS)
    view = released(values, kind="number", lower=0, upper=1000)
    counts = [(view.count(f"x <= {at!r}"), float((values <= at).sum())) for at in rng.normal(12.3, 0.05, 12).tolist()]
    shares = (0.05, 0.3, 0.5, 0.8)
    quantiles = [(view.quantile("x", q), float(np.quantile(values, q, method="inverted_cdf"))) for q in shares]
    off = in_stderr(counts + quantiles)
    assert np.abs(off).max() < 4
    in_a_level = ROWS * LEVEL / (0.05 * np.sqrt(2 * np.pi))
    assert np.mean([answer.stderr for answer, _ in counts]) < in_a_level / 8
    assert np.mean([answer.stderr for answer, _ in quantiles]) < LEVEL / 4


@pytest.mark.parametrize("transform", [None, "asinh"])
def test_a_skewed_column(transform: str | None) -> None:
    rng = np.random.default_rng(SEED)
    values = rng.lognormal(10, 1, ROWS)
    declared = {} if transform is None else {"transform": transform}
    view = released(values, kind="number", lower=0, upper=10_000_000, **declared)
    answers = [(view.count(f"x <= {at!r}"), float((values <= at).sum())) for at in rng.lognormal(10, 1, 20).tolist()]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    answers += [(view.quantile("x", q), float(np.quantile(values, q, method="inverted_cdf"))) for q in shares]
    off = in_stderr(answers)
    assert np.abs(off).max() < 4
    assert np.mean(np.abs(off) < 2) > 0.8


def test_errors_in_records_hardly_grow_with_the_rows() -> None:
    """What noise asks for does not: only cells that hide more records, which therefore are smaller."""
    stated = []
    for rows in (ROWS, 8 * ROWS):
        values = np.random.default_rng(SEED).normal(50, 10, rows)
        view = released(values, kind="number", lower=0, upper=100)
        found = [view.quantile("x", q) for q in (0.25, 0.5, 0.75)]
        truths = np.quantile(values, (0.25, 0.5, 0.75))
        assert np.abs(in_stderr(list(zip(found, truths.tolist(), strict=True)))).max() < 4
        density = rows * np.exp(-(((truths - 50) / 10) ** 2) / 2) / (10 * np.sqrt(2 * np.pi))
        stated.append(np.mean([answer.stderr for answer in found] * density))
    assert stated[1] < 2 * stated[0]


def test_a_value_that_many_records_share_is_told_from_its_neighbours() -> None:
    rng = np.random.default_rng(SEED)
    values = np.where(rng.random(ROWS) < 0.2, 412.34, rng.uniform(0, 1000, ROWS))
    view = released(values, kind="number", lower=0, upper=1000)
    answers = [
        (view.count("x <= 412.34"), float((values <= 412.34).sum())),
        (view.count("x < 412.34"), float((values < 412.34).sum())),
        (view.quantile("x", 0.45), 412.34),
    ]
    assert np.abs(in_stderr(answers)).max() < 4
    assert answers[0][0].stderr < 0.02 * 0.2 * ROWS
    assert answers[2][0].stderr < LEVEL


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_single_days_of_what_stops_at_night(epsilon: float) -> None:
    """Cells alternate between day and night, so that a difference across two of them says nothing."""
    rng = np.random.default_rng(SEED)
    days = rng.integers(0, 181, ROWS)
    minutes = days * 1440 + np.floor(60 * rng.uniform(6, 22, ROWS)).astype(np.int64)
    start = np.datetime64("2001-01-01", "us")
    moments = start + minutes.astype("timedelta64[m]").astype("timedelta64[us]")
    view = released(moments, epsilon, kind="datetime", lower="2001-01-01", upper="2001-07-01")
    answers = []
    for day in range(3, 178, 5):
        first, last = (start + np.timedelta64(day + after, "D") for after in (0, 1))
        where = f"x >= '{first.astype('datetime64[D]')}' and x < '{last.astype('datetime64[D]')}'"
        answers.append((view.count(where), float((days == day).sum())))
    off = in_stderr(answers)
    assert np.abs(off).max() < 4
    assert np.mean(np.abs(off) < 2) > 0.88
    assert np.mean([answer.stderr for answer, _ in answers]) < 0.2 * ROWS / 181


def test_where_records_are_in_a_cell_above_all_others_is_not_known() -> None:
    """Bounds far beyond all values put every record into one cell: a share inside it was given as 0.05 ± 0.03 where it
    was 0.8, as if records were spread evenly.
    """
    random = np.random.default_rng(SEED)
    rows, names = 3000, [f"x{place}" for place in range(12)]
    columns = {name: {"kind": "number", "lower": 0, "upper": 20_000} for name in names}
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})
    table = pa.table({name: random.lognormal(2.3, 0.7, rows) for name in names})
    budget = dps.Budget(0.5)
    raw = dps.accumulate(table, schema, dps.Recipe.general(schema, budget=budget))
    with seeded_noise():
        view = dps.View(dps.release(raw, budget, dps.Ledger("sqlite://"), "a"))
    assert all(np.isnan(float(view.fraction(f"{name} <= 20").value)) for name in names)
    far = view.fraction("x0 <= 10000")
    assert abs(float(far.value) - 1) < 3 * float(far.stderr) < 0.6
