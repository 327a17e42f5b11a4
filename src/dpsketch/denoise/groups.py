"""Groups of cells that pair tables are made of. Chosen from noisy marginals alone, so a release can use them too."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, PROTOTYPE, STUDY_TABLES, Tuned

_ORIGIN = Tuned(STUDY_TABLES, by=PROTOTYPE, decision=7)
FEWEST: Annotated[int, _ORIGIN] = 4
# Groups of an ordered column, at most: more take longer to fit than they tell.
MOST: Annotated[int, Tuned("fare, flights", by=BY_HAND, decision=26)] = 32
MOST_LABELS = 250  # of a column that stand alone
# A cell's standard error at which there is one group, as a share of the rows.
RESOLUTION: Annotated[float, _ORIGIN] = 0.08
# Weight of the density's square root in the groups' measure.
TAILS: Annotated[float, Tuned("htru2, occupancy, california, lifesci", by=BY_HAND, decision=12)] = 0.3
# Groups, below which the measure is the share of records alone.
ENOUGH: Annotated[int, Tuned("htru2", by=BY_HAND, decision=12)] = 6

# Groups of a column in tables of three columns, at least.
TRIPLE_GROUPS: Annotated[int, Tuned("flights of the truth study", by=BY_HAND, decision=35)] = 6
# A cell's standard error, as a share of the rows, below which there are more of them.
TRIPLE_RESOLUTION: Annotated[float, Tuned("flights and fare of the truth study", by=BY_HAND, decision=55)] = 2.5e-4
MOST_SHOWN = 2_000_000  # cells of the tables of three columns of a release: bounds its file and the time of a fit


def groups_wanted(pair_sd: float) -> int:
    """Groups of a column when a cell of a pair table is known up to `pair_sd`, as a share of the rows."""
    return int(np.clip(round((RESOLUTION / pair_sd) ** (2 / 3)), FEWEST, MOST))


def triple_groups_wanted(sd: float, tables: int) -> int:
    """Groups of a column when a cell of a table of three columns is known up to `sd`, as a share of the rows.

    Halving a column's groups leaves half as much inside them; the noise of a sum of cells grows with the number of
    cells, but only in the contrasts that stand out of it.
    """
    wanted = min(TRIPLE_GROUPS * (TRIPLE_RESOLUTION / sd) ** 0.5, (MOST_SHOWN / tables) ** (1 / 3), MOST)
    return max(round(wanted), TRIPLE_GROUPS)


def pooling_threshold(cell_sd: float, pair_sd: float) -> float:
    """The share that a category needs to stand alone, when cells of marginals and pair tables are off by this much."""
    return 2 * max(cell_sd, pair_sd)


def choose_groups(shares: Floats, widths: Floats | None, wanted: int, threshold: float = 0.0) -> NDArray[np.int64]:
    """The group of each cell; the last cell is *missing*. `widths` are those of cells, None of a column without order.

    Ordered columns: about `wanted` runs of cells of near-equal `_measure`; a cell that has more stands alone, and so
    does a bound that holds more than `threshold`. Others: values above `threshold` stand alone, and the rest are
    pooled. Missing is a category of its own when it is above `threshold`; otherwise it joins the last group.
    """
    present, missing = shares[:-1], shares[-1]
    groups = np.empty(len(shares), np.int64)
    if widths is None:
        groups[:-1] = _heaviest(present, threshold)
    else:
        bounds = np.zeros(len(present), bool)
        bounds[[0, -1]] = widths[:-1].any() & (present[[0, -1]] > threshold)
        groups[:-1] = _runs(_measure(present, widths[:-1], wanted), wanted, bounds)
    last = groups[:-1].max()
    groups[-1] = last + 1 if missing > threshold else last
    return groups


def choose_few_groups(shares: Floats, widths: Floats | None, wanted: int, threshold: float) -> NDArray[np.int64]:
    """The same with about `wanted` groups of labels, too: the heaviest ones alone, and the others together."""
    if widths is None and len(shares) > wanted:
        threshold = max(threshold, float(np.sort(shares[:-1])[-wanted]))
    return choose_groups(shares, widths, wanted, threshold)


def choose_halves(shares: Floats, ordered: bool) -> NDArray[np.int64]:
    """The half of each cell, 0 or 1, neither of them empty; the last cell is *missing*.

    The cells up to a cut in their order, or the heaviest ones where they have none, that come nearest to half of all.
    Labels have the order of the schema, in which people list sizes and degrees, unless it means nothing
    (`Category.in_order`).
    """
    order = np.arange(len(shares)) if ordered else np.argsort(-shares, kind="stable")
    below = np.cumsum(shares[order])[:-1]
    halves = np.ones(len(shares), np.int64)
    halves[order[: int(np.argmin(np.abs(below - shares.sum() / 2))) + 1]] = 0
    return halves


def _measure(shares: Floats, widths: Floats, wanted: int) -> Floats:
    """Shares, a part TAILS of them handed out anew by roots of densities, so that tails, which have few records but
    most of the range, are divided too: what is linear in a column, as covariances and regressions are, depends on them.
    Of few groups none can be spared for it. Single values keep theirs.
    """
    tails = TAILS * np.clip((wanted - FEWEST) / (ENOUGH - FEWEST), 0.0, 1.0)
    roots = np.sqrt(np.maximum(shares, 0.0) * widths)
    if not roots.any():
        return shares
    return shares + tails * np.where(widths > 0, roots / roots.sum() * shares[widths > 0].sum() - shares, 0.0)


def _runs(shares: Floats, wanted: int, alone: NDArray[np.bool_]) -> NDArray[np.int64]:
    total = shares.sum()
    if total <= 0:
        return np.zeros(len(shares), np.int64)
    middle = np.cumsum(shares) - shares / 2
    run = np.minimum((middle * wanted / total).astype(np.int64), wanted - 1)
    heavy = (shares > total / wanted) | alone
    new = np.zeros(len(shares), bool)
    new[1:] = (np.diff(run) > 0) | heavy[1:] | heavy[:-1]
    return np.cumsum(new)


def _heaviest(shares: Floats, threshold: float) -> NDArray[np.int64]:
    alone = [int(cell) for cell in np.argsort(-shares, kind="stable")[:MOST_LABELS] if shares[cell] > threshold]
    if len(alone) >= len(shares) - 1:  # nothing to pool
        return np.arange(len(shares))
    groups = np.full(len(shares), len(alone))
    groups[alone] = np.arange(len(alone))
    return groups
