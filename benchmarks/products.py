"""A study: one release of noisy marginals and pair tables, one mixture of products, and the errors of its answers.

`python -m benchmarks.products --seeds 5 --first 0 --epsilon 1 0.1 --data lifesci adult` prints a line for each table
and ε: mean (worst) over seeds. Noise is floating-point Laplace noise with the scales that a release would have: this
measures an estimator and releases nothing. Bounds and categories come from the tables' schemas; `--tight` takes bounds
from the data instead, as the goals did that were set before there were schemas. Split of ε: rows 3 %, marginals 42 %
(`--marginals`), pairs the rest; with `--delta` noise is Gaussian and these are shares of the squared L2 budget.
Definitions: means and covariance over numeric columns on the [0, 1] scale, CDF at 20 equally spaced
points, 3-way over 300 conjunctions at data quantiles; score: AUC of logistic regression, R² for california_housing.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import DATA
from dpsketch.fitting.columns import ColumnSummary, Marginal, fit_marginal
from dpsketch.fitting.groups import choose_groups, groups_wanted, pooling_threshold
from dpsketch.learn.products.fit import Products, fit_products
from dpsketch.privacy.calibrate import gaussian_deviation
from dpsketch.schema import Floats

LABELS = {
    "occupancy": "occupancy",
    "htru2": "label",
    "adult": "income",
    "california_housing": "median_house_value",
    "cod_rna": "label",
}
SHARE_ROWS, SHARE_MARGINALS = 0.03, 0.42
POSITION_UNITS, CENTRED_UNITS = 0.25, 1.0
QUESTIONS = 300
DRAWS = 50_000
Cells = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """Cells of a column: `levels` values (0: bins between two atoms) or categories, then missing."""

    name: str
    ordered: bool
    levels: int

    def cells(self, bins: int) -> int:
        return (self.levels or bins + 2) + 1


@dataclass(frozen=True)
class Table:
    """Values on [0, 1], category codes, or NaN for missing; `label` is the column to predict."""

    columns: list[Column]
    train: Floats
    test: Floats
    label: int | None


def load(name: str, tight: bool = False) -> Table:
    schema = tomllib.loads((DATA / "schemas" / f"{name}.toml").read_text())["columns"]
    if name == "lifesci":
        schema.pop("label")
    frame = pd.read_parquet(DATA / f"{name}.parquet")
    columns, values = [], []
    for key, facts in schema.items():
        if facts["kind"] == "category":
            codes = {str(value): code for code, value in enumerate(facts["values"])}
            values.append(np.array([codes.get(str(value), np.nan) for value in frame[key]], float))
            columns.append(Column(key, False, len(codes)))
            continue
        bend = np.arcsinh if facts.get("transform") == "asinh" else np.asarray
        if tight:
            facts = facts | {"lower": frame[key].min().item(), "upper": frame[key].max().item()}
        low, high = bend(float(facts["lower"])), bend(float(facts["upper"]))
        values.append(np.clip((bend(frame[key].to_numpy(float)) - low) / (high - low), 0.0, 1.0))
        integer = facts["kind"] == "integer" and facts["upper"] - facts["lower"] < 200
        columns.append(Column(key, True, facts["upper"] - facts["lower"] + 1 if integer else 0))
    table = np.column_stack(values)
    label = list(schema).index(LABELS[name]) if name in LABELS else None
    if label is None:
        return Table(columns, table, table[:0], None)
    if "split" in frame and name == "adult":
        held_out = (frame["split"] == "test").to_numpy()
    else:
        held_out = np.zeros(len(table), bool)
        held_out[np.random.default_rng(1234).permutation(len(table))[: len(table) // 10]] = True
    return Table(columns, table[~held_out], table[held_out], label)


def cells_of(column: Column, values: Floats, bins: int) -> tuple[Cells, Floats]:
    """The cell of each value and its position in the cell."""
    missing, known = np.isnan(values), np.nan_to_num(values)
    position = np.zeros(len(values))
    if not column.ordered:
        cells = known.astype(np.int64)
    elif column.levels:
        cells = np.rint(known * (column.levels - 1)).astype(np.int64)
    else:
        inner = np.minimum((known * bins).astype(np.int64), bins - 1)
        atom = (known <= 0) | (known >= 1)
        position = np.where(atom | missing, 0.0, known * bins - inner - 0.5)
        cells = np.where(known <= 0, 0, np.where(known >= 1, bins + 1, inner + 1))
    return np.where(missing, column.cells(bins) - 1, cells), position


def geometry(column: Column, bins: int) -> tuple[Floats | None, Floats | None]:
    """Centres and widths of a column's cells."""
    if not column.ordered:
        return None, None
    if column.levels:
        return np.append(np.arange(column.levels) / (column.levels - 1), 0.5), np.zeros(column.levels + 1)
    centres = np.concatenate([[0.0], (np.arange(bins) + 0.5) / bins, [1.0, 0.5]])
    return centres, np.concatenate([[0.0], np.full(bins, 1 / bins), [0.0, 0.0]])


