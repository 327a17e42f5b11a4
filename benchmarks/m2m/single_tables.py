"""Tables on which answers from the sums of a single map are judged.

`CHOSEN` are those on which constants were chosen, `JUDGES` those that were only looked at afterwards. A name is that of
a table, perhaps with what was done to its first columns: `+missing15` has 15 % of their cells missing, `+lower25` and
`+upper25` a quarter of them at a bound, `+spike25` at one number inside, `+rounded` all of them on twenty even numbers.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpsketch as dps
from benchmarks.data import DATA
from dpsketch.numerics.arrays import Floats

SEED, SPOILED = 10, 3  # seed of simulated rows; columns that are spoiled
ROWS = {"random10": 26_733, "beta": 26_733}  # as lifesci
SIMULATED_ROWS = 20_000
MOST_COLUMNS = 16  # of a real table
SPIKE = 0.3140625  # of the bounds: where a spike is
CHOSEN = (
    "random10",
    "beta",
    "lifesci",
    "california_housing",
    "beta+missing15",
    "california_housing+missing25",
    "beta+lower25",
    "random10+rounded",
    "adult_numbers",
    "adult_numbers+missing15",
    "airfoil",
    "sf_salaries",
    "zeros",
    "correlated",
    "naval",
    "gains",
    "random10+missing2",
)
JUDGES = (
    "htru2",
    "cod_rna",
    "skin",
    "occupancy",
    "lognormal",
    "bimodal",
    "normal_copula",
    "ages",
    "hours",
    "salaries",
    "ratings",
    "labels",
    "normal",
    "random10+missing15",
    "random10+missing40",
    "bimodal+missing15",
    "hours+missing15",
    "salaries+missing2",
    "htru2+missing25",
    "lognormal+missing40",
    "lifesci+missing15",
    "random10+lower25",
    "normal+upper25",
    "cod_rna+lower25",
    "lifesci+spike25",
    "random10+spike25",
    "normal+rounded",
    "covtype",
    "kddcup99_10pct",
    "normalised",
    "imputed",
)
Table = tuple[Any, dict[str, Any], int]  # rows, facts of the columns, declared number of rows


@lru_cache(1)
def table(name: str, declared: bool) -> tuple[Any, dps.Schema]:
    """Rows and their schema. If `declared`, a schema of numbers without missing cells says that there are none."""
    name, _, spoiled = name.partition("+")
    frame, facts, rows = real(name) if name not in SIMULATIONS else simulated(name)
    if spoiled:
        spoil(frame, facts, *re.fullmatch(r"([a-z]+)(\d*)", spoiled).groups())  # type: ignore[union-attr]
    if declared and not frame.isna().any(axis=None):
        facts = {
            column: {**each, "missing": each["lower"]} if "lower" in each else each for column, each in facts.items()
        }
    return frame, dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": facts})


def spoil(frame: Any, facts: dict[str, Any], what: str, percent: str) -> None:
    """Change cells of the first columns of numbers."""
    rng = np.random.default_rng(11)
    for column in [name for name in frame if "lower" in facts[name]][:SPOILED]:
        low, high = float(facts[column]["lower"]), float(facts[column]["upper"])
        if what == "rounded":
            frame[column] = low + np.rint((frame[column] - low) / (high - low) * 20) / 20 * (high - low)
            continue
        value = {"missing": np.nan, "lower": low, "upper": high, "spike": low + SPIKE * (high - low)}[what]
        frame.loc[rng.random(len(frame)) < int(percent) / 100, column] = value


def numbers(frame: Any, lower: float = 0, upper: float = 1, kind: str = "number") -> Table:
    """A table of columns with the same bounds, clamped to them."""
    facts = {column: {"kind": kind, "lower": lower, "upper": upper} for column in frame}
    return frame.clip(lower, upper), facts, len(frame)


def simulated(name: str) -> Table:
    rows = ROWS.get(name, SIMULATED_ROWS)
    frame, facts, _ = SIMULATIONS[name](np.random.default_rng(SEED), rows)
    return frame, facts, 27_000 if name in ROWS else rows


def real(name: str) -> Table:
    """The numbers of a table, as floats, clamped to their bounds."""
    name = name.removesuffix("_numbers")
    declared = tomllib.loads((DATA / "schemas" / f"{name}.toml").read_text())
    facts = {key: each for key, each in declared["columns"].items() if each["kind"] in ("number", "integer")}
    facts = dict(list(facts.items())[:MOST_COLUMNS])
    frame = pd.read_parquet(DATA / f"{name}.parquet", columns=list(facts)).astype(float)
    for key, each in facts.items():
        frame[key] = frame[key].clip(each["lower"], each["upper"])
    if name == "adult":  # the column of the spoiled cells is hours_per_week
        frame = frame[list(frame)[::-1]]
    return frame, {key: facts[key] for key in frame}, declared["privacy"]["rows"]


def columns(rows: NDArray[Any]) -> Any:
    return pd.DataFrame(rows, columns=[f"x{j}" for j in range(rows.shape[1])])


def _copula(rng: np.random.Generator, rows: int, width: int, correlation: float) -> Floats:
    common = rng.normal(size=(rows, 1))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(rows, width))


def _uniform(normal: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(normal))


def _ages(rng: np.random.Generator, rows: int) -> Table:
    """Ages of a census with heaps at multiples of five, top-coded, and years of schooling that depend on them."""
    ages = np.clip(rng.gamma(3.0, 14.0, (rows, 2)), 0, 120)
    heaped = np.where(rng.random((rows, 2)) < 0.3, 5 * np.rint(ages / 5), np.rint(ages))
    school = np.clip(np.rint(14 - heaped[:, :1] / 20 + rng.normal(0, 3, (rows, 1))), 0, 20)
    frame, facts, _ = numbers(columns(np.hstack([heaped, school])), 0, 90, "integer")
    facts["x2"]["upper"] = 20
    return frame, facts, rows


def _hours(rng: np.random.Generator, rows: int) -> Table:
    """Hours of work, nearly half of them 40, and two numbers."""
    hours = np.where(rng.random(rows) < 0.45, 40, np.rint(rng.normal(38, 14, rows)))
    other = np.stack([hours / 40 * rng.gamma(4, 5, rows), rng.gamma(2, 8, rows)], axis=1)
    return numbers(columns(np.column_stack([hours, other])), 1, 99, "integer")


def _salaries(rng: np.random.Generator, rows: int) -> Table:
    """Salaries, most of them one of forty grades or whole thousands, and what depends on them."""
    grades = 1000 * np.rint(np.exp(rng.normal(11, 0.35, 40)) / 1000) + 0.25
    own = np.exp(rng.normal(11, 0.4, rows))
    own = np.where(rng.random(rows) < 0.4, 1000 * np.rint(own / 1000), own)
    own = np.where(rng.random(rows) < 0.4, rng.choice(grades, rows, p=rng.dirichlet(np.full(40, 0.5))), own)
    extra = np.where(rng.random(rows) < 0.5, 0.0, own * rng.beta(1, 8, rows))
    return numbers(columns(np.stack([own, extra, own + extra, 0.3 * own], axis=1)), 0, 250_000)


def _labels(rng: np.random.Generator, rows: int) -> Table:
    """Two columns of labels, and numbers that depend on them."""
    label = rng.choice(5, rows, p=[0.5, 0.25, 0.15, 0.07, 0.03])
    x = rng.beta(1 + label, 4, rows)
    other = np.where(rng.random(rows) < x, "yes", "no")
    frame = pd.DataFrame({"x0": x, "x1": rng.beta(3, 3, rows), "group": np.array(list("abcde"))[label], "other": other})
    facts: dict[str, Any] = {name: {"kind": "number", "lower": 0, "upper": 1} for name in ("x0", "x1")}
    facts |= {"group": {"kind": "category", "values": list("abcde")}}
    facts |= {"other": {"kind": "category", "values": ["yes", "no"]}}
    return frame, facts, rows


def _normalised(rng: np.random.Generator, rows: int) -> Table:
    """Whole numbers that were divided by the largest one, which is not round."""
    largest = np.array([7.0, 11.0, 23.0, 6.0])
    return numbers(columns(rng.integers(0, [8, 12, 24, 7], (rows, 4)) / largest))


def _imputed(rng: np.random.Generator, rows: int) -> Table:
    """Columns of which a fifth had been missing and was replaced by the mean."""
    own = rng.gamma(3, 1.7, (rows, 5))
    return numbers(columns(np.where(rng.random(own.shape) < 0.2, own.mean(axis=0), own)), 0, 20)


def _bimodal(rng: np.random.Generator, rows: int) -> Floats:
    first = rng.random((rows, 4)) < 0.6
    return np.where(first, rng.normal(0.27, 0.05, first.shape), rng.normal(0.71, 0.08, first.shape))


def _mostly(rng: np.random.Generator, rows: int, value: float, others: Floats) -> Floats:
    return np.where(rng.random(others.shape) < 0.55, value, others)


SIMULATIONS: dict[str, Callable[[np.random.Generator, int], Table]] = {
    "random10": lambda rng, rows: numbers(columns(rng.random((rows, 10)))),
    "beta": lambda rng, rows: numbers(columns(rng.beta(2, 8, (rows, 10)))),
    "zeros": lambda rng, rows: numbers(columns(_mostly(rng, rows, 0, rng.gamma(2, 2, (rows, 5)))), 0, 20),
    "correlated": lambda rng, rows: numbers(columns(_uniform(_copula(rng, rows, 5, 0.8)))),
    "lognormal": lambda rng, rows: numbers(columns(np.exp(rng.normal(0, 0.8, (rows, 5)))), 0, 12),
    "bimodal": lambda rng, rows: numbers(columns(_bimodal(rng, rows))),
    "normal_copula": lambda rng, rows: numbers(columns(_copula(rng, rows, 4, 0.6)), -4, 4),
    "ages": _ages,
    "hours": _hours,
    "salaries": _salaries,
    "gains": lambda rng, rows: numbers(columns(_mostly(rng, rows, 0, rng.normal(2, 15, (rows, 4)))), -60, 90),
    "ratings": lambda rng, rows: numbers(columns(1 + rng.binomial(4, rng.beta(3, 2, (rows, 4)))), 1, 5, "integer"),
    "labels": _labels,
    "normalised": _normalised,
    "imputed": _imputed,
    "normal": lambda rng, rows: numbers(columns(rng.normal(10, 2.5, (rows, 8))), -5, 25),
}
