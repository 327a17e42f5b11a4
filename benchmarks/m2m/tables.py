"""The tables of the m2m study, on the scale of their schemas: [0, 1] for numbers, codes for categories."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import dpsketch as dps
from benchmarks.data import DATA
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Category, Integer, Number

TUNED = ("lifesci", "occupancy", "adult", "htru2", "california_housing")
HELD_OUT = ("covtype", "cod_rna")
LABELS = {
    "occupancy": "occupancy",
    "htru2": "label",
    "adult": "income",
    "california_housing": "median_house_value",
    "cod_rna": "label",
}
TIGHT = " (own bounds)"  # after a table's name: bounds of numbers are those of the data, as when the goals were set
RANDOM10 = "random10"
RANDOM10_ROWS = 26_733
SPLIT_SEED = 1234


@dataclass(frozen=True)
class Column:
    """`levels` values of a category or a whole number; 0 for a real one."""

    name: str
    ordered: bool
    levels: int
    low: float = 0.0
    high: float = 1.0
    asinh: bool = False
    labels: tuple[str, ...] = ()

    def scale(self, numbers: Floats) -> Floats:
        low, high = self._bent(np.array([self.low, self.high]))
        return np.clip((self._bent(numbers) - low) / (high - low), 0.0, 1.0)

    def unscale(self, place: float) -> float:
        low, high = self._bent(np.array([self.low, self.high]))
        bent = low + place * (high - low)
        return float(np.sinh(bent) if self.asinh else bent)

    def _bent(self, numbers: Floats) -> Floats:
        return np.arcsinh(numbers) if self.asinh else numbers


@dataclass(frozen=True, eq=False)
class Table:
    """Training rows and held-out `test` rows: values on [0, 1], category codes, NaN for missing.

    `source` and `test_source` are both in the schema's units; `label` is the column to predict.
    """

    name: str
    schema: dps.Schema
    columns: tuple[Column, ...]
    rows: Floats
    test: Floats
    source: pa.Table
    test_source: pa.Table
    label: int | None

    @cached_property
    def numeric(self) -> list[int]:
        return [j for j, column in enumerate(self.columns) if column.ordered]

    @cached_property
    def known(self) -> list[Floats]:
        """The present values of each column, sorted."""
        return [np.sort(column[~np.isnan(column)]) for column in self.rows.T]

    @property
    def declared_rows(self) -> int:
        return self.schema.rows or len(self.rows)


@lru_cache(2)
def load(name: str) -> Table:
    if name == RANDOM10:
        return _random10()
    kind = name.removesuffix(TIGHT)
    facts = tomllib.loads((DATA / "schemas" / f"{kind}.toml").read_text())
    if kind == "lifesci":
        del facts["columns"]["label"]
    if kind == "covtype":
        facts["columns"] = {key: each for key, each in facts["columns"].items() if each["kind"] != "boolean"}
    frame = pd.read_parquet(DATA / f"{kind}.parquet")
    if name != kind:
        for key, each in facts["columns"].items():
            if each["kind"] == "number":
                each |= {"lower": float(frame[key].min()), "upper": float(frame[key].max())}
    return build(name, dps.Schema.from_dict(facts), frame, _held_out(kind, frame), LABELS.get(kind))


def build(name: str, schema: dps.Schema, frame: Any, held_out: Any, predicted: str | None = None) -> Table:
    columns = tuple(_column(each) for each in schema.columns)
    values = np.column_stack([_values(column, frame[column.name]) for column in columns])
    source, test = (
        pa.Table.from_pandas(frame.loc[chosen, [column.name for column in columns]], preserve_index=False)
        for chosen in (~held_out, held_out)
    )
    label = None if predicted is None else [column.name for column in columns].index(predicted)
    return Table(name, schema, columns, values[~held_out], values[held_out], source, test, label)


def _held_out(name: str, frame: Any) -> Any:
    """The official test rows of adult, else a tenth at random; none where nothing is predicted."""
    held_out = np.zeros(len(frame), bool)
    if name == "adult":
        return (frame["split"] == "test").to_numpy()
    if name in LABELS:
        held_out[np.random.default_rng(SPLIT_SEED).permutation(len(frame))[: len(frame) // 10]] = True
    return held_out


def _column(column: Any) -> Column:
    if isinstance(column, Category):
        labels = tuple(str(value) for value in column.values)
        return Column(column.name, False, len(labels), labels=labels)
    if isinstance(column, Integer):
        return Column(column.name, True, column.levels, column.lower, column.upper)
    assert isinstance(column, Number)
    assert column.transform in (None, "asinh")
    return Column(column.name, True, 0, column.lower, column.upper, column.transform == "asinh")


def _values(column: Column, cells: Any) -> Floats:
    if column.ordered:
        return column.scale(cells.to_numpy(float))
    codes = {label: float(code) for code, label in enumerate(column.labels)}
    return np.array([codes.get(str(cell), np.nan) for cell in cells])


def _random10() -> Table:
    names = [f"x{j}" for j in range(10)]
    frame = pd.DataFrame(np.random.default_rng(10).random((RANDOM10_ROWS, 10)), columns=names)
    columns = {name: {"kind": "number", "lower": 0, "upper": 1} for name in names}
    schema = dps.Schema.from_dict({"privacy": {"rows": 27_000}, "columns": columns})
    return build(RANDOM10, schema, frame, np.zeros(RANDOM10_ROWS, bool))
