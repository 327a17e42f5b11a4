"""Questions to a released sketch. Nothing here can reach data, raw sums or secret randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsketch.displays import counted, html_table, text_table
from dpsketch.errors import QueryError
from dpsketch.learn import histograms
from dpsketch.learn import queries as sql
from dpsketch.learn.answer import Answer, Causes, Estimate, stacked
from dpsketch.learn.choice import Chosen, Sources, least_error
from dpsketch.learn.contents import COLUMNS, SAMPLE_HINT, asks_for_contents, column_rows, contents_line, good_for
from dpsketch.learn.covariances import Block, mean_of, pairwise_covariances, shifted, symmetric, variance_of
from dpsketch.learn.estimators.race_parts import RaceParts
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, columns_of
from dpsketch.learn.noise_shape import LaplaceCoordinates
from dpsketch.learn.sql import ranges
from dpsketch.learn.sql.aggregates import KINDS
from dpsketch.learn.sql.clamped import clamped_columns, with_clamped
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.learn.sql.findings import Finding, Rows, between, judged, judged_matrix
from dpsketch.learn.sql.formulas import Aggregate, value_of
from dpsketch.learn.sql.functions import function_factor
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.presence import with_own_presence
from dpsketch.learn.sql.quantities import column_quantity
from dpsketch.learn.sql.selection import Estimator, Selection, check_arithmetic, column_number, power_of
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe import declared_rows
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsketch.learn.own_regression import Domain, Regression
    from dpsketch.learn.population.weighted_rows import Population


class View:
    """Answers from one release, any number of them, each with its standard error. Threads may share a view.

    With `keep`, slow fits are kept in the user's cache, as `dps.open` does. `method` is "auto", or "ridge-paper" for
    the plain regression of the moment-to-moment paper, for comparison.
    """

    def __init__(self, released: ReleasedSketch, keep: bool = False, method: str = "auto") -> None:
        self.released = released
        self.schema: Schema = released.schema
        self._noise = ReleaseNoise(released)
        self._sources = Sources(released, self._noise, keep, method)
        self._races = RaceParts(released)
        self._laplace = LaplaceCoordinates(released)

    def __repr__(self) -> str:
        return f"{self._title}\n{text_table(COLUMNS, column_rows(self.schema))}"

    def _repr_html_(self) -> str:
        return html_table(self._title, COLUMNS, column_rows(self.schema)) + histograms.in_notebook(self)

    @property
    def _title(self) -> str:
        columns = counted(len(self.schema.columns), "column")
        return f"View({columns}; {self.released.promise}): {contents_line(self.released)}"

    @property
    def statement(self) -> dict[str, Any]:
        """The privacy statement of the release."""
        return self.released.statement

    def mean(self, column: str, where: str | None = None) -> Answer:
        """Average of a column's present values."""
        return self._aggregate("mean", column, where).answers()[0]

    def sum(self, column: str, where: str | None = None) -> Answer:
        return self._aggregate("sum", column, where).answers()[0]

    def var(self, column: str, where: str | None = None) -> Answer:
        """Population variance."""
        return self._aggregate("var", column, where).answers()[0]

    def std(self, column: str, where: str | None = None) -> Answer:
        return self._aggregate("std", column, where).answers()[0]

    def moment(self, column: str, order: int, where: str | None = None, central: bool = False) -> Answer:
        """Average of a column's present values to the power `order`, or of their distances from the mean."""
        found = find_column(self.schema, column)
        possible = (
            ranges.moment_range(ranges.column_range(found), order, central)
            if isinstance(order, int)
            else ranges.ANYTHING
        )
        found_moment = self.about((column,), where, lambda chosen: chosen.moment(found, order, central), possible)
        return found_moment.answers()[0]

    def quantile(self, column: str, q: float, where: str | None = None) -> Answer:
        return self._aggregate("quantile", column, where, self.schema, q).answers()[0]

    def cdf(self, column: str, at: Any, where: str | None = None) -> Answer:
        """Share of the present values at or below `at`: a number or date, or a list of them."""
        declared = find_column(self.schema, column)
        several = isinstance(at, list | tuple | np.ndarray)
        points = np.array([column_number(declared, point) for point in (at if several else [at])])
        shares = self.about((column,), where, lambda chosen: chosen.cdf(declared, points)[0], ranges.SHARE)
        return shares.array() if several else shares.answers()[0]

    def count(self, where: str | None = None) -> Answer:
        """Number of records, or of those that meet a condition."""
        if where is None:
            rows = self.noisy_rows()
            every = Estimate(rows.value.reshape(1), rows.influence.reshape(1, -1))
            return self._judged(every, self.rows_how, (), ranges.NOT_NEGATIVE, True).answers()[0]
        return self.about((), where, Selection.count, ranges.NOT_NEGATIVE, in_rows=True).answers()[0]

    def fraction(self, where: str) -> Answer:
        """Share of the records that meet a condition."""
        return self.about((), where, Selection.share, ranges.SHARE).answers()[0]

    def expect(
        self, function: Callable[[dict[str, Any]], Any], columns: Sequence[str], where: str | None = None
    ) -> Answer:
        """Mean of a function of some columns. The function gets a dictionary of arrays and returns a number for each
        row; docs/answers.md describes the arrays.
        """
        factor = function_factor(self.schema, function, columns)
        mean = self.about(factor.columns, where, lambda chosen: chosen.expectation(factor) / chosen.share())
        return mean.answers()[0]

    histogram = histograms.histogram
    plot = histograms.plot

    def regression(
        self,
        columns: Sequence[str] | None = None,
        points: Any = "uniform",
        count: int | None = None,
        domain: Domain | None = None,
        ridge: float | None = None,
        intercept: bool = False,
    ) -> Regression:
        """Algorithm 1 of the moment-to-moment paper on sums of these columns, by default of the most: `count` uniform
        points of a `domain` inside the bounds, "fitted" points, or a table of them; λ is `ridge`, or the paper's.
        """
        from dpsketch.learn.own_regression import OwnTerms, own_regression

        terms = OwnTerms(points, count, domain, ridge, intercept)
        return own_regression(self.schema, self._noise, self._sources, columns, terms)

    def cov(self, columns: Sequence[str] | None = None) -> Answer:
        """Population covariance matrix of numeric columns, over records where both are present."""
        chosen = self._arithmetic(columns)
        return symmetric([column.name for column in chosen], self._variances(chosen), self._covariances(chosen))

    def corr(self, columns: Sequence[str] | None = None) -> Answer:
        """Correlation matrix of numeric columns."""
        chosen = self._arithmetic(columns)
        deviation = self._variances(chosen).root()
        blocks = (
            (
                pairs,
                (block / (deviation[[i for i, _ in pairs]] * deviation[[j for _, j in pairs]])).clipped(-1.0, 1.0),
                how,
            )
            for pairs, block, how in self._covariances(chosen)
        )
        ones = Estimate(np.ones(len(chosen)), np.zeros((len(chosen), 1)))
        return judged_matrix(symmetric([column.name for column in chosen], ones, blocks), (-1.0, 1.0), self._counted)

    def kernel_sum(self, points: Any, method: str = "mean", part: int | None = None, group: Any = None) -> Answer:
        """Σ k(x, point) over the records x for each point, from a RACE part and with the kernel of its hash.

        `points` is a matrix with one row a point and the part's columns in their units, a mapping or data frame of
        columns, or, for MinHash, a list of lists of ids. `part` is its index in the recipe, needed if there are
        several; `group` is the label of the records to sum over, for a grouped part.
        """
        answer = self._races.kernel_sums(part, group).at(points, method)
        sampling = self.released.recipe.sampling
        if sampling is None:
            return answer
        weight = sampling.weight(declared_rows(self.schema))
        how = f"{answer.how}; every sampled row counts {weight:g} times"
        return Answer(answer.value * weight, answer.stderr * weight, how)

    @property
    def population(self) -> Population:
        """The estimated joint distribution as weighted rows, from which `sample` draws and models learn."""
        from dpsketch.learn.population.weighted_rows import nothing_to_learn_from

        population = self._sources.population
        if population is None:
            raise nothing_to_learn_from()
        return population

    def sample(self, n: int, seed: int = 0, method: str = "auto", heavy: int | None = None) -> pa.Table:
        """Draw `n` synthetic rows as an Arrow table that obeys the schema. They cost no privacy.

        No row stands for a person, and the rows show no structure that the release does not estimate.

        `method` is "auto", "cells" (heavy cells of a grid, coarse to fine), "heap" (the `heavy` heaviest of its finest
        level, by default 5000) or "rejection" (rejection sampling from the kernel density of a RACE part).
        """
        from dpsketch.learn.population.sampling import sample

        return sample(self.schema, self._sources.rows_by(method, heavy), n, seed)

    def sql(self, text: str) -> sql.Table:
        """Answer a select statement; see docs/answers.md for the SQL. `describe sketch` lists the columns."""
        if asks_for_contents(text):
            how = ("columns as declared", *(f"good for {what}" for what in good_for(self.released)), SAMPLE_HINT)
            return sql.Table(COLUMNS, tuple(column_rows(self.schema)), how)
        return sql.run(self, text)

    def best(
        self,
        factors: Sequence[Factor],
        statistic: Callable[[Selection], Estimate],
        groups: int = 1,
        columns: Sequence[str] = (),
        possible: ranges.Range = ranges.ANYTHING,
    ) -> Chosen:
        """A statistic of the records in the product of `factors`, perhaps about more columns, by the estimator with the
        least predicted error.
        """
        names = tuple(dict.fromkeys((*columns_of(factors), *columns)))

        def by(estimator: Estimator) -> Estimate:
            return statistic(Selection(estimator, self.rows(), factors, groups))

        return least_error(self.estimators(names), by, possible)

    def tells(self, column: str, value: float) -> bool:
        """Whether the release tells a value of a column from those around it."""
        return self._sources.tells(column, value)

    def estimators(self, columns: Sequence[str]) -> list[Estimator]:
        """All estimators of the joint distribution of these columns; at least one."""
        return self._sources.of_columns(columns)

    def rows(self) -> Estimate:
        """Number of rows of the table, at least one, also if the release is of a sample."""
        return self._noise.table_rows()

    def noisy_rows(self) -> Estimate:
        """The same as it was released: it may be below one."""
        return self._noise.table_rows(-np.inf)

    @property
    def rows_how(self) -> str:
        """The source of `rows`, as a text."""
        sampling = self.released.recipe.sampling
        if sampling is None:
            return "count" if self.rows().influence.any() else "exact count"
        return "count of the sample, divided by its rate" if sampling.count is None else "declared number of rows"

    def with_rows(self, how: str) -> str:
        """`how` of an answer in rows, with the source of the total if the release is of a sample."""
        return how if self.released.recipe.sampling is None else f"{how}; total: {self.rows_how}"

    def laplace(self, estimate: Estimate) -> NDArray[np.bool_]:
        """Which entries have errors of the shape of Laplace noise."""
        return self._laplace.dominates(estimate) | estimate.rough

    def causes(self, estimate: Estimate) -> Causes:
        """The shares of the causes in the variances of estimates."""
        return self._noise.causes(estimate)

    def about(
        self,
        columns: Sequence[str],
        where: str | None,
        statistic: Callable[[Selection], Estimate],
        possible: ranges.Range = ranges.ANYTHING,
        in_rows: bool = False,
        dates: Column | None = None,
        groups: Sequence[Factor] = (),
        number: int = 1,
    ) -> Finding:
        """What is known of a statistic of the records that meet a condition, perhaps of each of a number of groups of
        them; where it asks for records beyond a bound, whatever lies between none and all of those at it.
        """
        schema = self.schema
        condition = None if where is None else parse_condition(where, schema, self.tells)
        if condition is not None:
            condition = with_own_presence(condition, schema, (*columns, *columns_of(groups)))

        def found(condition: exp.Expr | None) -> Finding:
            factors = condition_factors(schema, condition)
            chosen = self.best((*factors, *groups), statistic, number, columns, possible)
            how = self.with_rows(chosen.how) if in_rows else chosen.how
            judged = self._judged(chosen.estimate, how, chosen.considered, possible, in_rows)
            return replace(judged, dates=dates, notes=chosen.pooled(factors))

        clamped = clamped_columns(schema, condition)
        if condition is None or not clamped:
            return found(condition)
        none, every = (found(with_clamped(schema, condition, at_bound)) for at_bound in (False, True))
        limits = possible if clamped.keys().isdisjoint(columns) else ranges.ANYTHING
        return between(none, every, limits, "; ".join(clamped.values()))

    @property
    def _counted(self) -> Rows:
        return Rows(self.noisy_rows(), self.schema.rows)

    def _judged(
        self,
        estimate: Estimate,
        how: str,
        considered: tuple[tuple[str, float], ...],
        possible: ranges.Range,
        in_rows: bool,
    ) -> Finding:
        found = judged(estimate, possible, self._counted, in_rows)
        laplace = self.laplace(estimate)
        return replace(found, how=how, considered=considered, laplace=laplace, causes_of=self.causes)

    def _aggregate(self, kind: str, column: str, where: str | None, *parameters: Any) -> Finding:
        """An aggregate of one column, the same as in a statement."""
        asked = Aggregate(KINDS[kind], (column_quantity(find_column(self.schema, column)),), parameters)
        statistic = partial(value_of, asked)
        return self.about((column,), where, statistic, asked.possible, asked.in_rows, asked.dates)

    def _arithmetic(self, columns: Sequence[str] | None) -> list[Column]:
        if isinstance(columns, str):
            raise QueryError("columns must be a list of names", f"write ['{columns}', …]")
        if columns is None:
            chosen = [column for column in self.schema.scalars if column.arithmetic]
        else:
            chosen = [find_column(self.schema, name) for name in columns]
        for column in chosen:
            check_arithmetic(column, "covariance")
        if not chosen:
            raise QueryError("there is no column with numbers to correlate", "name at least one number or integer")
        return chosen

    def knows(self, columns: Sequence[str]) -> bool:
        """Whether the release estimates the joint distribution of these columns, not only their second moments."""
        return self._sources.knows(columns)

    def covariances(
        self, names: Sequence[str], numbers: Sequence[Factor], present: Sequence[Factor]
    ) -> tuple[Answer, Floats]:
        """Covariance matrix of one function of each column, over records with both columns present; and their means.

        A function is 0 where its column is missing.
        """
        means = [
            self.best((), partial(mean_of, one, here), columns=one.columns).estimate
            for one, here in zip(numbers, present, strict=True)
        ]
        centres = [float(np.nan_to_num(mean.value[0])) for mean in means]
        centred = [shifted(*each) for each in zip(numbers, present, centres, strict=True)]
        squares = [
            self.best((), partial(variance_of, one, here), columns=one.columns).estimate
            for one, here in zip(centred, present, strict=True)
        ]
        blocks = pairwise_covariances(self._sources, names, centred, present)
        return symmetric(names, stacked(squares), blocks), np.array(centres)

    def rows_in_sums(self) -> Estimate:
        """The noisy number of records in the sums, or in the sample if they are of one."""
        return self._noise.rows()

    def _variances(self, columns: list[Column]) -> Estimate:
        return stacked([self._aggregate("var", column.name, None).estimate for column in columns])

    def _covariances(self, columns: list[Column]) -> Iterator[Block]:
        """Covariances of all pairs, in blocks by estimator: their influences need not fit in memory at once."""
        names = [column.name for column in columns]
        means = [self._aggregate("mean", column.name, None).estimate for column in columns]
        centres = [float(np.nan_to_num(mean.value[0])) for mean in means]
        centred = [power_of(column, 1, centre) for column, centre in zip(columns, centres, strict=True)]
        yield from pairwise_covariances(self._sources, names, centred, [power_of(column, 0) for column in columns])


def open_view(path: str | Path, method: str = "auto") -> View:
    """Open a released sketch for questions."""
    return View(ReleasedSketch.load(path), keep=True, method=method)
