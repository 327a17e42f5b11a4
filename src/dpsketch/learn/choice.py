"""Every estimate that a release allows, and which of them to trust for a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.denoise.column_fit import ColumnSummary, GroupTotals
from dpsketch.errors import QueryError
from dpsketch.learn.answer import Estimate
from dpsketch.learn.estimators.joint.fit_cache import cached_fit
from dpsketch.learn.estimators.joint.from_release import fit_released, noisy_sums, product_parts
from dpsketch.learn.estimators.joint.joint_estimator import ProductEstimator
from dpsketch.learn.estimators.joint.single import fit_column
from dpsketch.learn.estimators.marginal import MarginalEstimator
from dpsketch.learn.estimators.release_noise import ReleaseNoise
from dpsketch.learn.estimators.small_table import TableEstimator, small_tables
from dpsketch.learn.estimators.sum_blocks import Block, blocks
from dpsketch.learn.estimators.sum_regression import METHODS, MomentEstimator
from dpsketch.learn.shared import Memo, made_once
from dpsketch.learn.sql.selection import Estimator
from dpsketch.maps.tables.cells import Cells
from dpsketch.maps.tables.column_summaries import column_summaries
from dpsketch.maps.tables.histogram import BoundHistogram
from dpsketch.maps.tables.marginals import BoundMarginals
from dpsketch.sketch.released import ReleasedPart, ReleasedSketch

if TYPE_CHECKING:
    from dpsketch.learn.population.weighted_rows import Population, Rows

SAMPLERS = ("auto", "cells", "heap", "rejection")


@dataclass(frozen=True)
class Chosen:
    """The estimator with the least predicted error for a statistic, its estimate, and the predicted errors of every
    estimator that there was, this one first.
    """

    estimator: Estimator
    estimate: Estimate
    considered: tuple[tuple[str, float], ...]

    @property
    def how(self) -> str:
        """Where the estimate comes from."""
        return self.estimator.how


def least_error(estimators: Sequence[Estimator], statistic: Callable[[Estimator], Estimate]) -> Chosen:
    """The estimator whose predicted error of a statistic, its root mean squared standard error, is the least."""
    estimates = [statistic(estimator) for estimator in estimators]
    ranked = sorted((_error(estimate), index) for index, estimate in enumerate(estimates))
    best = ranked[0][1]
    return Chosen(estimators[best], estimates[best], tuple((estimators[index].how, error) for error, index in ranked))


class Sources:
    """The estimators of a release. If `keep`, what takes long to fit is kept in the user's cache. `method` is "auto",
    or "ridge-paper" for the plain regression of the moment-to-moment paper alone.
    """

    def __init__(self, released: ReleasedSketch, noise: ReleaseNoise, keep: bool = False, method: str = "auto") -> None:
        if method not in METHODS:
            raise QueryError(f"there is no method called {method!r}", f"the methods are {', '.join(METHODS)}")
        self._released, self._noise, self._keep, self._method = released, noise, keep, method
        self._regression_on = Memo(self._moments)
        self._of_marginal = Memo(self._marginals)

    def of_columns(self, columns: Sequence[str]) -> list[Estimator]:
        """Every estimator that knows these columns together; at least one."""
        wanted = set(columns)
        found = [] if self._method == "ridge-paper" else self._fitted(wanted)
        if not found:
            found = self._regression(wanted)
        if not found:
            raise _nothing_about(sorted(wanted))
        return found

    def knows(self, columns: Sequence[str]) -> bool:
        """Whether an estimator of these columns sees more of them than squares and products."""
        try:
            found = self.of_columns(columns)
        except QueryError:
            return False
        return any(not isinstance(estimator, MomentEstimator) or estimator.telling for estimator in found)

    def _fitted(self, wanted: set[str]) -> list[Estimator]:
        """Tables, marginals as they are and smooth, the mixture; of several columns also the regression on Fourier sums
        and marginals.
        """
        tables = [table for table in self.tables if wanted <= set(table.columns)]
        found: list[Estimator] = [min(tables, key=lambda table: table.table.size)] if tables else []
        if len(wanted) <= 1:  # the joint distribution knows what its column says, and takes long to fit
            return found + self._of_column(wanted)
        if self.products is not None and wanted <= set(self.products.columns):
            found.append(self.products)
        return found + self._regression(wanted, with_marginals=True)

    def _of_column(self, wanted: set[str]) -> list[Estimator]:
        for part, bound in self._released.parts_with(BoundMarginals, wanted):
            name = next(iter(wanted), bound.columns[0])
            return list(self._of_marginal((part, bound, bound.columns.index(name))))
        return []

    def _marginals(self, key: tuple[ReleasedPart, BoundMarginals, int]) -> tuple[Estimator, Estimator]:
        """Of a part, its map, and the index of a column in it."""
        (part, bound, place), schema, noise = key, self._released.schema, self._noise
        parts, name = product_parts(self._released), bound.columns[place]
        if parts is not None and parts.marginals is part and name in self._paired:
            known = self._paired[name]
        else:
            summary = column_summaries(bound, part.sums, part.noise_variance, noise.totals)[place]
            known = summary, bound.cells[place], None
        return MarginalEstimator(schema, noise, part, bound, place), ProductEstimator(
            schema, noise, fit_column(noise, *known)
        )

    @made_once
    def _paired(self) -> dict[str, tuple[ColumnSummary, Cells, GroupTotals | None]]:
        """What is known about the columns of pair tables one by one: from the marginals and from the tables, in the
        cells of these.
        """
        parts = product_parts(self._released)
        if parts is None:
            return {}
        bound, sums = parts.pair_map, noisy_sums(self._released, parts)
        known = zip(sums.summaries, bound.cells, sums.totals(), strict=True)
        return dict(zip(bound.columns, known, strict=True))

    def _regression(self, wanted: set[str], with_marginals: bool = False) -> list[Estimator]:
        """On the sums of fewest columns that has them, of squares only if there are no others."""
        known = [block for block in self._blocks if wanted <= set(block.columns)]
        if with_marginals:
            known = [block for block in known if block.telling and wanted <= self._tabulated.keys()]
        if not known:
            return []
        block = min(known, key=lambda block: (not block.telling, block.single, len(block.columns)))
        return [self._regression_on(block)]

    def _moments(self, block: Block) -> MomentEstimator:
        return MomentEstimator(self._released.schema, self._noise, block, self._tabulated, self._method)

    @made_once
    def tables(self) -> list[TableEstimator]:
        """One for each contingency table of a histogram part."""
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
    def _tabulated(self) -> dict[str, TableEstimator]:
        return {table.columns[0]: table for table in self.tables if len(table.columns) == 1}

    @made_once
    def _blocks(self) -> list[Block]:
        """What a regression may use; tables answer by themselves, unless the paper's regression is asked for."""
        parts = self._released.parts
        if self._method == "auto":
            parts = tuple(part for part in parts if not part.map.read_as_tables(self._released.maps))
        return [block for part in parts for block in blocks(self._released.schema, part)]

    @made_once
    def population(self) -> Population | None:
        """The joint distribution as rows with weights, if the release tells one: that of the mixture, else of the sums
        that see the most columns: the heavy cells of a grid, or points whose weights explain the sums.
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
        assert isinstance(estimator, MomentEstimator)
        return PointPopulation(self._released.schema, estimator)

    @made_once
    def _widest(self) -> Block | None:
        """The sums that see the most columns and tell their points apart."""
        telling = [block for block in self._blocks if block.telling]
        return max(telling, key=lambda block: len(block.columns)) if telling else None

    def rows_by(self, method: str) -> Rows:
        """What `view.sample` draws from, by the name of its method; by itself the population, or the kernel density
        of hashed counters where that is nearer to the table.
        """
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

            return GridPopulation(self._released, self._noise, method)
        raise QueryError(f"method must be one of {', '.join(SAMPLERS)}, got {method!r} instead")


def _error(estimate: Estimate) -> float:
    """Root mean squared standard error; an estimate without one comes last."""
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
