"""The privacy statement: plain facts, and a text for the curator who signs and for the engineer who checks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, exp
from typing import Any

from dpsketch.privacy.attack_risk import FALSE_POSITIVES, attack_power
from dpsketch.privacy.budget import Budget, decimal_text
from dpsketch.privacy.events import Release
from dpsketch.privacy.mechanisms import MECHANISMS, Mechanism
from dpsketch.recipe.recipe import Recipe, RowSampling
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import Schema

NOT_PROTECTED = (
    "the schema: column names, bounds, listed values, the declared number of rows",
    "the recipe and its public seeds",
    "that the table exists and was released",
    "how long the release took",
    "facts about groups and the population, which the release is meant to show",
)
_ONLY_RELEASE = (
    "The numbers above hold if nothing else was released from the same random sample of the rows. Several releases of "
    "one sample reveal more than the sum of their budgets; the curator's ledger counts them together."
)
_ONLY_RELEASE_OF_MASKS = (
    "The numbers above hold if nothing else was released from the same raw sketch, whose secret masks hide a part of "
    "every record. The curator's ledger refuses a second release of it."
)
_CLOSED_QUOTES = (
    "every quote in the CSV files is closed. An open quote joins the lines after it into one record, so that one "
    "person's cell would decide whether other people's rows are read."
)
_SNAPSHOT = (
    "every part released under the snapshot name '{}' was read from the whole of the same, unchanged table, as the "
    "curator asserts. Then releases of different parts do not add up for anyone."
)
_LABEL = 19  # width of the labels' column


def statement_facts(
    schema: Schema, recipe: Recipe, releases: Sequence[Release], inputs: int, created: str, library: str
) -> dict[str, Any]:
    """All promises of a file, as plain values. `inputs` is the number of tables that were merged."""
    public = [_public_number(schema)] if schema.relation is Relation.REPLACE_ONE else []
    facts: dict[str, Any] = {
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
        "most_true_positives": _rounded_up(max(attack_power(release) for release in releases), 6),
    }
    facts["parts"] = [
        part.map.summary() | {"noise": [_noise_facts(release, index) for release in releases]}
        for index, part in enumerate(recipe.parts)
    ]
    return facts


def _budget_facts(budget: Budget) -> dict[str, str]:
    if budget.rho is not None:
        return {"rho": decimal_text(budget.exact_rho)}
    return {"epsilon": decimal_text(budget.exact_epsilon), "delta": decimal_text(budget.exact_delta)}


def _public_number(schema: Schema) -> str:
    return f"the exact number of {'rows' if schema.unit_column is None else f'units in column {schema.unit!r}'}"


def _rounded_up(share: float, digits: int) -> float:
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


def statement_text(facts: dict[str, Any]) -> str:
    """Lay out the facts of `statement_facts`."""
    if not facts["private"]:
        return (
            "NOT PRIVATE\n"
            "This file holds exact sums, made for a study. It protects nobody. Keep it as secret as the table itself.\n"
            f"Made on {facts['created']} with dpsketch {facts['library']}."
        )
    who, change = _unit(facts)
    lines = [
        "PRIVACY STATEMENT",
        _line("Who is protected", f"{who}."),
        _line(
            "Against what",
            f"Anyone who reads this file, whatever else they know, learns almost the same as if {change}.",
        ),
        *_how_much(facts),
        _line("How long", "Permanently. Any number of questions to this file costs no more privacy."),
    ]
    if len(facts["budgets"]) > 1:
        each = "; ".join(_budget_text(budget) for budget in facts["budgets"])
        several = "A record that is in several of the merged tables is protected by the sum of their budgets."
        lines.append(_line("Merged from", f"{len(facts['budgets'])} releases ({each}). {several}"))
    if facts["merged_inputs"] > 1 and facts["unit"] != "row":
        lines.append(_line("Provided that", "nobody has rows in two of the merged tables, as their merger declared."))
    if facts.get("csv_multiline"):
        lines.append(_line("Provided that", _CLOSED_QUOTES))
    if facts.get("sampling", {}).get("amplification") == "claimed":
        lines.append(_line("Only release", _ONLY_RELEASE))
    if any("masks" in noise for part in facts["parts"] for noise in part["noise"]):
        lines.append(_line("Only release", _ONLY_RELEASE_OF_MASKS))
    if "only" in facts:
        only = facts["only"]
        lines.append(_line("Rows used", f"only those with '{only['value']}' in column '{only['column']}'."))
        if "snapshot" in only:
            lines.append(_line("Assumes that", _SNAPSHOT.format(only["snapshot"])))
    if facts["note"] is not None:
        lines.append(_line("Note", facts["note"]))
    lines.append(_line("Not protected", (";\n" + " " * _LABEL).join(facts["not_protected"]) + "."))
    lines += ["", "FOR THE ENGINEER", _line("Relation", f"{facts['relation']}, {_kind(facts)}")]
    if "sampling" in facts:
        lines.append(_line("Rows sampled", _sampling(facts["sampling"])))
    for part in facts["parts"]:
        parameters = ", ".join(
            f"{key}={value}"
            for key, value in part.items()
            if key not in ("version", "map", "noise") and value is not None
        )
        lines.append(_line("Part", f"{part['map']} v{part['version']}" + (f" ({parameters})" if parameters else "")))
        lines += [_line("", _noise(noise)) for noise in part["noise"]]
    lines.append(_line("Randomness", "AES-256-CTR keyed by the operating system: the guarantee is computational"))
    lines.append(_line("Made", f"{facts['created']} with dpsketch {facts['library']}"))
    return "\n".join(lines)


def _line(label: str, text: str) -> str:
    return label.ljust(_LABEL) + text


def _how_much(facts: dict[str, Any]) -> list[str]:
    lines = [_promise(facts)] if {"epsilon", "rho"} & set(facts) else []
    if not lines:  # merged from releases with budgets of both kinds
        lines = [f"In one of the merged tables: {_promise(budget)}" for budget in facts["budgets"]]
    return [_line("How much", lines[0]), *(_line("", line) for line in lines[1:]), _line("Attack risk", _attack(facts))]


def _promise(budget: dict[str, Any]) -> str:
    if "rho" in budget:
        return f"rho = {budget['rho']}: zero-concentrated differential privacy, kept by Gaussian noise."
    epsilon, delta = budget["epsilon"], float(Fraction(budget["delta"]))
    odds = exp(float(Fraction(epsilon)))
    rare = f", plus a probability of delta = {delta:g}" if delta else ""
    return f"epsilon = {epsilon}: no outcome becomes more than e^{epsilon} = {odds:.4g} times as likely{rare}."


def _attack(facts: dict[str, Any]) -> str:
    share, most = facts["attack"]["false_positives"], facts["attack"]["most_true_positives"]
    records = f"{facts['record']}s" if facts["unit"] == "row" else "people"
    most_text = f"at most {_rounded_up(most, 3):.1%}"
    if facts["relation"] == Relation.REPLACE_ONE.value:
        return (
            f"An attacker who must decide which of two given {records} is in the table, and accepts errors on "
            f"{share:.0%} of the first, is right about {most_text} of the second ({share:.0%} by guessing alone)."
        )
    return (
        f"An attacker who accepts {share:.0%} false accusations can correctly identify {most_text} of the "
        f"{records} in the table ({share:.0%} by guessing alone)."
    )


def _budget_text(budget: dict[str, str]) -> str:
    shown = {key: value for key, value in budget.items() if value != "0"}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def _kind(facts: dict[str, Any]) -> str:
    if "epsilon" not in facts:
        return "zero-concentrated differential privacy" if "rho" in facts else "budgets of two kinds, see above"
    delta = Fraction(facts["delta"])
    return (
        f"approximate differential privacy, delta = {float(delta):g}"
        if delta
        else "pure differential privacy, delta = 0"
    )


def _noise(facts: dict[str, Any]) -> str:
    if "scale" not in facts:
        return str(facts["mechanism"])
    cost = f"epsilon {facts['epsilon']}" if "epsilon" in facts else f"rho {facts['rho']:.6g}"
    scale = Fraction(facts["scale"])
    exact = f" (= {facts['scale']})" if len(facts["scale"]) <= 40 else ""
    what = MECHANISMS[Mechanism(facts["mechanism"])].scale_name
    sensitivity = f"sensitivity {facts['sensitivity']} in {facts['norm']}"
    counted = "; it counts on secret masks, in this release alone" if "masks" in facts else ""
    return f"{facts['mechanism']}, {sensitivity}, {cost}, {what} {float(scale):.6g}{exact}{counted}"


def _sampling(facts: dict[str, Any]) -> str:
    if "count" in facts:
        text = f"{facts['count']} at random without replacement, chosen in secret"
    else:
        text = f"each row, or unit, in secret with probability {facts['rate']} (= {facts['exact_rate']})"
    if facts["amplification"] == "claimed":
        return (
            f"{text}; the budget above accounts for records that are not sampled, the noise below is that of the sample"
        )
    return f"{text}; no amplification is claimed"


def _unit(facts: dict[str, Any]) -> tuple[str, str]:
    replaced = facts["relation"] == Relation.REPLACE_ONE.value
    if facts["unit"] == "row":
        record = facts["record"]
        change = f"another {record} had been in its place" if replaced else f"that {record} had not been in the table"
        return f"every single {record} of the table", change
    most = facts["max_rows_per_unit"]
    who = f"everyone identified by column '{facts['unit']}', with all their rows (at most {most} are used)"
    return who, "someone else had been in their place" if replaced else "that person had not been in the table"
