"""Questions to a released sketch. Nothing here can reach data, raw sums or secret randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.displays import counted, html_table, text_table
from dpsketch.encoding.frames import read_column
from dpsketch.errors import QueryError
from dpsketch.learn import queries as sql
from dpsketch.learn.answer import Answer, Estimate, stacked
from dpsketch.learn.choice import Chosen, Sources, least_error
from dpsketch.learn.contents import COLUMNS, SAMPLE_HINT, asks_for_contents, column_rows, contents_line, good_for
from dpsketch.learn.covariances import Block, mean_of, pairwise_covariances, shifted, symmetric, variance_of
from dpsketch.learn.estimators.kernel_sums import KernelSums
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.factors import Factor, columns_of
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo
from dpsketch.learn.sql.aggregates import KINDS
from dpsketch.learn.sql.expressions import condition_factors, parse_condition
from dpsketch.learn.sql.formulas import Aggregate, value_of
from dpsketch.learn.sql.functions import function_factor
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.quantities import column_quantity
from dpsketch.learn.sql.selection import (
    Estimator,
    Selection,
    answer_in_units,
    check_arithmetic,
    column_number,
    power_of,
)
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe import declared_rows
from dpsketch.schema.columns import Column
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

if TYPE_CHECKING:
    import pyarrow as pa

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
        self._kernels = Memo(self._kernels_of)

    def __repr__(self) -> str:
        return f"{self._title}\n{text_table(COLUMNS, column_rows(self.schema))}"

    def _repr_html_(self) -> str:
        return html_table(self._title, COLUMNS, column_rows(self.schema))

    @property
    def _title(self) -> str:
        columns = counted(len(self.schema.columns), "column")
        return f"View({columns}; {self.released.promise}): {contents_line(self.released)}"

    @property
    def statement(self) -> dict[str, Any]:
        """The privacy statement of the release."""
        return self.released.statement

    def mean(self, column: str, where: str | None = None) -> Answer:
        """Mean of a column's present values."""
        return _answer(self._aggregate("mean", column, where), find_column(self.schema, column))

    def sum(self, column: str, where: str | None = None) -> Answer:
        return self._in_rows(_answer(self._aggregate("sum", column, where)))

    def var(self, column: str, where: str | None = None) -> Answer:
        """Population variance."""
        return _answer(self._aggregate("var", column, where))

    def std(self, column: str, where: str | None = None) -> Answer:
        return _answer(self._aggregate("std", column, where))

    def moment(self, column: str, order: int, where: str | None = None, central: bool = False) -> Answer:
        """Moment of a column's present values of this order, about zero or, if `central`, about the mean."""
        declared = find_column(self.schema, column)
        return _answer(self._about(column, where, lambda chosen: chosen.moment(declared, order, central)))

    def quantile(self, column: str, q: float, where: str | None = None) -> Answer:
        chosen = self._aggregate("quantile", column, where, self.schema, q)
        return _answer(chosen, find_column(self.schema, column))

    def cdf(self, column: str, at: Any, where: str | None = None) -> Answer:
        """Share of the present values at or below `at`: a number or date, or a list of them."""
        declared = find_column(self.schema, column)
        several = isinstance(at, list | tuple | np.ndarray)
        points = np.array([column_number(declared, point) for point in (at if several else [at])])
        answer = self._about(column, where, lambda chosen: chosen.cdf(declared, points)[0])
        return _array_answer(answer) if several else _answer(answer)

    def count(self, where: str | None = None) -> Answer:
        """Number of records, or of those that meet a condition."""
        if where is None:
            rows = self.rows()
            return Answer(float(rows.value), float(rows.stderr), self.rows_how)
        return self._in_rows(_answer(self._about(None, where, Selection.count)))

    def fraction(self, where: str) -> Answer:
        """Share of the records that meet a condition."""
        return _answer(self._about(None, where, Selection.share))

    def expect(
        self, function: Callable[[dict[str, Any]], Any], columns: Sequence[str], where: str | None = None
    ) -> Answer:
        """Mean of a function of some columns. The function gets a dictionary of arrays and returns a number for each
        row; docs/answers.md describes the arrays.
        """
        factor = function_factor(self.schema, function, columns)
        factors = condition_factors(self.schema, None if where is None else parse_condition(where, self.schema))
        return _answer(
            self.best(factors, lambda chosen: chosen.expectation(factor) / chosen.share(), columns=factor.columns)
        )

    def histogram(self, column: str, bins: int = 20) -> Answer:
        """Number of records in equal bins of a number, or of each label; the last entry counts missing cells."""
        declared = find_column(self.schema, column)
        if declared.numeric:
            if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 10_000:
                raise QueryError(f"bins must be a whole number from 1 to 10000, got {bins!r} instead")
            low, high = declared.values_of(np.array([-32767, 32767]))
            edges = np.linspace(low, high, bins + 1)
            shown = [_edge_text(declared, float(edge)) for edge in edges]
            labels = [f"{left} to {right}" for left, right in pairwise(shown)]
        else:
            edges = np.arange(declared.levels + 1.0)
            labels = list(getattr(declared, "labels", ()))
            if len(labels) > sql.MOST_GROUPS:
                raise QueryError(
                    f"column '{column}' has more than {sql.MOST_GROUPS} labels", "count some of them with where"
                )
        last = len(labels)

        def each(frame: Frame) -> Floats:
            values = frame.values(column)
            missing = np.isnan(values)
            index = np.searchsorted(edges, np.where(missing, edges[0], values), side="right") - 1
            index = np.where(missing, last, np.clip(index, 0, last - 1))
            return (index == np.arange(last + 1)[:, None]).astype(np.float64)

        bin_of = Factor((column,), each)
        answer = self.best((bin_of,), Selection.count, groups=last + 1)
        return replace(self._in_rows(_array_answer(answer)), labels=(*labels, "missing"))

    def cov(self, columns: Sequence[str] | None = None) -> Answer:
        """Population covariance matrix of numeric columns, over records where both are present."""
        chosen = self._arithmetic(columns)
        return symmetric(_names(chosen), self._variances(chosen), self._covariances(chosen))

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
        return symmetric(_names(chosen), ones, blocks)

    def kernel_sum(self, points: Any, method: str = "mean", part: int | None = None, group: Any = None) -> Answer:
        """Σ k(x, point) over the records x for each point, from a RACE part and with the kernel of its hash.

        `points` is a matrix with one row a point and the part's columns in their units, a mapping or data frame of
        columns, or, for MinHash, a list of lists of ids. `part` is its index in the recipe, needed if there are
        several; `group` is the label of the records to sum over, for a grouped part.
        """
        answer = self._kernel_sums(part, group).at(points, method)
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

    def sample(self, n: int, seed: int = 0, method: str = "auto") -> pa.Table:
        """Draw `n` synthetic rows as an Arrow table that obeys the schema. They cost no privacy.

        No row stands for a person, and the rows show no structure that the release does not estimate.

        `method` is "auto", "cells" (heavy cells of a grid, coarse to fine), "heap" (the heaviest cells of a grid's
        finest level) or "rejection" (rejection sampling from the kernel density of a RACE part).
        """
        from dpsketch.learn.population.sampling import sample

        return sample(self.schema, self._sources.rows_by(method), n, seed)

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
    ) -> Chosen:
        """Estimate a statistic of the records selected by the product of `factors`, with the estimator of the least
        predicted error. `columns` are further columns that the statistic uses.
        """
        names = tuple(dict.fromkeys((*columns_of(factors), *columns)))
        return least_error(
            self.estimators(names), lambda estimator: statistic(Selection(estimator, self.rows(), factors, groups))
        )

    def estimators(self, columns: Sequence[str]) -> list[Estimator]:
        """All estimators of the joint distribution of these columns; at least one."""
        return self._sources.of_columns(columns)

    def rows(self) -> Estimate:
        """Number of rows of the table, also if the release is of a sample."""
        return self._noise.table_rows()

    @property
    def rows_how(self) -> str:
        """The source of `rows`, as a text."""
        sampling = self.released.recipe.sampling
        if sampling is None:
            return "count"
        return "count of the sample, divided by its rate" if sampling.count is None else "declared number of rows"

    def with_rows(self, how: str) -> str:
        """`how` of an answer in rows, with the source of the total if the release is of a sample."""
        return how if self.released.recipe.sampling is None else f"{how}; total: {self.rows_how}"

    @property
    def _races(self) -> dict[int, tuple[ReleasedPart, BoundRace]]:
        """RACE parts by their index, including those with groups."""
        parts = self.released.parts
        return {parts.index(part): (part, race) for part, race in self.released.parts_with(BoundRace, grouped=True)}

    def _kernel_sums(self, index: int | None, group: Any) -> KernelSums:
        indices = list(self._races)
        if not indices:
            raise QueryError("this release holds no RACE part", "add Part(Race(), share=…) to the recipe")
        if (index is None and len(indices) > 1) or (index is not None and index not in indices):
            raise QueryError(
                f"part {index} is not a RACE part" if index is not None else "this release holds several RACE parts",
                f"pass part=…, one of {', '.join(map(str, indices))}",
            )
        index = indices[0] if index is None else index
        feature_map = self.released.parts[index].map
        if feature_map.grouped_by is None:
            if group is not None:
                raise QueryError("this part has no groups", "leave out group, or release Grouped(Race(), column)")
            return self._kernels((index, 0))
        if group is None:
            raise QueryError(
                f"this part has counters for each label of '{feature_map.grouped_by}'", "pass group='label'"
            )
        codes = read_column(self.schema.column(feature_map.grouped_by), [group])
        return self._kernels((index, int(feature_map.group_of(codes)[0])))

    def _kernels_of(self, key: tuple[int, int]) -> KernelSums:
        """Kernel sums of a part, by its index, and one of its groups, by its number."""
        (part, race), group = self._races[key[0]], key[1]
        sums = part.sums[group * race.size : (group + 1) * race.size]
        return KernelSums(self.schema, race, sums, part.noise_variance)

    def _about(self, column: str | None, where: str | None, statistic: Callable[[Selection], Estimate]) -> Chosen:
        factors = condition_factors(self.schema, None if where is None else parse_condition(where, self.schema))
        return self.best(factors, statistic, columns=() if column is None else (column,))

    def _aggregate(self, kind: str, column: str, where: str | None, *parameters: Any) -> Chosen:
        """An aggregate of one column, the same as in a statement."""
        asked = Aggregate(KINDS[kind], (column_quantity(find_column(self.schema, column)),), parameters)
        return self._about(column, where, partial(value_of, asked))

    def _in_rows(self, answer: Answer) -> Answer:
        return replace(answer, how=self.with_rows(answer.how))

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
        """The noisy number of records in the sums: that of the sample, if the release is of one."""
        return self._noise.rows()

    def _variances(self, columns: list[Column]) -> Estimate:
        return stacked([self._aggregate("var", column.name, None).estimate for column in columns])

    def _covariances(self, columns: list[Column]) -> Iterator[Block]:
        """Covariances of all pairs, in blocks by estimator: their influences need not fit in memory at once."""
        names = _names(columns)
        centres = [float(np.nan_to_num(self.mean(column.name).value)) for column in columns]
        centred = [power_of(column, 1, centre) for column, centre in zip(columns, centres, strict=True)]
        yield from pairwise_covariances(self._sources, names, centred, [power_of(column, 0) for column in columns])


def _names(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def open_view(path: str | Path, method: str = "auto") -> View:
    """Open a released sketch for questions."""
    return View(ReleasedSketch.load(path), keep=True, method=method)


def _edge_text(column: Column, edge: float) -> str:
    """The edge of a bin as text."""
    if column.dates:
        return str(np.datetime64(round(edge), "us").astype("datetime64[m]")).replace("T", " ")
    return f"{edge:g}"


def _answer(chosen: Chosen, column: Column | None = None) -> Answer:
    estimate = chosen.estimate
    answer = answer_in_units(float(estimate.value[0]), float(estimate.stderr[0]), column)
    return replace(answer, how=chosen.how, considered=chosen.considered)


def _array_answer(chosen: Chosen) -> Answer:
    return Answer(chosen.estimate.value, chosen.estimate.stderr, chosen.how, considered=chosen.considered)
