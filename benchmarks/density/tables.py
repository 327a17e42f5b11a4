"""The study's tables: rows, public schemas, and the splits that EXPERIMENTS defines.

Bounds are those of the schema files; where the study derives a column (a projection, a logarithm, a clamp) its bounds
are stated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dpsketch as dps
from benchmarks.data import DATA
from dpsketch.learn.points import Frame
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import LOWEST, SPAN, Category
from dpsketch.schema.schema import Schema

TEST_SHARE = 0.2
DIGIT_COLUMNS, DIGIT_BOUND = 50, 1.0
DIGIT_SEED = 5  # seed of the matrix with which goals were set; accuracies differ by three points between matrices
_PIXELS = 784


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test rows under one schema, whose other columns are the features."""

    name: str
    schema: Schema
    target: str
    train: pa.Table
    test: pa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema.scalars if column.name != self.target)

    def features(self, table: pa.Table) -> Floats:
        return unit_features(self.schema, self.columns, table)


@lru_cache(maxsize=4)
def table_of(name: str) -> pa.Table:
    return pq.read_table(DATA / f"{name}.parquet")


def schema_of(name: str, columns: Sequence[str] | None = None, rows: int | None = None) -> Schema:
    """The facts of a schema file about some columns; `rows` where the study sketches only a part of the table."""
    facts = Schema.load(DATA / "schemas" / f"{name}.toml").to_dict()
    if columns is not None:
        facts["columns"] = {column: facts["columns"][column] for column in columns}
    if rows is not None:
        facts["privacy"] |= {"rows": public_rows(rows)}
    return Schema.from_dict(facts)


def public_rows(rows: int) -> int:
    """The order of magnitude that a curator would declare, to two digits."""
    step = 10 ** max(len(str(rows)) - 2, 0)
    return max(round(rows / step) * step, 1)


def unit_features(schema: Schema, columns: Sequence[str], table: pa.Table) -> Floats:
    """Features scaled to 0 … 1 by the declared bounds, one per label; missing cells at the midpoint."""
    frame = Frame.read(schema, columns, table)
    parts = []
    for name in columns:
        column, codes = schema.column(name), frame.codes(name)
        if isinstance(column, Category):
            parts.append((frame.levels(name)[:, None] == np.arange(column.levels)).astype(np.float64))
        else:
            parts.append(np.where(codes >= LOWEST, (codes.astype(np.float64) - LOWEST) / SPAN, 0.5)[:, None])
    return np.hstack(parts)


def labels_of(table: pa.Table, target: str) -> np.ndarray:
    return np.asarray(table[target].to_numpy(zero_copy_only=False))


