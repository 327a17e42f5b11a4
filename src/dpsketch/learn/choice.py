"""The estimators that a release allows, and the choice of one for a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary, GroupTotals
from dpsketch.denoise.unbiased_error import SWAMPED
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.cell_places import cells_at
from dpsketch.learn.estimators.joint.fit_cache import cached_fit
from dpsketch.learn.estimators.joint.from_release import column_lumps, fit_released, noisy_sums, product_parts
from dpsketch.learn.estimators.joint.joint_estimator import ProductEstimator
from dpsketch.learn.estimators.joint.single import fit_column
from dpsketch.learn.estimators.marginal import MarginalEstimator
from dpsketch.learn.estimators.plain_regression import PlainRegression
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.estimators.small_table import TableEstimator, small_tables
from dpsketch.learn.estimators.sum_blocks import Block, blocks
from dpsketch.learn.estimators.sum_regression import MomentEstimator
from dpsketch.learn.factors import Factor
from dpsketch.learn.points import Frame
from dpsketch.learn.shared import Memo, made_once
from dpsketch.learn.sql.findings import nothing_known
from dpsketch.learn.sql.ranges import ANYTHING, Range
from dpsketch.learn.sql.selection import Estimator
from dpsketch.maps.tables.cells import Cells
from dpsketch.maps.tables.column_summaries import column_summaries, joint_cells
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.maps.tables.one_way import OneWayMap
from dpsketch.schema.columns import Integer, Number
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

if TYPE_CHECKING:
    from dpsketch.learn.population.grid_estimator import GridEstimator
    from dpsketch.learn.population.weighted_rows import Population, Rows

METHODS = ("auto", "ridge-paper")
SAMPLERS = ("auto", "cells", "heap", "rejection")


@dataclass(frozen=True)
class Chosen:
    """The estimator with the least predicted error for a statistic, its estimate, and the predicted errors of all
    estimators, this one first.
    """

    estimator: Estimator
    estimate: Estimate
    considered: tuple[tuple[str, float], ...]

    @property
    def how(self) -> str:
        """The source of the estimate, as a text."""
        return self.estimator.how

    def pooled(self, factors: Sequence[Factor]) -> tuple[str, ...]:
        """Which labels that these functions tell apart were counted as one."""
        return self.estimator.pooled(factors) if isinstance(self.estimator, ProductEstimator) else ()


def least_error(
    estimators: Sequence[Estimator], statistic: Callable[[Estimator], Estimate], possible: Range = ANYTHING
) -> Chosen:
    """The estimator whose predicted error of a statistic, its root mean squared standard error, is the least.

    Noise that hides a column leaves a smooth fit at the middle of the bounds, and so do its refits: its standard error
    is then small and wrong. Where the unbiased estimate's error is no less than 1/SWAMPED of that of the bounds
    alone, a fit that claims less than 1/SWAMPED of it is therefore taken to be no better.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what is too large is not known
        estimates = [statistic(estimator) for estimator in estimators]
        errors = [_error(estimate) for estimate in estimates]
    plain = [isinstance(estimator, MarginalEstimator | TableEstimator) for estimator in estimators]
    unbiased = min((error for error, linear in zip(errors, plain, strict=True) if linear), default=0.0)
    widest = nothing_known(possible)
    if np.isfinite(widest) and unbiased * SWAMPED >= widest:
        errors = [max(error, unbiased) if error * SWAMPED < unbiased else error for error in errors]
    ranked = sorted((error, not plain[index], index) for index, error in enumerate(errors))
    best = ranked[0][-1]
    return Chosen(
        estimators[best], estimates[best], tuple((estimators[index].how, error) for error, _, index in ranked)
    )


