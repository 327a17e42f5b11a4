"""One draw of a study, hashed and released once; all protocols and sizes choose from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.market.tables import Study, study
from dpsketch.federate.market import market_roles
from dpsketch.federate.market.feature_hash import Features, code_points, feature_mean
from dpsketch.federate.market.greedy import Chosen, greedy, uniform
from dpsketch.federate.market.kernel_distance import GaussianKernel, gain_kept, mmd2
from dpsketch.federate.market.sold_rows import Rows
from dpsketch.federate.market.terms import Terms
from dpsketch.ledger.ledger import Ledger
from dpsketch.numerics.arrays import Floats
from dpsketch.privacy.budget import Budget
from dpsketch.sketch.released import ReleasedSketch

BUDGET = Budget(1.0, 1e-5)
OVER = (1.0, 1.25, 1.5)


@dataclass(frozen=True, eq=False)
class Case:
    """Owners' rows, their releases and the consumer's, under fresh noise."""

    study: Study
    terms: Terms
    rows: Mapping[str, Rows]
    validation: Rows
    releases: Mapping[str, ReleasedSketch]
    target: ReleasedSketch
    seed: int

    @classmethod
    def drawn(cls, name: str, seed: int, budget: Budget = BUDGET, features: int = 512) -> Case:
        table = study(name, seed)
        terms = Terms(
            table.schema, table.label, table.width, 1000, budget, budget, 500, features=features, seed=seed, over=1.0
        )
        rows = {name: Rows.read(terms, part) for name, part in table.owners.items()}
        releases = {
            name: market_roles.owner_release(part, terms, Ledger("sqlite://"), name)
            for name, part in table.owners.items()
        }
        target = market_roles.consumer_release(table.validation, terms, Ledger("sqlite://"), "consumer")
        return cls(table, terms, rows, Rows.read(terms, table.validation, labelled=False), releases, target, seed)

    @property
    def kernel(self) -> GaussianKernel:
        return GaussianKernel(self.terms.width)

    @cached_property
    def pool(self) -> Features:
        return np.concatenate([each.features for each in self.rows.values()])

    @cached_property
    def codes(self) -> NDArray[np.int16]:
        return np.concatenate([each.codes for each in self.rows.values()], axis=1)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        return np.concatenate([np.full(len(each), place) for place, each in enumerate(self.rows.values())])

    def starts(self) -> dict[str, int]:
        """The first row of every owner in the pool."""
        ends = np.cumsum([len(each) for each in self.rows.values()])
        return dict(zip(self.rows, [0, *ends[:-1].tolist()], strict=True))

    def points(self, codes: NDArray[np.int16]) -> Floats:
        return code_points(codes[: len(self.terms.hashed.columns)])

    @cached_property
    def wanted(self) -> Floats:
        return self.points(self.validation.codes)

    def distance(self, codes: NDArray[np.int16]) -> float:
        """MMD² of rows to the validation set, with the exact kernel."""
        return mmd2(self.points(codes), self.wanted, self.kernel)

    def uniform(self, size: int) -> Chosen:
        return uniform(self.owners, size, self.seed)

    def greedy(self, size: int) -> Chosen:
        """The choice without privacy, from the exact mean of the validation set."""
        return greedy(self.pool, feature_mean(self.validation.features), size)

    def sketch_once(self, size: int, over: float) -> NDArray[np.int16]:
        """Codes of the summary, the label last."""
        terms = market_roles.for_size(self.terms, size, over)
        summary = market_roles.market_of(terms, self.releases, self.target, self.rows, self.validation)
        return Rows.read(terms, summary.table).codes

    def exact_mixture(self) -> float:
        """MMD² by features of the mixture of all rows by label that is closest to the population: what a choice that
        knew the population, and not the validation set's own deviation from it, would reach.
        """
        held = Rows.read(self.terms, self.study.test, labelled=False)
        both = np.concatenate([held.features, self.validation.features])
        return float(((feature_mean(both) - feature_mean(self.validation.features)) ** 2).sum())

    def kept(self, ours: float, size: int) -> float:
        return gain_kept(self.distance(self.codes[:, self.uniform(size)]), ours, self.greedy_distance(size))

    def greedy_distance(self, size: int) -> float:
        return self.distance(self.codes[:, self.greedy(size)])
