"""The moment-to-moment regression on points of your own: Algorithm 1 of the paper, and the weights of its points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.encoding.levels import levels_at
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.choice import Sources
from dpsketch.learn.estimators.plain_regression import PAPER_POINTS, PlainRegression, Terms
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.estimators.sum_blocks import Block
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.learn.sql.findings import Rows, judged
from dpsketch.learn.sql.functions import function_factor
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.ranges import ANYTHING, SHARE
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import Column, Integer, Number
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

MOST_POINTS = 1 << 17
LAWS = ("uniform", "fitted")
Domain = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class OwnTerms:
    """What `View.regression` was asked for."""

    points: Any = "uniform"
    count: int | None = None
    domain: Domain | None = None
    ridge: float | None = None
    intercept: bool = False


class Regression:
    """A ridge regression on a release's sums, fitted once, that answers for any function of its columns.

    `points` are the points as an Arrow table, `weights` their weights, of which some are negative: an expectation is
    the sum of the function's values at the points times the weights. `ridge` is λ, `columns` are those of the sums.
    """

    def __init__(self, schema: Schema, noise: ReleaseNoise, estimator: PlainRegression) -> None:
        self._schema, self._noise, self._estimator = schema, noise, estimator
        self.columns = estimator.columns

    def __repr__(self) -> str:
        count = self._estimator.points.frame.size
        return f"Regression({', '.join(self.columns)}; {count:,} points, λ = {self.ridge:.3g})"

    @property
    def ridge(self) -> float:
        return self._estimator.ridge

    @property
    def points(self) -> pa.Table:
        from dpsketch.learn.population.sampling import rows_of

        return rows_of(self._schema, self._estimator.points.frame)

    @property
    def weights(self) -> Floats:
        return self._estimator.weights

    def expect(self, function: Callable[[dict[str, Any]], Any] | str, columns: Sequence[str] | None = None) -> Answer:
        """The mean of a function of some columns (all of the regression by default), or the share of the records that
        meet a condition, as in `View.expect` and `View.fraction`.
        """
        if isinstance(function, str):
            factors = condition_factors(self._schema, parse_condition(function, self._schema))
        else:
            factors = [function_factor(self._schema, function, self.columns if columns is None else columns)]
        for name in (name for factor in factors for name in factor.columns):
            if name not in self.columns:
                raise QueryError(f"this regression has no column '{name}'", f"it has {', '.join(self.columns)}")
        rows = Rows(self._noise.table_rows(-np.inf), self._schema.rows)
        possible = SHARE if isinstance(function, str) else ANYTHING
        found = judged(self._estimator.expect(factors), possible, rows, in_rows=False)
        how, rough = self._estimator.how, np.ones(1, bool)
        return replace(found, how=how, laplace=rough, causes_of=self._noise.causes).answers()[0]


def own_regression(
    schema: Schema, noise: ReleaseNoise, sources: Sources, columns: Sequence[str] | None, terms: OwnTerms
) -> Regression:
    """The regression on the sums of these columns, or by default on those of the most columns."""
    names = None if columns is None else [find_column(schema, name).name for name in columns]
    ridge = terms.ridge
    if ridge is not None and (isinstance(ridge, bool) or not isinstance(ridge, float | int) or not 0 < ridge < np.inf):
        raise QueryError(f"ridge must be a number above 0, got {ridge!r} instead", "leave it out for the paper's λ")
    block = sources.sums_of(names)
    codes = _codes(schema, sources, block, terms)
    fitted = PlainRegression(schema, noise, block, codes, Terms(terms.ridge, terms.intercept, True))
    return Regression(schema, noise, fitted)


def _codes(schema: Schema, sources: Sources, block: Block, terms: OwnTerms) -> dict[str, Codes]:
    columns, own = block.columns, not isinstance(terms.points, str)
    if own or terms.points == "fitted":
        if terms.count is not None or terms.domain is not None:
            raise QueryError("count and domain are of uniform points", 'leave them out, or pass points="uniform"')
        frame = Frame.read(schema, columns, terms.points) if own else sources.fitted_points(block)
        if not 1 <= frame.size <= MOST_POINTS:
            raise QueryError(f"a regression takes 1 to {MOST_POINTS:,} points, got {frame.size:,}", "draw fewer points")
        return {name: frame.codes(name) for name in columns}
    if terms.points != "uniform":
        raise QueryError(
            f"points must be a table, or one of {', '.join(LAWS)}, got {terms.points!r} instead",
            "a mapping of columns, a data frame or an Arrow table has points in the columns' units",
        )
    count = PAPER_POINTS if terms.count is None else terms.count
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_POINTS:
        raise QueryError(f"count must be a whole number from 1 to {MOST_POINTS}, got {count!r} instead")
    domain = terms.domain or {}
    for name in domain:
        if name not in columns:
            raise QueryError(f"the sums have no column '{name}'", f"they have {', '.join(columns)}")
    from scipy.stats import qmc

    uniforms = qmc.Sobol(len(columns), seed=0).random(1 << (count - 1).bit_length())[:count].T
    return {
        name: _uniform(schema.column(name), domain.get(name), places)
        for name, places in zip(columns, uniforms, strict=True)
    }


def _uniform(column: Column, ends: tuple[float, float] | None, uniforms: Floats) -> Codes:
    """Codes of uniform places between the bounds of a column, or between two of its values."""
    first, last = 0, column.levels - 1
    if ends is not None:
        if not isinstance(column, Number | Integer):
            raise QueryError(f"column '{column.name}' has no numbers to bound", "give the domain of numbers alone")
        try:
            low, high = (float(end) for end in ends)
        except (TypeError, ValueError):
            raise QueryError(f"the domain of '{column.name}' must be two numbers", "(18, 65)") from None
        if not column.lower <= low < high <= column.upper:
            raise QueryError(
                f"the domain of '{column.name}' must rise, inside {column.lower:g} to {column.upper:g}; got {ends!r}",
                "the schema's bounds are the widest domain",
            )
        first, last = levels_at(column, np.array([low, high])).tolist()
    return column.codes_of(first + np.minimum((uniforms * (last - first + 1)).astype(np.int64), last - first))
