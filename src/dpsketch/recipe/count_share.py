"""The share of a budget for the count beside sums that are divided by it: rules of public numbers alone."""

from __future__ import annotations

from typing import Annotated

from dpsketch.calibration import count_and_sums
from dpsketch.errors import RecipeError
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.privacy.budget import Budget
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

LEAST_COUNT_SHARE: Annotated[float, UNRECORDED] = 0.001


def count_share(schema: Schema, rows: int, budget: Budget, frequencies: int) -> float:
    """The count's share of a budget that it divides with m Fourier sums, from public numbers alone: the one with which
    the sums divided by the count have the least noise-to-signal ratio, by the noises that they get from a release, for
    the strongest signal, to which the count matters most.

    Sums get disc or Gaussian noise, the count Laplace or Gaussian noise; of the pairs that a release may choose the one
    with the least ratio counts. The result has four decimals and is at least LEAST_COUNT_SHARE. Where neighbouring
    tables have as many rows the count needs no noise, and a release gives its share to the sums.

    Source: compressive L. 27, 28 and App. E, with the clean sums as reference and no subsampling. The paper leaves a
    term out and finds (rows·ε)^(−2/3). That holds only as long as rows·ε is well below m, where the sums are lost in
    noise; beyond, the best share stays near m^(−2/3) however many rows, and with Gaussian noise near (2m)^(−1/2).
    """
    if schema.relation is Relation.REPLACE_ONE or not budget.private:
        return LEAST_COUNT_SHARE
    unit = ((schema.rows_per_unit or 1) / rows) ** 2
    found: list[tuple[float, float]] = []
    for count, sums, squares in count_and_sums(budget, frequencies):
        share = 1 - sums_share(count * unit, 1.0, sums * unit, squares)
        power = 1 if squares else 2
        found.append(((1 + count * unit / share**power) * (1 + sums * unit / (1 - share) ** power), share))
    return max(round(min(found)[1], 4), LEAST_COUNT_SHARE)


def sums_share(count: float, rest: float, noise: float, squares: bool = False) -> float:
    """γ*, the share of a budget for the sums that makes (1 + count/(1−γ)²)·(rest + noise/γ²) least: `count` and `noise`
    are what the count's and the sums' noise would add with all of the budget, `rest` is 1 and all other noise. With
    `squares`, shares divide a squared budget, as those of Gaussian noise do, and the exponents are 1.

    Source: compressive App. E, whose cubic is solved here as it stands: with its term AB/C, which the paper leaves out
    and so finds 1 − (nε)^(−2/3), right only where the sums are lost in noise.
    """
    if min(count, rest, noise) <= 0:
        raise RecipeError("count, rest and noise must be above 0")
    if squares:
        return 1 / (1 + (count * (rest + noise) / (noise * (1 + count))) ** 0.5)
    return 1 - exact_count_share(count * rest / noise, count)


def exact_count_share(relative: float, absolute: float) -> float:
    """The root of s³ = relative·(1−s)³ + absolute·(1−2s) in (0, ½), or of less than 1 where `relative` is large:
    the best share of a count whose noise adds `absolute` with all of the budget; `relative` is that times what the sums
    are without their noise, over what the noise adds with all of the budget. Source: compressive App. E.
    """
    share = max(0.5, 1 - 1 / (1 + relative ** (1 / 3)))
    for _ in range(50):  # Newton from above, where the cubic is convex and rises: no step goes too far
        value = share**3 - relative * (1 - share) ** 3 - absolute * (1 - 2 * share)
        share -= value / (3 * share**2 + 3 * relative * (1 - share) ** 2 + 2 * absolute)
    return share
