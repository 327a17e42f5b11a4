"""Parts of groups: how the dependence on a column goes on inside its groups of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.denoise.column_fit import Marginal
from dpsketch.learn.estimators.joint.table_matrix import Blocks
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED

PARTS: Annotated[int, UNRECORDED] = 2
COARSE: Annotated[int, UNRECORDED] = 12  # largest number of groups that are worth splitting
LIGHTEST: Annotated[float, UNRECORDED] = 0.05  # least share of a group that a part of it has
CLOSEST = 1e-6  # places on [0, 1]
RIDGE = 1e-6


@dataclass(frozen=True)
class Refinement:
    """Parts of a column's groups: the part of each cell, shares of the parts, and `spread` (parts × groups), which
    hands what a group holds beyond its marginal share to its parts; `even` does so by their shares alone. `firsts` is
    the first part of each group.
    """

    groups: NDArray[np.int64]
    shares: Floats
    spread: Floats
    even: Floats
    firsts: NDArray[np.int64]


def refine(
    marginal: Marginal, groups: NDArray[np.int64], shares: Floats, parts: NDArray[np.int64] | None = None
) -> Refinement:
    """Few groups of an ordered column in up to `PARTS` parts of near-equal share, others as they are; or in `parts`.

    Relative to the marginal share, dependence is taken to change as little as possible from part to part, given what
    groups hold: least squared slopes. Single values apart (bounds, missing) that are groups of their own have no
    neighbours.
    """
    if parts is None:
        coarse = marginal.ordered and len(shares) <= COARSE
        parts = split_groups(marginal.shares, groups, PARTS if coarse else 1)
    parent = groups[np.unique(parts, return_index=True)[1]]
    held = np.bincount(parts, marginal.shares, len(parent)).astype(np.float64)
    own = shares_inside(held, parent, len(shares)) * shares[parent]
    even = own[:, None] * np.eye(len(shares))[parent] / shares
    spread = even
    if len(parent) > len(shares):
        spread = own[:, None] * _smoothest(own, parent, *group_places(marginal, parts, len(parent))) / shares
    return Refinement(parts, own, spread, even, np.searchsorted(parent, np.arange(len(shares))))


def refined_joint(found: Floats, parts: Sequence[Refinement]) -> Floats:
    """Joint shares of the parts of all columns, from what marginals do not explain of those of their groups.

    Inside groups dependence goes on as `spread` says, as far as no share falls below zero or exceeds its marginals:
    noise in groups that hold almost nothing would otherwise bend the parts of their neighbours beyond all bounds.
    """
    blocks, margin = Blocks([len(part.shares) for part in parts]), np.concatenate([part.shares for part in parts])
    alone, most = np.outer(margin, margin), np.minimum.outer(margin, margin)
    spread, even = (blocks.diagonal(each) for each in zip(*((part.spread, part.even) for part in parts), strict=True))
    joint = alone + even @ found @ even.T
    change = alone + spread @ found @ spread.T - joint
    room = np.where(change > 0, np.maximum(most - joint, 0.0), np.maximum(joint, 0.0))
    possible = np.where(np.abs(change) > room, room / np.maximum(np.abs(change), 1e-300), 1.0)
    firsts = np.concatenate([part.firsts + start for part, start in zip(parts, blocks.offsets, strict=False)])
    counts = np.diff(np.append(firsts, len(margin)))
    least = np.minimum.reduceat(np.minimum.reduceat(possible, firsts, axis=0), firsts, axis=1)
    return joint + np.repeat(np.repeat(least, counts, axis=0), counts, axis=1) * change


def split_groups(shares: Floats, groups: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """The part of each cell, numbered group by group."""
    parts, count = np.empty(len(groups), np.int64), 0
    for group in range(int(groups.max()) + 1):
        cells = np.flatnonzero(groups == group)
        inside, total = shares[cells], shares[cells].sum()
        run = np.zeros(len(cells), np.int64)
        if total > 0:
            run = np.minimum((np.cumsum(inside) - inside / 2) * wanted / total, wanted - 1).astype(np.int64)
            enough = np.bincount(run, inside, wanted) > LIGHTEST * total
            run = np.maximum(np.cumsum(enough)[run] - 1, 0)  # a lighter one joins the part before it, or the first
        parts[cells] = count + run
        count += int(run.max()) + 1
    return parts


def shares_inside(shares: Floats, parent: NDArray[np.int64], size: int) -> Floats:
    """Shares of parts in their groups; equal in a group without mass."""
    total, count = np.bincount(parent, shares, size)[parent], np.bincount(parent, minlength=size)[parent]
    return np.where(total > 0, shares / np.where(total > 0, total, 1.0), 1 / count)


def group_places(marginal: Marginal, parts: NDArray[np.int64], count: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Mean places of parts on [0, 1], and whether a part is a single value apart from its neighbours."""
    assert marginal.centres is not None
    assert marginal.widths is not None
    weight = marginal.shares + 1e-12
    place = np.bincount(parts, weight * marginal.centres, count) / np.bincount(parts, weight, count)
    single = marginal.widths == 0 if marginal.widths.any() else np.arange(len(parts)) == len(parts) - 1
    alone = np.bincount(parts, minlength=count) == 1
    return place, alone & (np.bincount(parts, single, count) > 0)


def _smoothest(shares: Floats, parent: NDArray[np.int64], place: Floats, apart: NDArray[np.bool_]) -> Floats:
    """The linear map from values of groups to those of parts that have these means and least squared slopes."""
    means = (parent == np.arange(parent.max() + 1)[:, None]) * (shares + 1e-9)
    means = means / means.sum(1, keepdims=True)
    chain = np.flatnonzero(~apart)
    steps = np.zeros((max(len(chain) - 1, 0), len(parent)))
    rows = np.arange(len(steps))
    steps[rows, chain[1:]], steps[rows, chain[:-1]] = 1.0, -1.0
    rough = steps.T @ (steps / np.maximum(np.diff(place[chain]), CLOSEST)[:, None])
    rough = rough / max(np.trace(rough) / len(rough), 1e-12) + RIDGE * np.eye(len(rough))
    reach = np.linalg.solve(rough, means.T)
    return np.asarray(reach @ np.linalg.inv(means @ reach))