class Sources:
    """The estimators of a release. With `keep`, slow fits are kept in the user's cache.

    `method` is "auto", or "ridge-paper" for the plain regression of the moment-to-moment paper alone.
    """

    def __init__(self, released: ReleasedSketch, noise: ReleaseNoise, keep: bool = False, method: str = "auto") -> None:
        if method not in METHODS:
            raise QueryError(f"there is no method called {method!r}", f"the methods are {', '.join(METHODS)}")
        self._released, self._noise, self._keep, self._method = released, noise, keep, method
        self._regression_on = Memo(self._moments)
        self._of_marginal = Memo(self._marginals)

    def of_columns(self, columns: Sequence[str]) -> list[Estimator]:
        """All estimators of the joint distribution of these columns; at least one."""
        wanted = set(columns)
        estimators = [] if self._method == "ridge-paper" else self._fitted(wanted)
        if not estimators:
            estimators = self._regression(wanted)
        if not estimators:
            raise _nothing_about(sorted(wanted))
        return estimators

    def knows(self, columns: Sequence[str]) -> bool:
        """Whether an estimator of these columns uses more than their second moments."""
        try:
            estimators = self.of_columns(columns)
        except QueryError:
            return False
        regressions = MomentEstimator | PlainRegression
        return any(not isinstance(estimator, regressions) or estimator.separates_points for estimator in estimators)

    def _fitted(self, wanted: set[str]) -> list[Estimator]:
        """Estimators from tables, marginals (unbiased and smooth) and the mixture; for several columns also the
        regression on Fourier sums and marginals.
        """
        tables = [table for table in self.tables if wanted <= set(table.columns)]
        fewest = min((len(table.columns) for table in tables), default=0)  # others have more cells and noise
        estimators: list[Estimator] = [table for table in tables if len(table.columns) == fewest]
        if self.cells is not None and wanted <= set(self.cells.columns):
            estimators.append(self.cells)
        if len(wanted) <= 1:  # the joint distribution adds nothing and is slow to fit
            return estimators + self._of_column(wanted)
        if self.products is not None and wanted <= set(self.products.columns):
            estimators.append(self.products)
        return estimators + self._regression(wanted, with_marginals=True)

    def _of_column(self, wanted: set[str]) -> list[Estimator]:
        for part, feature_map in self._released.parts_with(OneWayMap, wanted):  # type: ignore[type-abstract]
            name = next(iter(wanted), feature_map.columns[0])
            return list(self._of_marginal((part, feature_map, feature_map.columns.index(name))))
        return []

    def _marginals(self, key: tuple[ReleasedPart, OneWayMap, int]) -> tuple[Estimator, Estimator]:
        """The unbiased and the smooth estimator for a part, its map, and the index of a column in it."""
        (part, feature_map, index), schema, noise = key, self._released.schema, self._noise
        parts, name = product_parts(self._released), feature_map.columns[index]
        if parts is not None and parts.marginals is part and name in self._paired:
            summary, cells, totals = self._paired[name]
        else:
            summary = column_summaries(feature_map, part.sums, part.noise_variance, noise.totals)[index]
            cells, totals = feature_map.cells[index], None
        smooth = fit_column(noise, summary, cells, column_lumps(feature_map, index, summary), totals)
        return MarginalEstimator(schema, noise, part, feature_map, index), ProductEstimator(schema, noise, smooth)

    @made_once
    def _paired(self) -> dict[str, tuple[ColumnSummary, Cells, GroupTotals | None]]:
        """Summaries of the single columns of pair tables, from the marginals and the tables, in the cells of the
        tables.
        """
        parts = product_parts(self._released)
        if parts is None:
            return {}
        feature_map, sums = parts.pair_map, noisy_sums(self._released, parts)
        cells = joint_cells(feature_map, parts.marginal_map)
        known = zip(sums.summaries, cells, sums.totals(), strict=True)
        return dict(zip(feature_map.columns, known, strict=True))

    def _regression(self, wanted: set[str], with_marginals: bool = False) -> list[Estimator]:
        """The regression on the block of sums with the fewest columns; on second moments only if there is no other."""
        known = [block for block in self._blocks if wanted <= set(block.columns)]
        if self._method == "auto" and self.cells is not None and wanted <= set(self.cells.columns):
            from dpsketch.learn.population.grid_population import searchable

            known = [block for block in known if not searchable(self._released, block.part)]
        if with_marginals:
            known = [block for block in known if block.separates_points and wanted <= self._tabulated.keys()]
        if not known:
            return []
        block = min(known, key=lambda block: (not block.separates_points, block.single, len(block.columns)))
        return [self._regression_on(block)]

    def sums_of(self, columns: Sequence[str] | None) -> Block:
        """The sums that a regression about these columns uses; by default those of the most columns."""
        wanted = set(columns or ())
        known = [block for block in self._blocks if block.separates_points and wanted <= set(block.columns)]
        if not known:
            raise (
                _nothing_about(sorted(wanted))
                if wanted
                else QueryError(
                    "this release holds no sums for a regression", "add Part(Fourier(), share=0.5) to the recipe"
                )
            )
        return max(known, key=lambda block: len(block.columns) * (1 if columns is None else -1))

    def fitted_points(self, block: Block) -> Frame:
        """The points that the library's own regression on these sums ends with."""
        return MomentEstimator(self._released.schema, self._noise, block, self._tabulated).frame

    def _moments(self, block: Block) -> MomentEstimator | PlainRegression:
        if self._method == "ridge-paper":
            return PlainRegression(self._released.schema, self._noise, block)
        return MomentEstimator(self._released.schema, self._noise, block, self._tabulated)

    def tells(self, column: str, value: float) -> bool:
        """Whether a cell was chosen for this value of a column alone, because many records have it."""
        for _, marginals in self._released.parts_with(OneWayMap, {column}):  # type: ignore[type-abstract]
            cells = marginals.cells[marginals.columns.index(column)]
            if cells.chosen and isinstance(cells.column, Number | Integer):
                return bool(cells.single[cells_at(cells, cells.column, np.array([value]))[0]])
        return False

    @made_once
    def tables(self) -> list[TableEstimator]:
        """An estimator for each contingency table of a histogram part."""
        return [
            TableEstimator(self._released.schema, self._noise, table)
            for part, _ in self._released.parts_with(BoundHistogram)
            for table in small_tables(part)
        ]

    @made_once
    def products(self) -> ProductEstimator | None:
        """The joint distribution fitted to marginals and pair tables."""
        if product_parts(self._released) is None:
            return None
        fitted = cached_fit(self._released) if self._keep else fit_released(self._released)
        return ProductEstimator(self._released.schema, self._noise, fitted)

    @made_once
    def cells(self) -> GridEstimator | None:
        """The heavy cells of the grids of the most columns."""
        from dpsketch.learn.population.grid_estimator import GridEstimator
        from dpsketch.learn.population.grid_population import GridPopulation, searchable

        if not any(searchable(self._released, part) for part in self._released.parts):
            return None
        return GridEstimator(self._released.schema, self._noise, GridPopulation(self._released, self._noise))

    @made_once
    def _tabulated(self) -> dict[str, TableEstimator]:
        return {table.columns[0]: table for table in self.tables if len(table.columns) == 1}

    @made_once
    def _blocks(self) -> list[Block]:
        """The sums that a regression may use: tables have their own estimators, except for the paper's regression."""
        parts = self._released.parts
        if self._method == "auto":
            parts = tuple(part for part in parts if not part.map.read_as_tables(self._released.maps))
        return [block for part in parts for block in blocks(self._released.schema, part)]

    @made_once
    def population(self) -> Population | None:
        """The joint distribution as weighted rows, if the release allows one: from the mixture, else from the sums that
        depend on the most columns (the heavy cells of a grid, or points whose weights explain the sums).
        """
        from dpsketch.learn.population.grid_population import GridPopulation, searchable
        from dpsketch.learn.population.weighted_rows import PointPopulation, ProductPopulation

        parts = product_parts(self._released)
        if parts is not None and self.products is not None:
            noise = sqrt(parts.pairs.noise_variance) / float(self._noise.rows().value)
            return ProductPopulation(self._released.schema, self.products.fitted, noise)
        widest = self._widest
        if widest is None:
            return None
        if self._method == "auto" and searchable(self._released, widest.part):
            return GridPopulation(self._released, self._noise)
        [estimator] = self._regression(set(widest.columns))
        assert isinstance(estimator, MomentEstimator | PlainRegression)
        return PointPopulation(self._released.schema, estimator)

    @made_once
    def _widest(self) -> Block | None:
        """The block of sums that depends on the most columns and separates points."""
        separating = [block for block in self._blocks if block.separates_points]
        return max(separating, key=lambda block: len(block.columns)) if separating else None

    def rows_by(self, method: str, heavy: int | None = None) -> Rows:
        """The distribution that `view.sample` draws from, by the name of its method. "auto" is the population, or the
        kernel density of hashed counters where that is more accurate. `heavy` is the size of a heap.
        """
        if heavy is not None and method != "heap":
            raise QueryError(f'heavy is the number of cells of a heap, got method="{method}"', 'pass method="heap"')
        from dpsketch.learn.population.race_rejection import KernelRows, narrow_kernel
        from dpsketch.learn.population.weighted_rows import nothing_to_learn_from

        if method == "rejection":
            return KernelRows(self._released, self._noise)
        if method == "auto":
            widest = None if product_parts(self._released) is not None else self._widest
            if self._method == "auto" and widest is not None and narrow_kernel(self._released, widest.part):
                return KernelRows(self._released, self._noise)
            if self.population is None:
                raise nothing_to_learn_from()
            return self.population
        if method in ("cells", "heap"):
            from dpsketch.learn.population.grid_population import GridPopulation
            from dpsketch.learn.population.grids.heap import HEAVIEST

            return GridPopulation(self._released, self._noise, method, heavy=HEAVIEST if heavy is None else heavy)
        raise QueryError(f"method must be one of {', '.join(SAMPLERS)}, got {method!r} instead")


def _error(estimate: Estimate) -> float:
    """Root mean square standard error; infinite for an estimate without one."""
    known = estimate.stderr[np.isfinite(estimate.stderr)]
    return float(np.sqrt(np.mean(known**2))) if known.size else np.inf


def _nothing_about(names: list[str]) -> QueryError:
    if len(names) == 1:
        return QueryError(
            f"this release says nothing about column '{names[0]}'", "add Part(Marginals(), share=0.4) to the recipe"
        )
    return QueryError(
        f"this release says nothing about {', '.join(names)} together",
        "add Part(Marginals(), share=0.4) and Part(Pairs(pool=True), share=0.5), or Part(Fourier(), share=0.5), or "
        f"Part(Histogram(ways={len(names)}, columns=…), share=…) to the recipe",
    )
