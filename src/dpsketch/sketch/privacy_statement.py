"""The privacy statement as a text, for the curator who signs and for the engineer who checks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import exp
from typing import Any

from dpsketch.privacy.budget import rounded_text
from dpsketch.privacy.mechanisms import MECHANISMS, Mechanism
from dpsketch.schema.relation import Relation
from dpsketch.sketch.statement_facts import IMPLEMENTATION, known_faults, rounded_up

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
_SHARES_HIDE = (
    "{added} of {holders} holders added their sums, each with a share of the noise. The cost counts on the shares of "
    "{honest} of them; {least} had to stay, and {colluders} may share what they see with the coordinator. A holder "
    "that adds no noise counts among these. Against people who can break the keys or the cipher nothing is promised."
)
_LIES = "Nothing protects the sum from a holder that lies about its data."
_SMALL = Fraction(1, 1000)  # smaller numbers are written as 1e-06
_LABEL = 19  # width of the labels' column
_ABOUT = {
    "name": "Name",
    "curator": "Curator",
    "contact": "Contact",
    "purpose": "Purpose",
    "licence": "Licence",
    "justification": "Justification",
}
_IMPLEMENTED = {"floating_point": "Arithmetic", "timing": "Timing", "randomness": "Randomness"}


Lines = list[tuple[str, str]]  # labels, empty where a line goes on with the one above, and texts


def statement_text(facts: dict[str, Any]) -> str:
    """Lay out the facts of `statement_facts`."""
    if not facts["private"]:
        return "\n".join(not_private(facts))
    blocks = [
        "\n".join([title, *(label.ljust(_LABEL) + _indented(text) for label, text in lines)])
        for title, lines in statement_sections(facts)
    ]
    return "\n\n".join(blocks)


def not_private(facts: dict[str, Any]) -> list[str]:
    """The lines about a file without privacy."""
    return [
        "NOT PRIVATE",
        "This file holds exact sums, made for a study. It protects nobody. Keep it as secret as the table itself.",
        f"Made on {facts['created']} with dpsketch {facts['library']}.",
    ]


def statement_sections(facts: dict[str, Any]) -> list[tuple[str, Lines]]:
    """Titles and labelled lines, for a text or a page. Models of earlier versions hold fewer facts."""
    who, change = _unit(facts)
    lines = [
        *(("KNOWN FAULT", f"{each}") for each in known_faults(facts)),
        *((label, text) for key, label in _ABOUT.items() if (text := facts.get("about", {}).get(key)) is not None),
        ("Who is protected", f"{who}."),
        (
            "Against what",
            f"Anyone who reads this file, whatever else they know, learns almost the same as if {change}.",
        ),
        *_how_much(facts),
        *_groups(facts),
        ("How long", "Permanently. Any number of questions to this file costs no more privacy."),
        *(("Ledger" if index == 0 else "", _account(each)) for index, each in enumerate(facts.get("ledger", []))),
        *_premises(facts),
        ("Not protected", ";\n".join(facts["not_protected"]) + "."),
    ]
    return [("PRIVACY STATEMENT", lines), ("FOR THE ENGINEER", _details(facts))]


def _premises(facts: dict[str, Any]) -> Lines:
    """Who is trusted, and what must be true for the numbers to hold."""
    lines = []
    if len(facts["budgets"]) > 1:
        each = "; ".join(_budget_text(budget) for budget in facts["budgets"])
        several = "A record that is in several of the merged tables is protected by the sum of their budgets."
        lines.append(("Merged from", f"{len(facts['budgets'])} releases ({each}). {several}"))
    if "trust" in facts:
        lines += [("Trusted", facts["trust"]["curator"]), ("Who saw what", facts["trust"]["readers"])]
    for group in facts.get("consortia", []):
        lines += [("Secure sum", _SHARES_HIDE.format(**group)), ("", _LIES)]
    if "bounds" in facts:
        lines.append(("Bounds", f"{facts['bounds'].capitalize()}."))
    if facts["merged_inputs"] > 1 and facts["unit"] != "row":
        lines.append(("Provided that", "nobody has rows in two of the merged tables, as their merger declared."))
    if facts.get("csv_multiline"):
        lines.append(("Provided that", _CLOSED_QUOTES))
    if facts.get("sampling", {}).get("amplification") == "claimed":
        lines.append(("Only release", _ONLY_RELEASE))
    if any("masks" in noise for part in facts["parts"] for noise in part["noise"]):
        lines.append(("Only release", _ONLY_RELEASE_OF_MASKS))
    if "only" in facts:
        only = facts["only"]
        lines.append(("Rows used", f"only those with '{only['value']}' in column '{only['column']}'."))
        if "snapshot" in only:
            lines.append(("Assumes that", _SNAPSHOT.format(only["snapshot"])))
    if facts["note"] is not None:
        lines.append(("Note", facts["note"]))
    return lines


def _details(facts: dict[str, Any]) -> Lines:
    lines = [("Relation", f"{facts['relation']}, {_kind(facts)}")]
    for group in facts.get("consortia", []):
        if "closeness" in group:
            much = f"a factor e^{group['closeness']:.2g}"
            lines.append(
                ("Gaussian shares", f"their sum is within {much} of rounded Gaussian noise, which is paid for")
            )
    if "sampling" in facts:
        lines.append(("Rows sampled", _sampling(facts["sampling"])))
    for part in facts["parts"]:
        parameters = ", ".join(
            f"{key}={value}"
            for key, value in part.items()
            if key not in ("version", "map", "noise") and value is not None
        )
        lines.append(("Part", f"{part['map']} v{part['version']}" + (f" ({parameters})" if parameters else "")))
        lines += [("", _noise(noise)) for noise in part["noise"]]
    how = facts.get("implementation", {"randomness": IMPLEMENTATION["randomness"]})
    lines += [(label, how[key]) for key, label in _IMPLEMENTED.items() if key in how]
    lines += [("Audit", _audit(each)) for each in facts.get("audits", [])]
    lines.append(("Made", f"{facts['created']} with dpsketch {facts['library']}"))
    return lines


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * _LABEL)


def _groups(facts: dict[str, Any]) -> Lines:
    """What holds for several people together."""
    groups = facts.get("groups", [])
    if not groups:
        return []
    several = [each for each in groups if each["people"] > 1]
    numbers = _listed([_short(each["epsilon"]) for each in several])
    shared = " of one of the merged tables" if len(facts["budgets"]) > 1 else ""
    people = f"{facts['record']}s" if facts["unit"] == "row" else "people"
    text = f"For {_listed([str(each['people']) for each in several])} {people}{shared} together: epsilon {numbers}"
    deltas = [each["delta"] for each in several]
    if set(deltas) == {"0"}:
        return [("Groups", text + ".")]
    shown = _short(deltas[0]) if len(set(deltas)) == 1 else _listed([_short(delta) for delta in deltas])
    return [("Groups", f"{text} at delta {shown}.")]


def _account(account: dict[str, Any]) -> str:
    before, after, cap = (
        " and ".join(
            f"{kind} {_short(account[name][kind])}"
            for kind in account["cap"]
            if kind != "delta" or any(account[each].get(kind) != "0" for each in ("cap", "after"))
            if kind in account[name]
        )
        for name in ("before", "after", "cap")
    )
    return (
        f"Release {account['number']} of dataset '{account['dataset']}', which had spent {before} before it and has "
        f"spent {after} with it, of {cap}."
    )


def _audit(audit: dict[str, Any]) -> str:
    return (
        f"{audit['date']}: an attack on {audit['draws']:,} simulated releases of this recipe proved a loss of at least "
        f"{audit['lower_bound']:.3g}, with confidence {audit['confidence']:.2%} (dpsketch {audit['library']})"
    )


def _short(number: str) -> str:
    """A number to six digits, rounded up; exact if it is short."""
    exact = Fraction(number)
    plain = len(number) <= 8 and "/" not in number and (exact == 0 or exact >= _SMALL)
    return number if plain else rounded_text(exact)


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _how_much(facts: dict[str, Any]) -> Lines:
    lines = [_promise(facts)] if {"epsilon", "rho"} & set(facts) else []
    if not lines:  # merged from releases with budgets of both kinds
        lines = [f"In one of the merged tables: {_promise(budget)}" for budget in facts["budgets"]]
    single = next((each for each in facts.get("groups", []) if each["people"] == 1), None)
    if single is not None and "epsilon" not in facts:
        at = f" at delta {_short(single['delta'])}" if single["delta"] != "0" else ""
        lines.append(f"In terms of epsilon and delta: epsilon {_short(single['epsilon'])}{at}.")
    half = [("", _half_certain(facts))] if "half_certain" in facts["attack"] else []
    return [("How much", lines[0]), *(("", line) for line in lines[1:]), ("Attack risk", _attack(facts)), *half]


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
    most_text = f"at most {rounded_up(most, 3):.1%}"
    if facts["relation"] == Relation.REPLACE_ONE.value:
        return (
            f"An attacker who must decide which of two given {records} is in the table, and accepts errors on "
            f"{share:.0%} of the first, is right about {most_text} of the second ({share:.0%} by guessing alone)."
        )
    return (
        f"An attacker who accepts {share:.0%} false accusations can correctly identify {most_text} of the "
        f"{records} in the table ({share:.0%} by guessing alone)."
    )


def _half_certain(facts: dict[str, Any]) -> str:
    likely = f"{rounded_up(facts['attack']['half_certain'], 3):.1%}"
    record = facts["record"] if facts["unit"] == "row" else "person"
    what = f"a given {record} is in the table"
    if facts["relation"] == Relation.REPLACE_ONE.value:
        what = f"a given {record} is in the table in the place of another"
    if "epsilon" in facts and Fraction(facts["delta"]) == 0:
        return f"Someone who is 50% certain beforehand that {what} is at most {likely} certain afterwards."
    return (
        f"Someone who is 50% certain beforehand that {what}, and then decides whether it is, is right with a "
        f"probability of at most {likely}."
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
    if "shares" in facts:
        shares = facts["shares"]
        counted += f"; a sum of {shares['added']} shares, of which {shares['honest']} have this scale"
        counted += f": {facts['times']:.3g} times one curator's noise" if "times" in facts else ""
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
