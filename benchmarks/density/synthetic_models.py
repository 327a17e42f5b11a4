"""Models fitted to rows that PrivBayes draws from a split's training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.density import privbayes
from benchmarks.density.tables import Split, unit_features
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Category

DRAWN = 20_000
BINS, DEGREES = (4, 8, 16), (1, 2, 3)
MOST_WORK = 1e9  # records times sets of parents, for time
Fit = Callable[[Floats, Floats], Floats]  # predictions for the test rows from features and targets


@dataclass(eq=False)
class Coded:
    """Training rows as bins of numbers and places of labels, the target last; numbers lie in [0, 1]."""

    split: Split
    target: Floats  # places of classes, or numbers in [0, 1]
    classes: int  # 0: a number
    bins: int
    codes: np.ndarray = field(init=False, repr=False)
    levels: list[int] = field(init=False)
    scores: privbayes.Scores = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        columns, self.levels = [], []
        for name in self.split.columns:
            values = unit_features(self.split.schema, [name], self.split.train)
            labels = isinstance(self.split.schema.column(name), Category)
            columns.append(values.argmax(axis=1) if labels else self._binned(values[:, 0]))
            self.levels.append(values.shape[1] if labels else self.bins)
        columns.append(self.target.astype(np.int64) if self.classes else self._binned(self.target))
        self.levels.append(self.classes or self.bins)
        self.codes = np.stack(columns, axis=1)

    def _binned(self, values: Floats) -> np.ndarray:
        return np.minimum((values * self.bins).astype(np.int64), self.bins - 1)

    def drawn(self, epsilon: float, degree: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Features as `Split.features` gives them, and targets, of rows of a private network."""
        rows = self.split.schema.rows or len(self.codes)
        network = privbayes.fitted(self.codes, self.levels, epsilon, degree, rows, generator, self.scores)
        codes = network.drawn(min(DRAWN, len(self.codes)), generator)
        parts = []
        for place, name in enumerate(self.split.columns):
            if isinstance(self.split.schema.column(name), Category):
                parts.append((codes[:, place, None] == np.arange(self.levels[place])).astype(np.float64))
            else:
                parts.append((codes[:, place, None] + generator.random((len(codes), 1))) / self.bins)
        last = codes[:, -1].astype(np.float64)
        return np.hstack(parts), last if self.classes else (last + generator.random(len(last))) / self.bins


def predictions(
    split: Split, target: Floats, classes: int, epsilons: Sequence[float], fit: Fit, seed: int
) -> Iterator[tuple[str, float, Floats]]:
    """Predictions by setting and ε, for the networks that are feasible."""
    generator = np.random.default_rng([seed, 18])
    columns = len(split.columns) + 1
    for bins in BINS:
        coded = Coded(split, target, classes, bins)
        for degree in DEGREES:
            if privbayes.candidates_of(columns, degree) * len(target) > MOST_WORK:
                continue
            for epsilon in epsilons:
                yield f"{bins} bins, degree {degree}", epsilon, fit(*coded.drawn(epsilon, degree, generator))


def left_out(split: Split) -> str | None:
    """What is not feasible, or None."""
    columns, rows = len(split.columns) + 1, len(split.train)
    for degree in DEGREES:
        candidates = privbayes.candidates_of(columns, degree)
        if candidates * rows > MOST_WORK:
            return (
                f"  PrivBayes of degree {degree} and more: infeasible, {candidates:,} tables of {rows:,} records, "
                f"against at most {MOST_WORK:g} increments"
            )
    return None
