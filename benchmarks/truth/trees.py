"""Boosted trees trained on rows, scored on the rows held out: R², or for classes the area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks.truth.tables import Table
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Boolean, Category, Column

# The target and the class to find, where the target has several.
CLASSES = {"covtype": ("cover_type", "2")}
CHANCE = 0.5


def score(table: Table, rows: Any) -> float:
    """Trees that are trained on `rows`, which have the table's columns."""
    wanted_name, _ = CLASSES.get(table.name, (table.target, ""))
    assert wanted_name is not None
    target, names = table.schema.column(wanted_name), [column.name for column in table.schema.columns]
    features = [table.schema.column(name) for name in names if name != target.name]
    inputs, tests = (
        np.column_stack([_numbers(each, frame[each.name]) for each in features]) for frame in _both(table, rows)
    )
    wanted, truths = (_numbers(target, frame[target.name]) for frame in _both(table, rows))
    known, tested = ~np.isnan(wanted), ~np.isnan(truths)
    inputs, wanted, tests, truths = inputs[known], wanted[known], tests[tested], truths[tested]
    if target.numeric and target.levels > 2:
        model = HistGradientBoostingRegressor(random_state=0).fit(inputs, wanted)
        return float(r2_score(truths, model.predict(tests)))
    positive = _positive(table.name, target, truths)
    if len(np.unique(wanted == positive)) < 2:
        return CHANCE
    model = HistGradientBoostingClassifier(random_state=0).fit(inputs, wanted == positive)
    return float(roc_auc_score(truths == positive, model.predict_proba(tests)[:, 1]))


def _both(table: Table, rows: Any) -> tuple[Any, Any]:
    return rows, table.test


def _positive(name: str, target: Column, truths: Floats) -> float:
    if name in CLASSES and isinstance(target, Category):
        return float(target.labels.index(CLASSES[name][1]))
    return float(truths.max())


def _numbers(column: Column, cells: Any) -> Floats:
    """Labels by their places in the schema; missing as not a number."""
    cells = pd.Series(cells)
    if isinstance(column, Category):
        places = {label: float(place) for place, label in enumerate(column.labels)}
        return cells.astype("string").map(places).to_numpy(float, na_value=np.nan)
    if isinstance(column, Boolean):
        return cells.astype("boolean").astype("Float64").to_numpy(float, na_value=np.nan)
    if column.dates:
        return pd.to_datetime(cells).astype("int64").to_numpy(float)
    return cells.to_numpy(float)
