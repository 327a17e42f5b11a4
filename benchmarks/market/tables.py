"""The study's tables: owners, validation sets and test sets, as EXPERIMENTS defines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import DATA
from dpsketch.federate.market.kernel_distance import median_width
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.schema import Schema

PIXELS, COLUMNS, BOUND = 784, 50, 1.0
MATRIX_SEED = 5
DIGITS = {"a": (0, 1), "b": (3, 4), "c": (5, 6), "d": (7, 8), "e": (9, 2)}
HARD_DIGITS = {"a": (0, 3), "b": (1, 4), "c": (5, 6), "d": (7, 8), "e": (9, 2)}


@dataclass(frozen=True, eq=False)
class Study:
    """One draw of a study: its schema, owners' tables, a validation set without labels, and a test set with them."""

    name: str
    schema: Schema
    label: str
    width: float
    owners: Mapping[str, pa.Table]
    validation: pa.Table
    test: pa.Table
    seed_rows: pa.Table | None = None


def study(name: str, seed: int) -> Study:
    return {
        "mnist": lambda: mnist(seed, DIGITS),
        "hard": lambda: mnist(seed, HARD_DIGITS),
        "allstate": lambda: allstate(seed),
    }[name]()


@lru_cache(maxsize=1)
def _projected() -> tuple[Floats, Any, Any]:
    table = pq.read_table(DATA / "mnist.parquet")
    pixels = table["pixels"].combine_chunks().flatten().to_numpy().reshape(-1, PIXELS) / 255
    return pixels @ matrix(), table["label"].to_numpy(), np.array(table["split"].to_pylist()) == "train"


def matrix() -> Floats:
    """The public projection: every column has rows of norm 1 before it is scaled, so images of norm up to 28 fit."""
    drawn = np.random.default_rng(MATRIX_SEED).normal(size=(PIXELS, COLUMNS))
    return drawn / np.sqrt(PIXELS)


@lru_cache(maxsize=1)
def digits_schema() -> Schema:
    numbers = {f"x{i}": {"kind": "number", "lower": -BOUND, "upper": BOUND} for i in range(COLUMNS)}
    label = {"digit": {"kind": "category", "values": [str(d) for d in range(10)]}}
    return Schema.from_dict({"privacy": {"rows": 10_000}, "columns": numbers | label})


def digits_table(values: Floats, labels: Any, labelled: bool = True) -> pa.Table:
    columns = {f"x{i}": values[:, i] for i in range(COLUMNS)}
    return pa.table(columns | ({"digit": labels.astype(str)} if labelled else {}))


def mnist(seed: int, owners: Mapping[str, tuple[int, ...]]) -> Study:
    """Digits by owner; the target holds 3s and 4s at 0.7 to 0.3, a quarter of it the validation set."""
    rng = np.random.default_rng(seed)
    values, labels, train = _projected()
    tables = {
        name: digits_table(values[train & np.isin(labels, digits)], labels[train & np.isin(labels, digits)])
        for name, digits in owners.items()
    }
    threes = np.flatnonzero(~train & (labels == 3))
    fours = rng.permutation(np.flatnonzero(~train & (labels == 4)))[: int(len(threes) * 3 / 7)]
    target = rng.permutation(np.concatenate([threes, fours]))
    cut = len(target) // 4
    validation, test = target[:cut], target[cut:]
    width = median_width((random_images() / BOUND + 1) / 2)
    return Study(
        "mnist",
        digits_schema(),
        "digit",
        width,
        tables,
        digits_table(values[validation], labels[validation], labelled=False),
        digits_table(values[test], labels[test]),
    )


def random_images() -> Floats:
    """Uniform random images through the projection: a public reference for the kernel's width."""
    return np.random.default_rng(1).random((1000, PIXELS)) @ matrix()


STATES = ("FL", "CT", "OH")
NUMBERS = {
    "shopping_pt": (1, 13),
    "day": (0, 6),
    "group_size": (1, 4),
    "homeowner": (0, 1),
    "car_age": (0, 85),
    "age_oldest": (18, 75),
    "age_youngest": (16, 75),
    "married_couple": (0, 1),
    "duration_previous": (0, 15),
    "cost": (260, 922),
}
CATEGORIES = {
    "car_value": "abcdefghi",
    "risk_factor": "1234",
    "c_previous": "1234",
    "opt_a": "012",
    "opt_b": "01",
    "opt_c": "1234",
    "opt_d": "123",
    "opt_e": "01",
    "opt_f": "0123",
}


@lru_cache(maxsize=1)
def quotes_schema() -> Schema:
    """Numbers with stated ranges, and one column for each label, so that distances between labels are equal."""
    columns: dict[str, Any] = {
        name: {"kind": "integer", "lower": low, "upper": high, "missing": low} for name, (low, high) in NUMBERS.items()
    }
    for name, labels in CATEGORIES.items():
        columns |= {f"{name}_{label}": {"kind": "integer", "lower": 0, "upper": 1} for label in labels}
    columns["opt_g"] = {"kind": "category", "values": list("1234")}
    return Schema.from_dict({"privacy": {"rows": 2000}, "columns": columns})


@lru_cache(maxsize=1)
def _quotes() -> tuple[pa.Table, Any]:
    """One quote a customer, the last one, with a column for each label."""
    frame = pq.read_table(DATA / "allstate_quotes_test.parquet").to_pandas()
    frame = frame[frame.state.isin(STATES)].drop_duplicates("customer_id", keep="last")
    columns = {name: frame[name].to_numpy() for name in NUMBERS}
    for name, labels in CATEGORIES.items():
        text = frame[name].map(lambda cell: "" if cell != cell else str(cell).removesuffix(".0"))
        columns |= {f"{name}_{label}": (text == label).to_numpy().astype(np.int64) for label in labels}
    columns["opt_g"] = frame.opt_g.astype(str).to_numpy()
    return pa.table(columns), frame.state.to_numpy()


def allstate(seed: int) -> Study:
    """Florida in four, Connecticut's 70 % to one of them; a quarter of the other 30 % is the validation set."""
    rng = np.random.default_rng(seed)
    table, state = _quotes()
    florida, connecticut = (rng.permutation(np.flatnonzero(state == name)) for name in ("FL", "CT"))
    sold = int(0.7 * len(connecticut))
    parts = [florida[i::4] for i in range(4)]
    parts[0] = np.concatenate([parts[0], connecticut[:sold]])
    rest = connecticut[sold:]
    cut = len(rest) // 4
    schema = quotes_schema()
    ohio = rng.permutation(np.flatnonzero(state == "OH"))[:150]
    return Study(
        "allstate",
        schema,
        "opt_g",
        quotes_width(),
        {name: table.take(rows) for name, rows in zip("abcd", parts, strict=True)},
        table.take(rest[:cut]).drop_columns(["opt_g"]),
        table.take(rest[cut:]),
        table.take(ohio),
    )


def quotes_width() -> float:
    """Median distance of two records drawn uniformly within the declared bounds."""
    rng = np.random.default_rng(1)
    parts = [rng.random((1000, len(NUMBERS)))]
    parts += [np.eye(len(labels))[rng.integers(len(labels), size=1000)] for labels in CATEGORIES.values()]
    return median_width(np.hstack(parts))
