"""SQL's functions of numbers on arrays; NaN stands for null."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sqlglot import exp

from dpsketch.numerics.arrays import Floats

DATE_PARTS = "group by year(d), month(d) or date_trunc('month', d), and format the result"
KNOWN = (
    "+, -, *, /, %, power, abs, sign, sqrt, exp, ln, log, round, floor, ceil, least, greatest, coalesce, nullif, "
    "case, if, cast, width_bucket, year, month, day, hour, dayofweek, date_trunc, date_diff"
)


def _divided(left: Floats, right: Floats) -> Floats:
    return left / np.where(right == 0, np.nan, right)


def _remainder(left: Floats, right: Floats) -> Floats:
    return np.fmod(left, np.where(right == 0, np.nan, right))


def _power(left: Floats, right: Floats) -> Floats:
    known = ~np.isnan(left) & ~np.isnan(right)  # NumPy has 1 ** nan = nan ** 0 = 1
    return np.where(known, np.power(left, right), np.nan)


def rounded(values: Floats, decimals: int = 0) -> Floats:
    """Round half away from zero, as in SQL."""
    unit = 10.0**decimals
    return np.copysign(np.floor(np.abs(values) * unit + 0.5) / unit, values)


def logarithm(values: Floats, base: Floats | None = None) -> Floats:
    """Logarithm, to base 10 if none is given; null outside its domain."""
    positive = np.where(values > 0, values, np.nan)
    if base is None:
        return np.log10(positive)
    return np.log(positive) / np.log(np.where((base > 0) & (base != 1), base, np.nan))


TWO: dict[type[exp.Expr], Callable[[Floats, Floats], Floats]] = {
    exp.Add: np.add,
    exp.Sub: np.subtract,
    exp.Mul: np.multiply,
    exp.Div: _divided,
    exp.Mod: _remainder,
    exp.Pow: _power,
    exp.Nullif: lambda left, right: np.where(left == right, np.nan, left),
}
ONE: dict[type[exp.Expr], Callable[[Floats], Floats]] = {
    exp.Neg: np.negative,
    exp.Abs: np.abs,
    exp.Sign: np.sign,
    exp.Sqrt: lambda values: np.sqrt(np.where(values >= 0, values, np.nan)),
    exp.Exp: np.exp,
    exp.Ln: lambda values: np.log(np.where(values > 0, values, np.nan)),
    exp.Floor: np.floor,
    exp.Ceil: np.ceil,
}
MANY: dict[type[exp.Expr], Callable[[Floats, Floats], Floats]] = {  # applied pairwise
    exp.Least: np.fmin,
    exp.Greatest: np.fmax,
    exp.Coalesce: lambda left, right: np.where(np.isnan(left), right, left),
}
WHOLE = (exp.DType.INT, exp.DType.BIGINT, exp.DType.SMALLINT, exp.DType.TINYINT)
REAL = (exp.DType.DOUBLE, exp.DType.FLOAT)
