"""Questions to a released sketch. Nothing here can reach data, raw sums or secret randomness."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sqlglot import exp

from dpsketch.encoding import cells_array, encode_column
from dpsketch.errors import QueryError
from dpsketch.learn import sql
from dpsketch.learn.answer import Answer, Estimate
from dpsketch.learn.expressions import find_column, parse_condition
from dpsketch.learn.kernel_sums import KernelSums
from dpsketch.learn.moments import MomentEstimator, fourier_of
from dpsketch.learn.release_noise import ReleaseNoise
from dpsketch.learn.selection import Estimator, Selection, answer_in_units, check_arithmetic, column_number
from dpsketch.learn.tables import TableEstimator
from dpsketch.maps.base import BoundMap
from dpsketch.maps.grouped import BoundGrouped
from dpsketch.maps.histogram import BoundHistogram
from dpsketch.maps.race import BoundRace
from dpsketch.recipe import declared_rows
from dpsketch.schema import Column, Datetime, Schema
from dpsketch.sketch.released import ReleasedSketch

_PAIRS = 64
_Block = tuple[list[tuple[int, int]], Estimate, str]  # pairs of columns, an estimate for each, where it comes from


class View:
    """Answers from one release, any number of them; each carries the standard error of the privacy noise."""

    def __init__(self, released: ReleasedSketch) -> None:
        self.released = released
        self.schema: Schema = released.schema
        self._noise = ReleaseNoise(released)
        self._kernels: dict[tuple[int | None, str | None], KernelSums] = {}

    @property
    def statement(self) -> dict[str, Any]:
        """The privacy statement of the release."""
        return self.released.statement

    def mean(self, column: str, where: str | None = None) -> Answer:
        """Average of a column's present values."""
        found, selection, how = self._select(column, where)
        return _answer(selection.mean(found), how, found)

    def sum(self, column: str, where: str | None = None) -> Answer:
        found, selection, how = self._select(column, where)
        return _answer(selection.sum(found), self.with_rows(how))

    def var(self, column: str, where: str | None = None) -> Answer:
        """Population variance."""
        found, selection, how = self._select(column, where)
        return _answer(selection.var(found), how)

    def std(self, column: str, where: str | None = None) -> Answer:
        found, selection, how = self._select(column, where)
        return _answer(selection.var(found).root(), how)

    def quantile(self, column: str, q: float, where: str | None = None) -> Answer:
        found, selection, how = self._select(column, where)
        return _answer(selection.quantile(found, q), how, found)

    def cdf(self, column: str, at: Any, where: str | None = None) -> Answer:
        """Share of the present values at or below `at`: a number or date, or a list of them."""
        found, selection, how = self._select(column, where)
        several = isinstance(at, list | tuple | np.ndarray)
        points = np.array([column_number(found, point) for point in (at if several else [at])])
        estimate = selection.cdf(found, points)[0]
        return Answer(estimate.value, estimate.stderr, how) if several else _answer(estimate, how)

    def count(self, where: str | None = None) -> Answer:
        """Number of records, or of those that meet a condition."""
        if where is None:
            rows = self.rows()
            return Answer(float(rows.value), float(rows.stderr), self.rows_how)
        selection, how = self._condition(where)
        return _answer(selection.count(), self.with_rows(how))

    def fraction(self, where: str) -> Answer:
        """Share of the records that meet a condition."""
        selection, how = self._condition(where)
        return _answer(selection.share(), how)

    def histogram(self, column: str, bins: int = 20) -> Answer:
        """Number of records in equal bins of a number, or of each label; the last entry counts missing cells."""
        found = find_column(self.schema, column)
        estimator = self.estimator((column,))
        values = estimator.frame.values(column)
        missing = np.isnan(values)
        if found.numeric:
            if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= 10_000:
                raise QueryError(f"bins must be a whole number from 1 to 10000, got {bins!r} instead")
            low, high = found.values_of(np.array([-32767, 32767]))
            edges = np.linspace(low, high, bins + 1)
            index = np.clip(np.searchsorted(edges, np.where(missing, low, values), side="right") - 1, 0, bins - 1)
            labels = [f"{left:g} to {right:g}" for left, right in pairwise(edges)]
        else:
            index = np.where(missing, 0, values).astype(int)
            labels = list(getattr(found, "labels", ()))
            if len(labels) > sql.MOST_GROUPS:
                raise QueryError(
                    f"column '{column}' has more than {sql.MOST_GROUPS} labels", "count some of them with where"
                )
        index = np.where(missing, len(labels), index)
        masks = (index[None, :] == np.arange(len(labels) + 1)[:, None]).astype(np.float64)
        estimate = Selection(estimator, self.rows(), masks).count()
        return Answer(estimate.value, estimate.stderr, self.with_rows(estimator.how), (*labels, "missing"))

    def cov(self, columns: Sequence[str] | None = None) -> Answer:
        """Population covariance matrix of numeric columns, over records where both are present."""
        found, variance = self._variances(columns)
        return _matrix(found, variance, self._covariances(found))

    def corr(self, columns: Sequence[str] | None = None) -> Answer:
        """Correlation matrix of numeric columns."""
        found, variance = self._variances(columns)
        deviation = variance.root()
        blocks = (
            (
                pairs,
                (block / (deviation[[i for i, _ in pairs]] * deviation[[j for _, j in pairs]])).clipped(-1.0, 1.0),
                how,
            )
            for pairs, block, how in self._covariances(found)
        )
        ones = Estimate(np.ones(len(found)), np.zeros((len(found), 1)))
        return _matrix(found, ones, blocks)

    def kernel_sum(self, points: Any, method: str = "mean", part: int | None = None, group: Any = None) -> Answer:
        """Σ k(x, point) over the records x for each point, from a RACE part and with the kernel of its hash.

        `points` is a matrix with one row a point and the part's columns in their units, a mapping or data frame of
        columns, or, for MinHash, a list of lists of ids. `part` is the place in the recipe, needed if several would do;
        `group` the label whose records are meant, for a grouped part.
        """
        answer = self._kernel_sums(part, group).at(points, method)
        sampling = self.released.recipe.sampling
        if sampling is None:
            return answer
        weight = sampling.weight(declared_rows(self.schema))
        how = f"{answer.how}; every sampled row counts {weight:g} times"
        return Answer(answer.value * weight, answer.stderr * weight, how)

    def sql(self, text: str) -> sql.Table:
        """Answer a select statement; see docs/answers.md for what it may hold."""
        return sql.run(self, text)

    def estimator(self, columns: Sequence[str]) -> Estimator:
        """The best estimator for functions of these columns: the smallest table that has them all, else the
        moment-to-moment regression.
        """
        wanted = set(columns)
        tables = [table for table in self._tables if wanted <= set(table.columns)]
        if tables:
            return min(tables, key=lambda table: table.cells)
        for moments in self._moments:
            if wanted <= set(moments.columns):
                return moments
        names = ", ".join(sorted(wanted))
        if len(wanted) == 1:
            raise QueryError(
                f"this release says nothing about column '{names}'", "add it to a Histogram part of the recipe"
            )
        raise QueryError(
            f"this release says nothing about {names} together",
            f"add Part(Fourier(), share=0.5) or Part(Histogram(ways={len(wanted)}, columns=…), share=…) to the recipe",
        )

    def rows(self) -> Estimate:
        """Rows of the table, also if the release is of a sample."""
        return self._noise.table_rows()

    @property
    def rows_how(self) -> str:
        """Where `rows` comes from."""
        sampling = self.released.recipe.sampling
        if sampling is None:
            return "noisy count"
        return "noisy count of the sample, divided by its rate" if sampling.count is None else "declared number of rows"

    def with_rows(self, how: str) -> str:
        """`how` of an answer in rows, of which a sample has fewer."""
        return how if self.released.recipe.sampling is None else f"{how}; total: {self.rows_how}"

    @cached_property
    def _tables(self) -> list[TableEstimator]:
        return [
            TableEstimator(self.schema, self._noise, part, table)
            for part in self.released.parts
            if isinstance(part.map, BoundHistogram)
            for table in range(len(part.map.tables))
        ]

    def _kernel_sums(self, place: int | None, group: Any) -> KernelSums:
        key = (place, None if group is None else str(group))
        if key not in self._kernels:
            places = [i for i, part in enumerate(self.released.parts) if _race(part.map) is not None]
            if not places:
                raise QueryError("this release holds no RACE part", "add Part(Race(), share=…) to the recipe")
            if (place is None and len(places) > 1) or (place is not None and place not in places):
                raise QueryError(
                    f"part {place} is not a RACE part"
                    if place is not None
                    else "this release holds several RACE parts",
                    f"pass part=…, one of {', '.join(map(str, places))}",
                )
            part = self.released.parts[places[0] if place is None else place]
            race = _race(part.map)
            assert race is not None
            sums = part.sums
            if isinstance(part.map, BoundGrouped):
                if group is None:
                    raise QueryError(
                        f"this part has counters for each label of '{part.map.column.name}'", "pass group='label'"
                    )
                found = int(part.map.group_of(encode_column(part.map.column, cells_array([group])))[0])
                sums = sums[found * race.size : (found + 1) * race.size]
            elif group is not None:
                raise QueryError("this part has no groups", "leave out group, or release Grouped(Race(), column)")
            self._kernels[key] = KernelSums(self.schema, race, sums, part.noise_variance)
        return self._kernels[key]

    @cached_property
    def _moments(self) -> list[MomentEstimator]:
        marginals = {table.columns[0]: table for table in self._tables if len(table.columns) == 1}
        parts = [part for part in self.released.parts if fourier_of(part.map) is not None]
        return [MomentEstimator(self.schema, self._noise, part, marginals) for part in parts]

    def _select(self, column: str, where: str | None) -> tuple[Column, Selection, str]:
        found = find_column(self.schema, column)
        selection, how = self._selection((column,), None if where is None else parse_condition(where))
        return found, selection, how

    def _condition(self, where: str) -> tuple[Selection, str]:
        return self._selection((), parse_condition(where))

    def _selection(self, columns: tuple[str, ...], where: exp.Expr | None) -> tuple[Selection, str]:
        return sql.selection(self, list(columns), where, [], [()])

    def _variances(self, columns: Sequence[str] | None) -> tuple[list[Column], Estimate]:
        if columns is None:
            found = [c for c in self.schema.scalars if c.numeric and not isinstance(c, Datetime)]
        else:
            found = [find_column(self.schema, name) for name in columns]
        for column in found:
            check_arithmetic(column, "covariance")
        each = [self._select(column.name, None)[1].var(column) for column in found]
        return found, Estimate(np.concatenate([e.value for e in each]), np.concatenate([e.influence for e in each]))

    def _covariances(self, columns: list[Column]) -> Iterator[_Block]:
        """Covariances of all pairs, in blocks of one estimator: their influences need not fit memory together."""
        names = [column.name for column in columns]
        groups: dict[int, tuple[Estimator, list[tuple[int, int]]]] = {}
        for i, j in combinations(range(len(names)), 2):
            estimator = self.estimator((names[i], names[j]))
            groups.setdefault(id(estimator), (estimator, []))[1].append((i, j))
        centres = {name: float(np.nan_to_num(self.mean(name).value)) for name in names}
        for estimator, every in groups.values():
            centred = {
                name: estimator.frame.values(name) - centres[name] for i, j in every for name in (names[i], names[j])
            }
            for start in range(0, len(every), _PAIRS):
                pairs = every[start : start + _PAIRS]
                left = np.stack([centred[names[i]] for i, _ in pairs])
                right = np.stack([centred[names[j]] for _, j in pairs])
                both = ~np.isnan(left * right)
                left, right = np.where(both, left, 0.0), np.where(both, right, 0.0)
                product, one, two, share = (
                    estimator.expect(part.astype(np.float64)) for part in (left * right, left, right, both)
                )
                yield pairs, product / share - (one / share) * (two / share), estimator.how


def _matrix(columns: list[Column], diagonal: Estimate, blocks: Iterable[_Block]) -> Answer:
    """A symmetric matrix of answers from its diagonal and blocks of pairs."""
    value, stderr, how = np.diag(diagonal.value), np.diag(diagonal.stderr), set()
    for pairs, estimate, source in blocks:
        first, second = np.array(pairs).T
        value[first, second] = value[second, first] = estimate.value
        stderr[first, second] = stderr[second, first] = estimate.stderr
        how.add(source)
    return Answer(value, stderr, "; ".join(sorted(how)) or "noisy marginals", tuple(column.name for column in columns))


def _race(bound: BoundMap) -> BoundRace | None:
    """The RACE map of a part, also inside groups."""
    inner = bound.inner if isinstance(bound, BoundGrouped) else bound
    return inner if isinstance(inner, BoundRace) else None


def open_view(path: str | Path) -> View:
    """Read a released sketch for questions."""
    return View(ReleasedSketch.load(path))


def _answer(estimate: Estimate, how: str, column: Column | None = None) -> Answer:
    answer = answer_in_units(float(estimate.value[0]), float(estimate.stderr[0]), column)
    return replace(answer, how=how)
