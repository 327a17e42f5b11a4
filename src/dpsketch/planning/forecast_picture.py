"""The table and the picture of a forecast: relative error against the budget, one line an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpsketch.displays import html_table
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import LOG, Axis, Picture, Series

_NOTE = "band: the least and the largest of the simulated tables"


def drawn(answers: Mapping[str, Sequence[Any]], good: float) -> Drawing:
    """Predictions by the name of their answer. Dates have no relative error and no line."""
    series = [_line(name, predictions) for name, predictions in answers.items()]
    series = [each for each in series if np.isfinite(each.y).any()]
    budgets = [each.budget for predictions in answers.values() for each in predictions]
    label = "epsilon" if all(budget.rho is None for budget in budgets) else "about epsilon"
    note = f"{_NOTE}; enough: {good:.0%} of the answer"
    title = "predicted error of answers"
    axes = Axis(label, LOG), Axis("error / typical answer", LOG)
    return Drawing((Picture(title, *axes, series=tuple(series), note=note),))


def html(answers: Mapping[str, Sequence[Any]]) -> str:
    """The predictions as a table."""
    header = ("query", "epsilon", "typical answer", "predicted error", "from – to")
    rows = [
        (label, f"{each.budget.epsilon:g}", *each.texts, each.range_text)
        for label, predictions in answers.items()
        for each in predictions
    ]
    return html_table("predicted errors", header, rows)


def _line(name: str, predictions: Sequence[Any]) -> Series:
    x = np.array([each.budget.strength for each in predictions])
    ends = [
        [
            number / abs(each.typical) if _positive(each.relative) else np.nan
            for number in (each.error, each.low, each.high)
        ]
        for each in predictions
    ]
    y, low, high = np.array(ends, np.float64).reshape(-1, 3).T
    return Series("line", x, y, np.where(low > 0, low, y), np.where(np.isfinite(high), high, y), name)


def _positive(relative: float) -> bool:
    return bool(np.isfinite(relative)) and relative > 0
