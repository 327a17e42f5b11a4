"""Labels above a threshold: their δ is not in their noise, so that no ρ covers it."""

from __future__ import annotations

from fractions import Fraction

import dpsketch as dps
from dpsketch.ledger.ledger import Ledger
from dpsketch.privacy.accounting import ADD_REMOVE, Attempt
from dpsketch.privacy.composition import composed_spends
from dpsketch.privacy.label_threshold import label_event
from dpsketch.schema.relation import Relation
from ledger_spends import pure, refused, reserve

LABELS = label_event(dps.Budget(0.5, 1e-6), 1, Relation.ADD_REMOVE)


def test_epsilon_and_delta_are_spent(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0, 1e-6))
    reserve(ledger, LABELS)
    reserve(ledger, pure(0.5), "j")
    standing = ledger.standing("a")
    assert standing is not None
    assert (standing.total.epsilon, standing.total.delta) == (1, Fraction(1, 10**6))
    ledger.verify()


def test_a_cap_without_delta_refuses_them(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(1.0))
    assert "this release needs delta 1e-06; dataset 'a' has 0 left of 0." in refused(lambda: reserve(ledger, LABELS))


def test_a_cap_of_rho_refuses_them(ledger: Ledger) -> None:
    ledger.grant("a", dps.Budget(rho=10))
    assert refused(lambda: reserve(ledger, LABELS)) == (
        "BudgetError: the cap of dataset 'a' is in rho, which cannot count the delta of found labels\n"
        "Hint: type the labels into the schema, or ask the owner to grant epsilon and delta: dpsketch ledger grant …"
    )


def test_they_refuse_a_cap_of_rho(ledger: Ledger) -> None:
    reserve(ledger, LABELS)
    assert refused(lambda: ledger.grant("a", dps.Budget(rho=10))) == (
        "BudgetError: dataset 'a' has releases of found labels, which only epsilon and delta can count\n"
        "Hint: grant epsilon and delta"
    )
    ledger.grant("b", dps.Budget(rho=10))


def test_what_they_would_cost_as_a_plan_includes_their_delta() -> None:
    cost = composed_spends([Attempt(LABELS)], Fraction(1, 10**6), ADD_REMOVE)
    assert cost == Fraction(1, 2)
    without, with_delta = (
        composed_spends([Attempt(release)] * 60, Fraction(1, 10**4), ADD_REMOVE) for release in (pure(0.5), LABELS)
    )
    assert without < with_delta < 30  # 6e-5 of the 1e-4 is theirs
