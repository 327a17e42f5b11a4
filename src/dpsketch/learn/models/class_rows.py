"""Evidence for each class from rows of a release's joint distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import sqrt
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpsketch.learn.answer import Answer
from dpsketch.learn.estimators.radial_kernels import EUCLIDEAN, Radial
from dpsketch.learn.models.row_kernel import Located, RowKernel, drawn_rows, framed, read_rows, saved_rows, unseen
from dpsketch.learn.points import Frame
from dpsketch.learn.population.weighted_rows import Hidden, Population, hidden_in, spread
from dpsketch.learn.saved import Arrays, Facts, Saved, columns_of
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned
from dpsketch.schema.schema import Schema

_ORIGIN = Tuned("occupancy, adult", by=BY_HAND, decision=65)
# The bandwidth times the square root of the number of columns, in widths of the bounds, and the number of hashes.
BANDWIDTH: Annotated[float, _ORIGIN] = 0.2
POWER: Annotated[int, _ORIGIN] = 8


class ClassRows:
    """Log ratios of the kernel density of a class to that of all records, from rows of the joint distribution. The
    first row of codes is the target's.
    """

    def __init__(
        self,
        schema: Schema,
        target: str,
        columns: Sequence[str],
        kernel: Radial,
        fits: Sequence[Codes],
        hidden: Hidden,
    ) -> None:
        self.schema, self.target, self.columns, self.kernel = schema, target, tuple(columns), kernel
        self._fits, self._hidden = fits, hidden
        self._of_rows = RowKernel(schema, columns, kernel)
        self.how = f"kernel densities of {fits[0].shape[1]} rows of the joint distribution"

    @classmethod
    def of(cls, schema: Schema, population: Population, target: str, columns: Sequence[str]) -> ClassRows:
        spans = (1 / (BANDWIDTH * sqrt(len(columns))),) * len(columns)
        return cls(
            schema,
            target,
            columns,
            Radial(EUCLIDEAN, POWER, spans),
            drawn_rows(population, (target, *columns)),
            hidden_in(population),
        )

    @cached_property
    def _located(self) -> list[Located]:
        return [self._of_rows.located(framed(self.schema, self.columns, codes[1:])) for codes in self._fits]

    def evidence(self, X: Any, levels: NDArray[np.int64]) -> Answer:
        """One column for each of these levels of the target."""
        points = self._of_rows.located(Frame.read(self.schema, self.columns, X))
        (fit, hidden), *refits = (self._ratios(model, points, levels) for model in range(len(self._fits)))
        return Answer(fit, np.hypot(spread(fit, [refit for refit, _ in refits]), hidden), self.how)

    def _ratios(self, model: int, points: Located, levels: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Log ratios, and their errors from what rows do not show. A class's density is shrunk towards that of all
        records by the weight of one row.
        """
        own = self.schema.column(self.target).levels_of(self._fits[model][0])
        member = np.stack([own == level for level in levels], axis=1).astype(np.float64)
        sums, squares = self._of_rows.means(self._located[model], member, points)
        held = member.sum(axis=0)
        every, second = ((each.sum(axis=1) / held.sum())[:, None] for each in (sums, squares))
        means = np.maximum((sums + every) / (held + 1), 1e-300)
        hidden = unseen(means, (squares + second) / (held + 1), self._hidden)
        return np.log(means / np.maximum(every, 1e-300)), np.log1p(hidden / means)

    def to_saved(self) -> Saved:
        facts, arrays = saved_rows(self._fits, self._hidden)
        return facts | {"columns": list(self.columns), "kernel": self.kernel.to_dict()}, arrays

    @classmethod
    def from_saved(cls, schema: Schema, target: str, facts: Facts, arrays: Arrays) -> ClassRows:
        columns, kernel = columns_of(schema, facts["columns"]), Radial.from_dict(facts["kernel"])
        if len(kernel.spans) != len(columns):
            raise ValueError("kernel")
        return cls(schema, target, columns, kernel, *read_rows(facts, arrays, 1 + len(columns)))
