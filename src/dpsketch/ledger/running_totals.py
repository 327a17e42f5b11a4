"""Running totals: the few numbers per dataset that the next decision needs, so that no spend has to be read again.

They are JSON values by key, and follow from the spends. `totals_of` computes all of them; `totals_after` computes those
that one more spend changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from fractions import Fraction
from typing import Any

from dpsketch.ledger.account import Plan, Spend
from dpsketch.privacy.accounting import (
    FREE,
    Cost,
    Partition,
    Together,
    disjoint_part,
    groups,
    is_sample,
    parts_met,
    release_cost,
)
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.events import budget_facts

Totals = dict[str, Any]
Lookup = Callable[[str], Any]  # the newest value of a key; None if it has none

# most parts in which neighbouring tables can differ; the largest sums are kept for this number of parts
_MOST_PARTS = 2
_NO_PARTS: list[list[Any] | None] = [[], [], []]


def total_key(dataset: str) -> str:
    """Key of a dataset's total, plans included."""
    return _key("total", dataset)


def input_key(identity: str) -> str:
    """Key of the dataset under which an input was released, and of the sample that contains it."""
    return _key("input", identity)


def once_key(identity: str) -> str:
    """Key that is true for an input of which the only release has been made."""
    return _key("once", identity)


def plan_key(dataset: str, plan: str) -> str:
    """Key of the used budgets of a plan."""
    return _key("plan", dataset, plan)


def cost_value(cost: Cost) -> list[str | None]:
    return [None if cost.epsilon is None else str(cost.epsilon), str(cost.delta), str(cost.rho)]


def cost_of(value: Any) -> Cost:
    """The stored cost; zero before the first spend."""
    if value is None:
        return FREE
    epsilon, delta, rho = value
    return Cost(None if epsilon is None else Fraction(epsilon), Fraction(delta), Fraction(rho))


def used_value(used: Counter[Budget]) -> list[Any]:
    return [[budget_facts(budget), times] for budget, times in sorted(used.items(), key=str)]


def used_of(value: Any) -> Counter[Budget]:
    return Counter({Budget(**facts): times for facts, times in value or []})


def totals_after(get: Lookup, dataset: str, relation: str, spend: Spend) -> Totals | None:
    """The totals that a spend changes; None where they can be computed only from all spends.

    That is rare: the spend joins two samples, or releases a sample of one part with another, or lowers the cost of a
    part (a δ that was cut at its maximum).
    """
    part, group, together, before = disjoint_part(spend.partition), spend.id, Together(), FREE
    inputs = {one: get(input_key(one)) for one in spend.lineage}
    if is_sample(spend):
        shared = {known[1] for known in inputs.values() if known is not None and known[1] is not None}
        if len(shared) > 1:
            return None
        if shared:
            group = shared.pop()
            together, where = _sample_of(get(_key("sample", group)))
            if where != part:
                return None
            before = together.cost
    together = together.plus(spend.release)
    cost = release_cost(together, spend.plan is not None)
    total = cost_of(get(total_key(dataset)))
    changed: Totals = {}
    if part is None:
        total += cost - before
    else:
        sum_key, cut_key = _part_key(dataset, part), _cut_key(dataset, part)
        old = cost_of(get(sum_key))
        new = old - before + cost
        if _falls(old, new):
            return None
        largest = get(cut_key) or _NO_PARTS
        changed[sum_key] = cost_value(new)
        changed[cut_key] = _with_part(largest, part.value, new)
        total += _worst(changed[cut_key], relation) - _worst(largest, relation)
    changed[total_key(dataset)] = cost_value(total)
    if is_sample(spend):
        changed[_key("sample", group)] = _sample_value(together, part)
        changed |= {input_key(one): [dataset, group] for one in spend.lineage}
    else:
        changed |= {input_key(one): [dataset, None] for one, known in inputs.items() if known is None}
    if spend.release.once:
        changed |= {once_key(one): True for one in spend.lineage}
    if spend.plan is not None:
        key = plan_key(dataset, spend.plan)
        changed[key] = used_value(used_of(get(key)) + Counter([spend.release.budget]))
    return changed


