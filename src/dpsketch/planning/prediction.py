"""The predicted error of an answer at a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsketch.learn.answer import Answer
from dpsketch.privacy.budget import Budget


@dataclass(frozen=True)
class Prediction:
    """The predicted error of one answer at one budget, pooled over all groups with `group by`."""

    query: str
    answer: str  # the entry of the select list
    budget: Budget
    typical: float | np.datetime64  # median size of the true answers; nan if the simulated tables have none
    error: float  # the median standard error that simulated releases state, in seconds for dates; infinite if unknown
    low: float  # the least and the largest of the simulated tables
    high: float
    how: str
    without_hint: float | None = None  # the error without important pairs; None where they change nothing

    @property
    def texts(self) -> tuple[str, str]:
        """The typical answer and the error as texts; the error of a date is a duration."""
        if np.isnan(self.error):
            return "no such rows", "-"
        return str(Answer(self.typical, self._as_error(self.error))).split(" ± ")[0], self._text(self.error)

    @property
    def text_without_hint(self) -> str:
        """The error without important pairs as a text; that of the release where they change nothing."""
        error = self.error if self.without_hint is None else self.without_hint
        return "-" if np.isnan(error) else self._text(error)

    @property
    def range_text(self) -> str:
        return "-" if np.isnan(self.error) else f"{self._text(self.low)} – {self._text(self.high)}"

    def _text(self, error: float) -> str:
        if not np.isfinite(error):
            return "no answer"
        return str(Answer(self.typical, self._as_error(error))).split(" ± ")[1]

    def _as_error(self, error: float) -> float | np.timedelta64:
        if not isinstance(self.typical, np.datetime64):
            return error
        known = np.isfinite(error)
        return np.timedelta64(int(min(error * 1e6, 2.0**62)), "us") if known else np.timedelta64("NaT", "us")

    @property
    def relative(self) -> float:
        """The error divided by the typical answer; NaN for dates."""
        if isinstance(self.typical, np.datetime64) or not self.typical:
            return float("nan")
        return self.error / abs(self.typical)

    def to_dict(self) -> dict[str, Any]:
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        typical = str(self.typical) if isinstance(self.typical, np.datetime64) else _plain(self.typical)
        numbers = {name: _plain(getattr(self, name)) for name in ("error", "low", "high", "relative")}
        spent = budget if self.budget.rho is None else {"rho": self.budget.rho}
        if self.without_hint is not None:
            numbers["without_hint"] = _plain(self.without_hint)
        return {"query": self.query, "answer": self.answer} | spent | {"typical": typical} | numbers | {"how": self.how}


def _plain(number: float) -> float | None:
    return number if np.isfinite(number) else None
