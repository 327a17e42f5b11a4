"""The facts of a privacy statement: all that a released file promises, as plain values.

docs/formats/statement.schema.json is their JSON Schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from dpsketch.privacy.advisories import Advisory, advisories
from dpsketch.privacy.attack_risk import FALSE_POSITIVES, attack_power, half_certain
from dpsketch.privacy.budget import Budget, decimal_text
from dpsketch.privacy.events import Release
from dpsketch.privacy.group_privacy import group_loss
from dpsketch.privacy.mechanisms import MECHANISMS
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.recipe import Recipe, RowSampling
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema
from dpsketch.sketch.circumstances import Circumstances

VERSION = 2
MOST_PEOPLE = 4  # of the groups whose loss is stated
NOT_PROTECTED = (
    "the schema: column names, bounds, listed values, the declared number of rows",
    "the recipe and its public seeds",
    "that the table exists and was released",
    "how long the release took",
    "facts about groups and the population, which the release is meant to show",
)
IMPLEMENTATION = {
    "floating_point": "sums, sensitivities and noise are exact integers; no noise is a rounded double",
    "timing": "not protected: do not let outsiders measure how long a release takes",
    "randomness": "AES-256-CTR keyed by the operating system: the guarantee is computational",
}
DECLARED = "declared in the schema, whose author asserts that they were not taken from the table"
_READERS = "Readers of this file see noisy sums and public facts only."
FROM_RELEASE = "tightened from an earlier private release of the table, whose budget counts as well"


def statement_facts(
    schema: Schema,
    recipe: Recipe,
    releases: Sequence[Release],
    inputs: int,
    created: str,
    library: str,
    circumstances: Sequence[Circumstances] = (),
) -> dict[str, Any]:
    """All promises of a file, as plain values. `inputs` is the number of tables that were merged."""
    public = [_public_number(schema)] if schema.relation is Relation.REPLACE_ONE else []
    facts: dict[str, Any] = {
        "version": VERSION,
        "about": schema.about.to_dict(),
        "private": bool(releases),
        "relation": schema.relation.value,
        "unit": schema.unit,
        "max_rows_per_unit": schema.max_rows_per_unit,
        "record": schema.record,
        "merged_inputs": inputs,
        "note": schema.note,
        "not_protected": [*public, *NOT_PROTECTED],
        "created": created,
        "library": library,
        "libraries": sorted({library, *(each.library for each in circumstances)}),
    }
    if schema.csv.multiline:
        facts["csv_multiline"] = True
    if recipe.sampling is not None:
        facts["sampling"] = _sampling_facts(recipe.sampling, releases)
    if recipe.only is not None:
        facts["only"] = recipe.only.to_dict()
    if not releases:
        return facts | {"epsilon": "infinity", "warning": "NOT PRIVATE: the sums are exact"}
    facts["budgets"] = [_budget_facts(release.budget) for release in releases]
    facts |= _weakest(facts["budgets"])
    facts["attack"] = {
        "false_positives": FALSE_POSITIVES,
        "most_true_positives": rounded_up(max(attack_power(release) for release in releases), 6),
        "half_certain": rounded_up(max(half_certain(release) for release in releases), 6),
    }
    facts["groups"] = [_group_facts(releases, people) for people in range(1, MOST_PEOPLE + 1)]
    facts["trust"] = _trust(inputs, len(releases), [each.consortium for each in circumstances])
    joint = zip(releases, circumstances, strict=False)
    facts |= _consortia([(release, each.consortium) for release, each in joint if each.consortium is not None])
    facts["bounds"] = FROM_RELEASE if schema.tightened else DECLARED
    facts["implementation"] = dict(IMPLEMENTATION)
    facts["ledger"] = [each.account.stated() for each in circumstances if each.account is not None]
    facts["audits"] = [each.audit.to_dict() for each in circumstances if each.audit is not None]
    facts["parts"] = [
        part.map.summary() | {"noise": [_noise_facts(release, index) for release in releases]}
        for index, part in enumerate(recipe.parts)
    ]
    return facts


def _budget_facts(budget: Budget) -> dict[str, str]:
    if budget.rho is not None:
        return {"rho": decimal_text(budget.exact_rho)}
    return {"epsilon": decimal_text(budget.exact_epsilon), "delta": decimal_text(budget.exact_delta)}


def known_faults(facts: dict[str, Any]) -> tuple[Advisory, ...]:
    """Known privacy faults of the versions that made a release, also for facts that an earlier version wrote."""
    if not facts["private"]:
        return ()
    noises = [noise["mechanism"] for part in facts["parts"] for noise in part["noise"]]
    made_with = [str(each) for each in facts.get("libraries", [facts["library"]])]
    return advisories(made_with, map_names(facts["parts"]), noises)


def map_names(facts: Any) -> set[str]:
    """The names of all maps in descriptions of parts, also of those inside others."""
    if isinstance(facts, dict):
        own = {facts["map"]} if isinstance(facts.get("map"), str) else set()
        return own.union(*(map_names(each) for each in facts.values()))
    return set().union(*(map_names(each) for each in facts)) if isinstance(facts, list) else set()


def _group_facts(releases: Sequence[Release], people: int) -> dict[str, Any]:
    """The worst (ε, δ) for a group of people of one of the merged tables."""
    losses = [group_loss(release, people) for release in releases]
    epsilon, delta = max(loss[0] for loss in losses), max(loss[1] for loss in losses)
    return {"people": people, "epsilon": decimal_text(epsilon), "delta": decimal_text(delta)}


def _consortia(joint: Sequence[tuple[Release, Consortium]]) -> dict[str, Any]:
    """The public numbers of joint releases; nothing where there are none."""
    added = [
        group.to_dict()
        | {"honest": group.honest, "added": release.shares.added if release.shares else group.holders}
        | ({"closeness": float(release.closeness)} if release.closeness else {})
        for release, group in joint
    ]
    return {"consortia": added} if added else {}


def _trust(inputs: int, releases: int, groups: Sequence[Consortium | None]) -> dict[str, str]:
    if releases == 1 and groups and groups[0] is not None:
        group = groups[0]
        curator = (
            f"No single party: each of {group.holders} holders kept its own table. At least {group.honest} of those in "
            "the sum must be honest: they add their noise and do not share what they see with the coordinator (secure "
            "sum)."
        )
        how = "The coordinator and every holder saw masked vectors and noisy totals, never the sums of another holder."
        return {"model": "secure sum", "curator": curator, "readers": f"{how} {_READERS}"}
    if any(group is not None for group in groups):
        return {
            "model": "several",
            "curator": f"The curators of {releases} releases, each with its table; some are holders of secure sums.",
            "readers": f"Noise was added before the releases were merged. {_READERS}",
        }
    if releases > 1:
        curator = f"The curators of {releases} releases, each with the table that they released."
        how = "Noise was added before the releases were merged, so that none of them had to trust another."
    else:
        curator = "One curator, who holds the table and its exact sums (the central model)."
        how = f"The exact sums of {inputs} tables were added up before the noise." if inputs > 1 else ""
    return {"model": "central", "curator": curator, "readers": f"{how} {_READERS}".strip()}


def _public_number(schema: Schema) -> str:
    return f"the exact number of {'rows' if schema.unit_column is None else f'units in column {schema.unit!r}'}"


def rounded_up(share: float, digits: int) -> float:
    """A share rounded up to decimals."""
    return min(1.0, float(ceil(share * 10**digits) / 10**digits))


def _weakest(budgets: Sequence[dict[str, str]]) -> dict[str, str]:
    """The guarantee for a record of any one of the merged tables: the largest budget, if all are of one kind."""
    if len({frozenset(budget) for budget in budgets}) > 1:
        return {}
    return {key: max((budget[key] for budget in budgets), key=Fraction) for key in budgets[0]}


def _noise_facts(release: Release, index: int) -> dict[str, Any]:
    noise = release.noises[index]
    if noise.sensitivity == 0:
        return {"mechanism": "none: neighbouring tables have the same sums"}
    facts: dict[str, Any] = {
        "mechanism": noise.mechanism.value,
        "sensitivity": noise.sensitivity,
        "norm": MECHANISMS[noise.mechanism].norm.value,
        "scale": str(noise.scale),
    }
    if noise.shares is not None:
        facts["shares"] = {"honest": noise.shares.honest, "added": noise.shares.added}
    if noise.masks is not None:
        facts["masks"] = {"largest": noise.masks.largest, "rate": str(noise.masks.rate)}
    if noise.epsilon is not None:
        shown = noise.epsilon if noise.masks is None else Fraction(ceil(noise.epsilon * 10**12), 10**12)
        return facts | {"epsilon": decimal_text(shown)}
    return facts | {"rho": float(noise.rho)}


def _sampling_facts(sampling: RowSampling, releases: Sequence[Release]) -> dict[str, Any]:
    exact = {} if sampling.count is not None else {"exact_rate": str(sampling.exact_rate)}
    claimed = any(release.rate is not None and release.budget.rho is None for release in releases)
    return sampling.to_dict() | exact | {"amplification": "claimed" if claimed else "none claimed"}
