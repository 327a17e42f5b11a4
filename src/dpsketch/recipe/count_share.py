"""The share of a budget for the count by which sums are divided, from public numbers alone."""

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
    """The count's share of a budget that it splits with m Fourier sums, from public numbers alone.

    It minimises the noise-to-signal ratio of the sums divided by the count, for the noises of a release and for the
    strongest signal, where the count matters most. Sums get disc or Gaussian noise, the count Laplace or Gaussian
    noise; the pair with the smallest ratio decides. The result has four decimals and is at least LEAST_COUNT_SHARE.
    Where neighbouring tables have equal numbers of rows, the count needs no noise, and a release gives its share to the
    sums.

    Source: compressive L. 27, 28 and App. E, with the clean sums as reference and no subsampling. The paper omits a
    term and obtains (rows·ε)^(−2/3). That holds only while rows·ε is well below m, where noise dominates the sums.
    Beyond, the best share stays near m^(−2/3) for any number of rows, and with Gaussian noise near (2m)^(−1/2).
    """
    if schema.relation is Relation.REPLACE_ONE or not budget.private:
        return LEAST_COUNT_SHARE
    unit = ((schema.rows_per_unit or 1) / rows) ** 2
    ratios: list[tuple[float, float]] = []
    for count, sums, squares in count_and_sums(budget, frequencies):
        share = 1 - sums_share(count * unit, 1.0, sums * unit, squares)
        power = 1 if squares else 2
        ratios.append(((1 + count * unit / share**power) * (1 + sums * unit / (1 - share) ** power), share))
    return max(round(min(ratios)[1], 4), LEAST_COUNT_SHARE)


def sums_share(count: float, rest: float, noise: float, squares: bool = False) -> float:
    """γ*, the share of a budget for the sums that minimises (1 + count/(1−γ)²)·(rest + noise/γ²).

    `count` and `noise` are the contributions of the count's and the sums' noise under the whole budget; `rest` is 1
    plus all other noise. With `squares`, shares divide a squared budget, as for Gaussian noise, and the exponents are
    1.

    Source: compressive App. E. The cubic is solved with its term AB/C, which the paper omits to obtain 1 − (nε)^(−2/3),
    valid only where noise dominates the sums.
    """
    if min(count, rest, noise) <= 0:
        raise RecipeError("count, rest and noise must be above 0")
    if squares:
        return 1 / (1 + (count * (rest + noise) / (noise * (1 + count))) ** 0.5)
    return 1 - exact_count_share(count * rest / noise, count)


def exact_count_share(relative: float, absolute: float) -> float:
    """The root of s³ = relative·(1−s)³ + absolute·(1−2s) in (0, ½), or below 1 where `relative` is large.

    This is the best share of a count whose noise contributes `absolute` under the whole budget. `relative` is
    `absolute` times the sums' part without noise, over the contribution of their noise under the whole budget. Source:
    compressive App. E.
    """
    share = max(0.5, 1 - 1 / (1 + relative ** (1 / 3)))
    for _ in range(50):  # Newton's method from above, where the cubic is convex and increasing: no step overshoots
        value = share**3 - relative * (1 - share) ** 3 - absolute * (1 - 2 * share)
        share -= value / (3 * share**2 + 3 * relative * (1 - share) ** 2 + 2 * absolute)
    return share
