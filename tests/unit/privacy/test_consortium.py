"""The public numbers of a consortium."""

from __future__ import annotations

import pytest

from dpsketch.errors import BudgetError
from dpsketch.privacy.noise_shares import Consortium, Shares


@pytest.mark.parametrize(
    ("holders", "colluders", "threshold", "honest"),
    [(3, 1, 3, 2), (5, 1, 4, 3), (7, 1, 5, 4), (7, 2, 5, 3), (5, 0, 3, 3)],
)
def test_defaults_are_the_smallest_safe_threshold(holders: int, colluders: int, threshold: int, honest: int) -> None:
    chosen = Consortium.of(holders, colluders)
    assert (chosen.threshold, chosen.least, chosen.honest) == (threshold, threshold, honest)


@pytest.mark.parametrize(
    "numbers",
    [
        (2, 2, 0, 2),  # a sum of two
        (5, 2, 1, 2),
        (5, 6, 1, 4),  # more survivors than holders
        (5, 4, 1, 3),  # 2·3 = 5 + 1: two lists of survivors could both be unmasked
        (5, 4, 4, 4),  # the colluders alone reach the threshold
        (5, 4, 1, 5),  # more than the survivors
        (5, 4, -1, 4),
        (5, 4, True, 4),
        (2000, 1500, 1, 1200),
    ],
)
def test_numbers_that_protect_nobody_are_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(BudgetError):
        Consortium(*numbers)


@pytest.mark.parametrize("facts", [{"honest": 0, "added": 1, "size": 1}, {"honest": 3, "added": 2, "size": 1}])
def test_hostile_shares_are_refused(facts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="shares"):
        Shares.from_dict(facts)
    assert Shares.from_dict({"honest": 3, "added": 5, "size": 7}).times == Shares(3, 5, 7).times