def totals_of(dataset: str, relation: str, spends: Sequence[Spend], plans: Sequence[Plan]) -> Totals:
    """All totals of a dataset with these spends, in the order in which they were made."""
    totals: Totals = {}
    sums: dict[Partition, Cost] = {}
    total = sum((plan.cost for plan in plans), FREE)
    for spend in spends:
        totals |= {input_key(one): [dataset, None] for one in spend.lineage}
        if spend.release.once:
            totals |= {once_key(one): True for one in spend.lineage}
        part = disjoint_part(spend.partition)
        if part is not None:
            sums[part] = FREE
    for group in groups(spends):
        first = group.spends[0]
        if is_sample(first):
            assert isinstance(first, Spend)
            totals[_key("sample", first.id)] = _sample_value(group.together, group.part)
            totals |= {input_key(one): [dataset, first.id] for spend in group.spends for one in spend.lineage}
        if group.part is None:
            total += group.cost
        else:
            sums[group.part] += group.cost
    for part, cost in sums.items():
        totals[_part_key(dataset, part)] = cost_value(cost)
        totals[_cut_key(dataset, part)] = _with_part(totals.get(_cut_key(dataset, part), _NO_PARTS), part.value, cost)
    total = sum((_worst(totals[cut], relation) for cut in {_cut_key(dataset, part) for part in sums}), total)
    for name in {spend.plan for spend in spends if spend.plan is not None}:
        used = Counter(spend.release.budget for spend in spends if spend.plan == name)
        totals[plan_key(dataset, name)] = used_value(used)
    return totals | {total_key(dataset): cost_value(total)}


def _key(*words: str | None) -> str:
    return json.dumps(words)


def _part_key(dataset: str, part: Partition) -> str:
    return _key("part", dataset, part.column, part.snapshot, part.value)


def _cut_key(dataset: str, part: Partition) -> str:
    """Key of the most expensive parts among those of one column and snapshot."""
    return _key("parts", dataset, part.column, part.snapshot)


def _with_part(largest: Sequence[Any], value: str, cost: Cost) -> list[list[Any] | None]:
    """The parts with the largest sums for each of ε, δ and ρ, after this part's sum grew to `cost`.

    The other sums are unchanged and this one did not decrease, so the largest are among the previous largest and this
    one. None where the sum of a part has no ε.
    """
    amounts = (cost.epsilon, cost.delta, cost.rho)
    return [_largest(known, value, amount) for known, amount in zip(largest, amounts, strict=True)]


def _largest(known: Sequence[Any] | None, value: str, amount: Fraction | None) -> list[Any] | None:
    if known is None or amount is None:
        return None
    sums = [(other, Fraction(text)) for other, text in known if other != value] + [(value, amount)]
    sums.sort(key=lambda each: (-each[1], each[0]))
    return [[other, str(number)] for other, number in sums[:_MOST_PARTS]]


def _worst(largest: Sequence[Any], relation: str) -> Cost:
    sums = [
        None if known is None else sum((Fraction(text) for _, text in known[: parts_met(relation)]), Fraction(0))
        for known in largest
    ]
    return Cost(sums[0], sums[1] or Fraction(0), sums[2] or Fraction(0))


def _falls(old: Cost, new: Cost) -> bool:
    lower = old.epsilon is not None and new.epsilon is not None and new.epsilon < old.epsilon
    return lower or new.delta < old.delta or new.rho < old.rho


def _sample_value(together: Together, part: Partition | None) -> list[Any]:
    sums = [value if isinstance(value, int) else str(value) for value in astuple(together)]
    return [sums, None if part is None else list(part)]


def _sample_of(value: Any) -> tuple[Together, Partition | None]:
    sums, part = value
    names = [field.name for field in fields(Together)]
    numbers: list[Any] = [Fraction(one) if isinstance(one, str) else one for one in sums]
    return Together(**dict(zip(names, numbers, strict=True))), None if part is None else Partition(*part)
