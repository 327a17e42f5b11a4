"""Why a ledger refuses a release or a plan, and what would fit."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from dpsketch.errors import BudgetError, LedgerError
from dpsketch.ledger.account import Accounted, Cap, Standing, rounded
from dpsketch.privacy.accounting import ADD_REMOVE, Attempt, Cost
from dpsketch.privacy.budget import NOT_IN_LEDGER, Budget, decimal_text

_GRANT = "ask the owner to raise the cap: dpsketch ledger grant …"


def check_release(attempt: Attempt, accounted: Accounted) -> None:
    release = attempt.release
    if not release.budget.private:
        raise BudgetError(NOT_IN_LEDGER, "leave out the ledger (--ledger)")
    if release.budget.delta and not release.noises:
        raise LedgerError("a release with delta must state its noise")
    if release.rate is not None and release.budget.rho is None and accounted[2] != ADD_REMOVE:
        raise LedgerError(f"sampling amplifies for the relation {ADD_REMOVE} only", "release without a rate")
    if release.once and accounted[2] != ADD_REMOVE:
        raise LedgerError(f"noise counts on masks for the relation {ADD_REMOVE} only", "release without masks")


def check_threshold(standing: Standing, attempt: Attempt) -> None:
    """Refuse labels above a threshold under a cap of ρ, which would not count their δ."""
    if attempt.release.threshold is not None and standing.cap.rho is not None:
        raise BudgetError(
            f"the cap of dataset '{standing.dataset}' is in rho, which cannot count the delta of found labels",
            "type the labels into the schema, or ask the owner to grant epsilon and delta: dpsketch ledger grant …",
        )


def check_entry(unused: Counter[Budget] | None, dataset: str, name: str, attempt: Attempt) -> None:
    """Refuse a release that its plan does not contain; `unused` is None if there is no such plan."""
    if unused is None:
        raise LedgerError(f"dataset '{dataset}' has no plan '{name}'", "dpsketch ledger declare … declares one")
    release = attempt.release
    if attempt.partition is not None or release.rate is not None:
        raise LedgerError("a release of a part or a sample of the rows cannot be one of a plan", "leave out the plan")
    if release.budget.rho is not None and any(noise.epsilon not in (None, 0) for noise in release.noises):
        raise LedgerError("a release with rho in a plan must have Gaussian noise only", "leave out the plan")
    if not unused[release.budget]:
        rest = "; ".join(f"{budget} ({times} times)" for budget, times in unused.items() if times)
        raise BudgetError(
            f"plan '{name}' has no unused release with {release.budget}",
            f"unused are: {rest}" if rest else "all its releases were made; declare another plan",
        )


def check_plan(standing: Standing, cost: Cost) -> None:
    """Refuse a plan that exceeds the remaining budget."""
    dataset, cap = standing.dataset, standing.cap
    if cap.rho is not None:
        raise BudgetError(
            f"the cap of dataset '{dataset}' is in rho, where a plan saves nothing",
            "release without a plan; the sum of rho is what the releases cost together",
        )
    if not cap.covers(standing.total + cost):
        raise BudgetError(_short("this plan needs", dataset, cost, standing.left, cap), _GRANT)


def refusal(standing: Standing, attempt: Attempt, after: Cost, alone: Cost) -> BudgetError:
    """The error for a release after which the total would be `after`, with a hint of what would fit.

    `alone` is that total if nothing else had been released from its sample.
    """
    dataset, cap, before, left = standing.dataset, standing.cap, standing.total, standing.left
    if not cap.covers(before):  # the cap was lowered
        return BudgetError(f"dataset '{dataset}' has spent more than its cap: {_over(standing.spent, cap)}", _GRANT)
    if cap.rho is None and (after.epsilon is None or before.epsilon is None):
        return BudgetError(
            f"the cap of dataset '{dataset}' is in epsilon, which cannot count a release with rho",
            "release with epsilon and delta, or ask the owner to grant rho: dpsketch ledger grant … --rho",
        )
    cost = _difference(after, before)
    if _difference(alone, before) != cost:
        fits = "sketch the table again for a new sample, or " if cap.covers(alone) else ""
        what = "releases of one sample are counted together: this one costs"
        return BudgetError(_short(what, dataset, cost, left, cap), fits + _GRANT)
    return BudgetError(_short("this release needs", dataset, cost, left, cap), _what_fits(attempt, cost, left, cap))


def _what_fits(attempt: Attempt, cost: Cost, left: Cap, cap: Cap) -> str:
    """The hint of a refusal: a smaller release, if one is easy to state, or more budget from the owner."""
    budget = attempt.release.budget
    plain = attempt.partition is None and attempt.release.rate is None  # the release costs exactly its budget
    if cap.rho is not None:
        smaller = plain and budget.rho is not None and (left.rho or 0) > 0
        return f"pass --rho {_typed(left.rho)} or less, or {_GRANT}" if smaller else _GRANT
    enough_epsilon = (cost.epsilon or 0) <= (left.epsilon or 0)
    if enough_epsilon and cap.delta == 0:
        return "release without --delta, or ask the owner to grant one: dpsketch ledger grant … --epsilon … --delta …"
    if enough_epsilon:
        return f"release without --delta, or {_GRANT}"
    if plain and (left.epsilon or 0) > 0:
        without = " without --delta" if cost.delta > left.delta else ""
        return f"pass --epsilon {_typed(left.epsilon)} or less{without}, or {_GRANT}"
    return _GRANT


def _short(what: str, dataset: str, cost: Cost, left: Cap, cap: Cap) -> str:
    """One text for each quantity that is exceeded."""
    numbers = [
        (kind, need, room, most)
        for kind, need, room, most in (
            ("rho", cost.rho, left.rho, cap.rho),
            ("epsilon", cost.epsilon, left.epsilon, cap.epsilon),
            ("delta", cost.delta, None if cap.rho is not None else left.delta, cap.delta),
        )
        if need is not None and room is not None and most is not None and need > room
    ]
    needs = " and ".join(f"{kind} {_exact(kind, need)}" for kind, need, _, _ in numbers)
    has = " and ".join(
        f"{f'{kind} ' if len(numbers) > 1 else ''}{_exact(kind, max(room, Fraction(0)))} left of {_exact(kind, most)}"
        for kind, _, room, most in numbers
    )
    return f"{what} {needs}; dataset '{dataset}' has {has}."


def _over(spent: Cap, cap: Cap) -> str:
    pairs = (
        ("rho", spent.rho, cap.rho),
        ("epsilon", spent.epsilon, cap.epsilon),
        ("delta", spent.delta, cap.delta),
    )
    return " and ".join(
        f"{kind} {_exact(kind, much)} of {_exact(kind, most)}"
        for kind, much, most in pairs
        if much is not None and most is not None and much > most
    )


def _exact(kind: str, number: Fraction) -> str:
    return f"{float(number):g}" if kind == "delta" else decimal_text(number)


def _typed(number: Fraction | None) -> str:
    """The number rounded down, in a form that can be passed to a command."""
    text = decimal_text(number or Fraction(0))
    return rounded(number or Fraction(0), up=False) if "/" in text else text


def _difference(after: Cost, before: Cost) -> Cost:
    epsilon = (after.epsilon or Fraction(0)) - (before.epsilon or 0)
    return Cost(epsilon, after.delta - before.delta, after.rho - before.rho)
