"""The privacy statement as text: first for a lawyer, then for an engineer."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any


def statement_text(facts: dict[str, Any]) -> str:
    """Lay out the facts of `ReleasedSketch.statement`."""
    if not facts["private"]:
        return (
            "NOT PRIVATE\n"
            "This file holds exact sums, made for a study. It protects nobody. Keep it as secret as the table itself.\n"
            f"Made on {facts['created']} with dpsketch {facts['library']}."
        )
    who, change = _unit(facts)
    epsilon = facts["epsilon"]
    odds = exp(float(Fraction(epsilon)))
    lines = [
        "PRIVACY STATEMENT",
        f"Who is protected   {who}.",
        f"Against what       Whoever reads this file, whatever else they know, learns almost the same as if {change}.",
        f"How much           epsilon = {epsilon}: no outcome gets more than e^{epsilon} = {odds:.4g} times as likely.",
        "How long           For ever; any number of questions to this file costs nothing more.",
    ]
    merged = facts["epsilon_of_each_merged_release"]
    if len(merged) > 1:
        lines.append(
            f"Merged from        {len(merged)} releases (epsilon {', '.join(merged)}). A record that is in several of"
            " the merged tables is protected by the sum of their epsilons."
        )
    if facts["note"] is not None:
        lines.append(f"Note               {facts['note']}")
    lines.append("Not protected      " + ";\n                   ".join(facts["not_protected"]) + ".")
    lines += ["", "FOR THE ENGINEER", f"Relation           {facts['relation']}, pure differential privacy, delta = 0"]
    if "sampling" in facts:
        lines.append(f"Rows sampled       {_sampling(facts['sampling'])}; no amplification is claimed")
    for part in facts["parts"]:
        shown = ("version", "map", "mechanism", "sensitivity_l1", "epsilon", "noise_scale")
        parameters = ", ".join(
            f"{key}={value}" for key, value in part.items() if key not in shown and value is not None
        )
        scales = " and ".join(f"{float(Fraction(scale)):.6g} (= {scale})" for scale in part["noise_scale"])
        lines.append(
            f"Part               {part['map']} v{part['version']}" + (f" ({parameters})" if parameters else "")
        )
        lines.append(
            f"                   {part['mechanism']}, L1 sensitivity {part['sensitivity_l1']}, "
            f"epsilon {' and '.join(part['epsilon'])}, noise scale {scales}"
        )
    lines.append("Randomness         AES-256-CTR keyed by the operating system: the guarantee is computational")
    lines.append(f"Made               {facts['created']} with dpsketch {facts['library']}")
    return "\n".join(lines)


def _sampling(facts: dict[str, Any]) -> str:
    if "count" in facts:
        return f"{facts['count']} at random without replacement, chosen in secret"
    return f"each row, or unit, in secret with probability {facts['rate']} (= {facts['exact_rate']})"


def _unit(facts: dict[str, Any]) -> tuple[str, str]:
    if facts["unit"] == "row":
        record = facts["record"]
        return f"every single {record} of the table", f"that {record} had not been in the table"
    most = facts["max_rows_per_unit"]
    who = f"everyone identified by column '{facts['unit']}', with all their rows (at most {most} are used)"
    return who, "that person had not been in the table"
