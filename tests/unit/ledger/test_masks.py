"""Noise that counts on masks: one release of a raw sketch, and no other beside it."""

from __future__ import annotations

from fractions import Fraction

import pytest

import dpsketch as dps
from dpsketch.errors import LedgerError
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import REPLACE_ONE
from dpsketch.privacy.events import Mechanism, Noise, Release
from dpsketch.privacy.masks import Masks
from ledger_spends import noisy, pure, refused, reserve

MASKED = Release(dps.Budget(0.5), (Noise(Mechanism.LAPLACE, 8, Fraction(9), Masks(2, Fraction(1, 10))),))
SAMPLED = Release(dps.Budget(0.5), MASKED.noises, Fraction(1, 10))


@pytest.fixture(autouse=True)
def granted(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(10.0, 1e-5))


@pytest.mark.parametrize("masked", [MASKED, SAMPLED], ids=["all rows", "a sample"])
@pytest.mark.parametrize("second", [MASKED, pure(0.1), noisy(1e-6)], ids=["masked", "pure", "with delta"])
def test_nothing_is_released_after_it(ledger: Ledger, masked: Release, second: Release) -> None:
    reserve(ledger, masked)
    assert refused(lambda: reserve(ledger, second)) == (
        "LedgerError: this raw sketch was released with noise that counts on its masks: it can be released only once\n"
        "Hint: sketch the table again, with new masks"
    )
    merged = frozenset(["i", "j"])
    with pytest.raises(LedgerError, match="only once"):
        ledger.reserve("a", ("row", 1, "add-remove"), second, merged)
    reserve(ledger, second, "k")
    ledger.verify()


def test_nothing_is_released_before_it(ledger: Ledger) -> None:
    reserve(ledger, noisy(1e-6))
    assert refused(lambda: reserve(ledger, MASKED)) == (
        "LedgerError: this raw sketch was released before, and Laplace noise that counts on its masks allows one "
        "release only\nHint: sketch the table again, with new masks, or add Gaussian noise, which does not count on "
        'them: a budget with delta, and --mechanism gaussian (mechanism="gaussian")'
    )
    assert len(ledger.accounts()[0].spends) == 1
    reserve(ledger, MASKED, "j")
    ledger.verify()


def test_inputs_of_a_merged_sketch_are_all_used_up(ledger: Ledger) -> None:
    ledger.reserve("a", ("row", 1, "add-remove"), MASKED, frozenset(["i", "j"]))
    for lineage in ("i", "j"):
        with pytest.raises(LedgerError, match="only once"):
            reserve(ledger, 0.1, lineage)


def test_it_costs_its_budget_beside_others(ledger: Ledger) -> None:
    """New masks for every raw sketch: costs of different sketches add up as those of any releases do."""
    for lineage in ("i", "j"):
        reserve(ledger, MASKED, lineage)
    (account,) = ledger.accounts()
    assert account.total.epsilon == 1


def test_it_is_for_units_more_or_less(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="noise counts on masks for the relation add-remove only"):
        ledger.reserve("b", ("row", 1, REPLACE_ONE), MASKED, frozenset(["i"]))
    with pytest.raises(LedgerError, match="must state of which sketch"):
        ledger.reserve("b", ("row", 1, "add-remove"), MASKED, frozenset())