@dataclass(frozen=True)
class Noise:
    """Laplace noise, or Gaussian if δ > 0, by shares of the budget."""

    epsilon: float
    delta: float = 0.0

    def sd(self, share: float, l1: float, l2_squared: float) -> float:
        if not self.delta:
            return 2**0.5 * l1 / (share * self.epsilon)
        one = gaussian_deviation(Fraction(self.epsilon), Fraction(self.delta), 1)
        return one * (l2_squared / share) ** 0.5

    def draw(self, rng: np.random.Generator, sd: float, size: int | None = None) -> Any:
        return rng.normal(0, sd, size) if self.delta else rng.laplace(0, sd / 2**0.5, size)


def release(
    table: Table, budget: Noise, rng: np.random.Generator, share_marginals: float = SHARE_MARGINALS
) -> dict[str, Any]:
    """Noisy sums as a release would hold them, and the groups chosen from them."""
    values, columns = table.train, table.columns
    rows = max(1.0, len(values) + budget.draw(rng, budget.sd(SHARE_ROWS, 1, 1)))
    records = rows * share_marginals * budget.epsilon / len(columns)
    bins = 128 if records > 5000 else 64 if records > 200 else 16
    binned = [column.ordered and not column.levels for column in columns]
    ordered = [column.ordered for column in columns]
    norm = len(columns) + sum(binned) * POSITION_UNITS / 2 + sum(ordered) * CENTRED_UNITS / 2
    square = len(columns) + sum(binned) * POSITION_UNITS**2 / 4 + sum(ordered) * CENTRED_UNITS**2 / 4
    sd = budget.sd(share_marginals, norm, square)
    cells, summaries = [], []
    for j, column in enumerate(columns):
        cell, position = cells_of(column, values[:, j], bins)
        cells.append(cell)
        size = column.cells(bins)
        centres, widths = geometry(column, bins)
        counts = np.bincount(cell, minlength=size) + budget.draw(rng, sd, size)
        positions = centred = None
        if binned[j]:
            positions = np.bincount(cell, position, size) + budget.draw(rng, sd / POSITION_UNITS, size)
        if ordered[j]:
            centred = np.nansum(values[:, j] - 0.5) + budget.draw(rng, sd / CENTRED_UNITS)
        summaries.append(
            ColumnSummary(
                counts,
                sd,
                centres,
                widths,
                positions,
                sd / POSITION_UNITS,
                centred,
                sd / CENTRED_UNITS,
            )
        )
    pairs = list(combinations(range(len(columns)), 2))
    pair_sd = budget.sd(1 - SHARE_ROWS - share_marginals, len(pairs), len(pairs))
    wanted = groups_wanted(pair_sd / rows)
    groups = []
    for summary in summaries:
        threshold = pooling_threshold(summary.count_sd / rows, pair_sd / rows)
        groups.append(choose_groups(fit_marginal(summary, rows).shares, summary.ordered, wanted, threshold))
    tables = {}
    for i, j in pairs:
        shape = groups[i].max() + 1, groups[j].max() + 1
        code = groups[i][cells[i]] * shape[1] + groups[j][cells[j]]
        counts = np.bincount(code, minlength=shape[0] * shape[1]) + budget.draw(rng, pair_sd, shape[0] * shape[1])
        tables[i, j] = counts.reshape(shape)
    return dict(summaries=summaries, rows=rows, groups=groups, tables=tables, pair_sd=pair_sd)


Condition = tuple[int, str, float]


def questions(table: Table, rng: np.random.Generator) -> list[list[Condition]]:
    """Conjunctions of three columns: a side of a quantile, or a value drawn by frequency."""
    result = []
    for _ in range(QUESTIONS):
        conditions = []
        for j in rng.choice(len(table.columns), 3, replace=False):
            known = table.train[~np.isnan(table.train[:, j]), j]
            if table.columns[j].ordered:
                side = "<=" if rng.integers(2) else ">="
                conditions.append((int(j), side, float(np.quantile(known, rng.uniform(0.05, 0.95)))))
            else:
                conditions.append((int(j), "=", float(rng.choice(known))))
        result.append(conditions)
    return result


def truth(values: Floats, conditions: list[Condition]) -> float:
    holds = np.ones(len(values), bool)
    for j, operator, value in conditions:
        x = values[:, j]
        holds &= x <= value if operator == "<=" else x >= value if operator == ">=" else x == value
    return float(holds.mean())


def event(marginal: Marginal, operator: str, value: float) -> Floats:
    if operator == "=":
        return (np.arange(len(marginal.shares)) == value).astype(float)
    if operator == "<=":
        return marginal.below(value)
    above = 1 - marginal.below(np.nextafter(value, -1))
    above[-1] = 0.0
    return above