def distinct(table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The table without duplicates in these columns, or in all, in the order of first appearance."""
    numbered = table.append_column("_place", pa.array(np.arange(len(table))))
    names = table.column_names if columns is None else list(columns)
    first = numbered.group_by(names, use_threads=False).aggregate([("_place", "min")])
    return table.take(np.sort(first["_place_min"].to_numpy()))


def random_split(table: pa.Table, seed: int, share: float = TEST_SHARE) -> tuple[pa.Table, pa.Table]:
    """Training rows, and a fraction of test rows."""
    order = np.random.default_rng([seed, 1]).permutation(len(table))
    cut = round(share * len(table))
    return table.take(order[cut:]), table.take(order[:cut])


def classification(name: str, seed: int) -> Split:
    if name == "mnist":
        train, test = digits("train"), digits("test")
        return Split(name, digit_schema(len(train)), "label", train, test)
    target = {"occupancy": "occupancy", "covtype": "cover_type"}.get(name, "label")
    columns = [column.name for column in schema_of(name).scalars]
    table = table_of(name)
    if name in ("occupancy", "cod_rna"):
        if name == "cod_rna":
            table = distinct(table, columns)  # a row in both parts stays in the first, for training
        of_train = pc.equal(table["split"], "train")
        train, test = table.filter(of_train), table.filter(pc.invert(of_train))
    elif name == "skin":
        train, test = _by_colour(table, seed)
    else:
        train, test = random_split(distinct(table) if name == "nomao" else table, seed)
    return Split(name, schema_of(name, columns, len(train)), target, train.select(columns), test.select(columns))


def regression(name: str, seed: int) -> Split:
    if name == "gas":
        file, target = "gas_drift_partial", "log_ppmv"
        table = table_of(file)
        table = table.append_column(target, pa.array(np.log(table["concentration_ppmv"].to_numpy())))
        columns = [f"f{index}" for index in range(1, 129)]
        facts = schema_of(file, columns).to_dict()
        facts["columns"][target] = {"kind": "number", "lower": 0.0, "upper": float(np.log(1000.0))}
    else:
        file = {"california": "california_housing"}.get(name, name)
        target = {"california": "median_house_value", "airfoil": "sound_pressure_db", "naval": "gt_compressor_decay"}[
            name
        ]
        table, facts = table_of(file), schema_of(file).to_dict()
        facts["columns"].pop("gt_turbine_decay", None)
    train, test = random_split(table, seed)
    facts["privacy"] |= {"rows": public_rows(len(train))}
    schema = Schema.from_dict(facts)
    columns = [column.name for column in schema.scalars]
    return Split(name, schema, target, train.select(columns), test.select(columns))


@dataclass(frozen=True, eq=False)
class Anomalies:
    """Normal rows to learn from, and test rows of which some are anomalous."""

    name: str
    schema: Schema
    train: pa.Table
    test: pa.Table
    anomalous: np.ndarray

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema.scalars)


def anomalies(name: str, seed: int) -> Anomalies:
    """kdd99, htru2, or `digit 3`."""
    if name.startswith("digit"):
        digit = int(name.split()[1])
        train = digits("train").filter(pc.equal(digits("train")["label"], digit))
        test = digits("test")
        odd = labels_of(test, "label") != digit
        schema = digit_schema(len(train), label=False)
        columns = [column.name for column in schema.scalars]
        return Anomalies(name, schema, train.select(columns), test.select(columns), odd)
    file = {"kdd99": "kddcup99_10pct"}.get(name, name)
    table = distinct(table_of(file)) if name == "kdd99" else table_of(file)
    odd = labels_of(table, "label") != ("normal" if name == "kdd99" else 0)
    columns = [column.name for column in schema_of(file).scalars if column.name != "label"]
    normal = np.random.default_rng([seed, 2]).permutation(np.flatnonzero(~odd))
    half = len(normal) // 2
    places = np.sort(np.concatenate([normal[half:], np.flatnonzero(odd)]))
    return Anomalies(
        name,
        schema_of(file, columns, half),
        table.take(normal[:half]).select(columns),
        table.take(places).select(columns),
        odd[places],
    )


@lru_cache(maxsize=2)
def digits(split: str) -> pa.Table:
    """Images, pixels/255, projected to 50 numbers by a fixed public Gaussian matrix."""
    table = table_of("mnist")
    table = table.filter(pc.equal(table["split"], split))
    pixels = table["pixels"].combine_chunks().flatten().to_numpy().reshape(-1, _PIXELS) / 255.0
    matrix = np.random.default_rng(DIGIT_SEED).normal(size=(_PIXELS, DIGIT_COLUMNS)) / np.sqrt(_PIXELS)
    numbers = pixels @ matrix
    columns = {f"x{index}": numbers[:, index] for index in range(DIGIT_COLUMNS)}
    return pa.table(columns | {"label": table["label"]})


def digit_schema(rows: int, label: bool = True) -> Schema:
    column = {"kind": "number", "lower": -DIGIT_BOUND, "upper": DIGIT_BOUND}
    columns: dict[str, dict[str, object]] = {f"x{index}": dict(column) for index in range(DIGIT_COLUMNS)}
    if label:
        columns["label"] = {"kind": "category", "values": list(range(10))}
    return dps.Schema.from_dict({"privacy": {"rows": public_rows(rows)}, "columns": columns})


def _by_colour(table: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """A split without a colour in both parts: with random rows, most test colours would be among the training ones."""
    colours = [table[name].to_numpy().astype(np.int64) for name in ("blue", "green", "red")]
    key = (colours[0] << 16) + (colours[1] << 8) + colours[2]
    each, index = np.unique(key, return_inverse=True)
    held = np.zeros(len(each), bool)
    held[np.random.default_rng([seed, 3]).permutation(len(each))[: round(TEST_SHARE * len(each))]] = True
    return table.filter(pa.array(~held[index])), table.filter(pa.array(held[index]))
