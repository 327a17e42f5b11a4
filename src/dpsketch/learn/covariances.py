"""Covariances of pairs of columns, each by the estimator with the least error, as one symmetric matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from dpsketch.learn.answer import Answer, Estimate
from dpsketch.learn.choice import Sources, least_error
from dpsketch.learn.factors import Factor
from dpsketch.learn.sql.selection import Estimator, Selection

Block = tuple[list[tuple[int, int]], Estimate, str]  # pairs of columns, their estimates, and the source of these
_PAIRS = 64


def pairwise_covariances(
    sources: Sources, names: Sequence[str], centred: Sequence[Factor], present: Sequence[Factor]
) -> Iterator[Block]:
    """Covariances of functions of all pairs of columns, in blocks of pairs with the same estimators."""
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for i, j in combinations(range(len(names)), 2):
        known = tuple(id(estimator) for estimator in sources.of_columns((names[i], names[j])))
        groups.setdefault(known, []).append((i, j))
    for every in groups.values():
        for start in range(0, len(every), _PAIRS):
            pairs = every[start : start + _PAIRS]
            estimators = sources.of_columns([names[index] for index in pairs[0]])
            chosen = least_error(estimators, partial(_covariance, pairs, centred, present))
            yield pairs, chosen.estimate, chosen.how


def symmetric(names: Sequence[str], diagonal: Estimate, blocks: Iterable[Block]) -> Answer:
    """A symmetric matrix of answers from its diagonal and blocks of pairs."""
    value, stderr, how = np.diag(diagonal.value), np.diag(diagonal.stderr), set()
    for pairs, estimate, source in blocks:
        first, second = np.array(pairs).T
        value[first, second] = value[second, first] = estimate.value
        stderr[first, second] = stderr[second, first] = estimate.stderr
        how.add(source)
    return Answer(value, stderr, "; ".join(sorted(how)) or "marginals", tuple(names))


def mean_of(number: Factor, present: Factor, chosen: Selection) -> Estimate:
    """Mean over the records where a number is present."""
    return chosen.expectation(number) / chosen.expectation(present)


def variance_of(centred: Factor, present: Factor, chosen: Selection) -> Estimate:
    """Variance over the records where a number is present."""
    share = chosen.expectation(present)
    first = chosen.expectation(centred) / share
    return (chosen.expectation(centred, centred) / share - first * first).clipped(0.0)


def shifted(number: Factor, present: Factor, centre: float) -> Factor:
    """The number minus `centre`, and 0 where it is missing."""
    return Factor(number.columns, lambda frame: number.at(frame) - centre * present.at(frame))


def _covariance(
    pairs: list[tuple[int, int]], centred: Sequence[Factor], present: Sequence[Factor], estimator: Estimator
) -> Estimate:
    product, one, two, share = (
        estimator.expect(*[(left[i], right[j]) for i, j in pairs])
        for left, right in ((centred, centred), (centred, present), (present, centred), (present, present))
    )
    return product / share - (one / share) * (two / share)