def draw(products: Products, count: int) -> Floats:
    """Records of values on [0, 1] and codes; missing categories get the code past the last."""
    cells = products.mixture.sample(count)
    rng = np.random.default_rng(3)
    values = np.empty(cells.shape)
    for j, marginal in enumerate(products.marginals):
        if marginal.centres is None or marginal.widths is None:
            values[:, j] = cells[:, j]
        else:
            reach = marginal.widths * (1 - 2 * np.abs(marginal.offsets))
            values[:, j] = marginal.means()[cells[:, j]] + reach[cells[:, j]] * (rng.random(count) - 0.5)
    return values


def encode(table: Table, values: Floats) -> Floats:
    parts = []
    for j, column in enumerate(table.columns):
        if j == table.label:
            continue
        x = values[:, j]
        if column.ordered or column.levels == 2:
            parts.append(np.nan_to_num(x, nan=0.5)[:, None])
        else:
            parts.append((np.nan_to_num(x, nan=column.levels)[:, None] == np.arange(column.levels)).astype(float))
    return np.hstack(parts)


def score(table: Table, training: Floats) -> float:
    """AUC of logistic regression, or R² of linear regression, on the real held-out records."""
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.metrics import r2_score, roc_auc_score
    from sklearn.preprocessing import StandardScaler

    assert table.label is not None
    known = training[:, table.label] < 2
    features, target = encode(table, training)[known], training[known, table.label]
    scale = StandardScaler().fit(features)
    features, held_out = scale.transform(features), scale.transform(encode(table, table.test))
    if table.columns[table.label].ordered:
        return float(r2_score(table.test[:, table.label], LinearRegression().fit(features, target).predict(held_out)))
    if len(np.unique(target)) < 2:
        return 0.5  # the noise left one class only
    model = LogisticRegression(C=0.2, max_iter=200).fit(features, target)
    return float(roc_auc_score(table.test[:, table.label], model.decision_function(held_out)))


class Study:
    def __init__(self, name: str, tight: bool = False) -> None:
        self.table = load(name, tight)
        self.questions = questions(self.table, np.random.default_rng(7))
        values = self.table.train
        self.truths = np.array([truth(values, question) for question in self.questions])
        self.numeric = [j for j, column in enumerate(self.table.columns) if column.ordered]
        self.mean = values[:, self.numeric].mean(0)
        self.covariance = np.cov(values[:, self.numeric].T, bias=True)
        self.points = np.linspace(0, 1, 22)[1:-1]
        self.cdf = np.array([[np.mean(values[:, j] <= t) for t in self.points] for j in self.numeric])

    def errors(self, products: Products) -> dict[str, float]:
        mixture, marginals = products.mixture, products.marginals
        chosen = [marginals[j] for j in self.numeric]
        mean, covariance = mixture.moments(self.numeric, [m.means() for m in chosen], [m.squares() for m in chosen])
        answers = [
            mixture.probability({j: event(marginals[j], operator, value) for j, operator, value in question})
            for question in self.questions
        ]
        cdf = np.array([[m.shares @ m.below(t) for t in self.points] for m in chosen])
        found = {
            "means": np.mean(np.abs(mean - self.mean) / np.abs(self.mean)),
            "cov": np.linalg.norm(covariance - self.covariance) / np.linalg.norm(self.covariance),
            "3-way": np.mean(np.abs(answers - self.truths)),
            "cdf": np.mean(np.abs(cdf - self.cdf)),
        }
        if self.table.label is not None:
            found["score"] = score(self.table, draw(products, DRAWS))
        return {key: float(value) for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="*", default=["lifesci", "occupancy", "adult", "htru2", "california_housing"])
    parser.add_argument("--epsilon", nargs="*", type=float, default=[1.0, 0.1])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--delta", type=float, default=0.0)
    parser.add_argument("--marginals", type=float, default=SHARE_MARGINALS)
    parser.add_argument("--tight", action="store_true")
    options = parser.parse_args()
    for name in options.data:
        study = Study(name, options.tight)
        for epsilon in options.epsilon:
            found: dict[str, list[float]] = {}
            for seed in range(options.first, options.first + options.seeds):
                rng = np.random.default_rng(seed)
                noisy = release(study.table, Noise(epsilon, options.delta), rng, options.marginals)
                start = time.process_time()
                products = fit_products(**noisy)
                seconds = time.process_time() - start
                for key, value in (study.errors(products) | {"seconds": seconds}).items():
                    found.setdefault(key, []).append(value)
            worst = {key: min(v) if key == "score" else max(v) for key, v in found.items()}
            figures = "  ".join(f"{key} {np.mean(v):.4f} ({worst[key]:.4f})" for key, v in found.items())
            print(f"{name:18} ε={epsilon:<5g} {figures}", flush=True)


if __name__ == "__main__":
    main()
