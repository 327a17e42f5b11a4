"""Choice of the pairs of columns that get a table if noise does not allow all, from noisy marginals alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product

import numpy as np

from dpsketch.numerics.arrays import Floats


def spread(shares: Floats) -> float:
    """The entropy of a column's groups: an upper bound on its mutual information with any other column."""
    present = shares[shares > 0]
    return max(0.0, float(-(present * np.log(present)).sum()))  # a single share may be rounded to just above 1


def choose_pairs(
    spreads: Sequence[float],
    pairs: Sequence[tuple[int, int]],
    most: int,
    hints: Collection[int] = (),
    always: Collection[int] = (),
) -> list[int]:
    """The sorted indices of at most `most` of the pairs of columns.

    A pair's worth is √(spread · spread) of its columns, divided for each column by one plus the number of its chosen
    pairs, so that columns take turns and near-constant ones come late. The pairs with the indices `always` come first,
    then those with a column of `hints`; among each of these, and among the others, those that connect columns not yet
    connected by chosen pairs. Ties go to the first pair.
    """
    members = np.array(pairs, np.int64).reshape(-1, 2)
    one, two = members.T
    worth = np.sqrt(np.asarray(spreads)[one] * np.asarray(spreads)[two])
    first = np.isin(np.arange(len(members)), list(always))
    hinted = np.isin(members, list(hints)).any(axis=1) & ~first
    of_column = [np.flatnonzero((one == column) | (two == column)) for column in range(len(spreads))]
    uses, component = np.ones(len(spreads)), np.arange(len(spreads))
    left, wanted = np.ones(len(members), bool), min(most, len(members))
    for group, joining in product((first, hinted, ~first & ~hinted), (True, False)):
        open_ = left & group & (component[one] != component[two] if joining else True)
        now = np.where(open_, worth / (uses[one] * uses[two]), -1.0)
        while wanted and len(now) and now[index := int(np.argmax(now))] >= 0:
            left[index], wanted = False, wanted - 1
            uses[members[index]] += 1
            if joining:
                component[component == component[two[index]]] = component[one[index]]
                now[component[one] == component[two]] = -1.0
            now[index] = -1.0
            for changed in (of_column[column] for column in members[index]):  # the worth of other pairs is unchanged
                fresh = worth[changed] / (uses[one[changed]] * uses[two[changed]])
                now[changed] = np.where(now[changed] >= 0, fresh, -1.0)
    return np.flatnonzero(~left).tolist()
