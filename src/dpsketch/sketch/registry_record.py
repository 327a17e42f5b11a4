"""The privacy statement as a record for OpenDP's registry of deployments, in YAML, complete to its third tier.

What only a person can say is marked with `FILL_IN`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpsketch.errors import QueryError
from dpsketch.sketch.privacy_statement import statement_sections

FILL_IN = "TO FILL IN"
_NEEDED = {"about", "bounds", "budgets", "ledger", "trust"}  # facts that earlier versions did not state
_UNIT_DETAILS = {
    "add-remove": "Adjacent tables differ by one {unit}, which one of them has and the other has not.",
    "replace-one": "Adjacent tables differ by one {unit}, replaced by another; the number of {unit}s is public.",
}


def registry_record(facts: Mapping[str, Any]) -> str:
    """The YAML of a record with status "Draft". Refuses releases that are not private."""
    if not facts["private"]:
        raise QueryError("this file is not private: there is nothing to register", "show a private release")
    if not set(facts) >= _NEEDED:
        raise QueryError("this file was made by an earlier version: its statement is too short to register", "refit it")
    about, made = facts["about"], str(facts["created"])
    name = about.get("name") or _todo("the name of the data product")
    curator = about.get("curator") or _todo("who publishes it")
    slug = re.sub(r"[\W_]+", "-", f"{name} {curator} {made[:4]}".lower()).strip("-")
    record = {
        "url_slug": slug,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [curator],
                "intended_use": about.get("purpose") or _todo("what the release is for"),
                "data_product_type": "Summary statistics",
                "data_product_region": _todo("the region that the data describe, or whose laws apply"),
                "description": f"A sketch: noisy sums of a table, from which any number of questions are answered. "
                f"{_todo('what the table is about')}",
                "publication_date": made,
            },
            "dp_variant": {
                "variant_name": _variant(facts),
                "data_domain": f"Tables with the declared columns and bounds. {_todo('who may be in it')}",
                "unprotected_quantities": "; ".join(facts["not_protected"]),
            },
            "privacy_loss": _loss(facts),
            "deployment_model": _model(facts),
            "accounting": {
                "post_processing": "All answers, models and synthetic rows are computed from the noisy sums alone.",
                "composition": "A ledger adds up the budgets of all releases of a dataset, and those of "
                "disjoint parts and samples by their own rules, before any noise is drawn; it refuses to overspend.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"Bounds: {facts['bounds']}. Parameters follow from "
                f"declared facts and public seeds. {_todo('whether anyone looked at the data to choose them')}",
                "mechanisms": _mechanisms(facts),
                "justification": about.get("justification") or _todo("why this budget, and who decided it"),
            },
            "administrative": {
                "notes": f"Licence: {about.get('licence') or _todo('the licence')}. Contact: "
                f"{about.get('contact') or _todo('whom to ask')}.",
                "registry_authors": [_todo("who files this record")],
            },
        },
    }
    head = f"# Written by dpsketch {facts['library']} from the release itself. Search for: {FILL_IN}\n"
    return head + "\n".join(_yaml(record)) + "\n"


def _todo(what: str) -> str:
    return f"{FILL_IN} ({what})"


def _variant(facts: Mapping[str, Any]) -> str:
    if "rho" in facts:
        return "Zero-concentrated DP"
    if "epsilon" not in facts:
        return "Custom"
    return "Pure DP" if Fraction(facts["delta"]) == 0 else "Approximate DP"


def _loss(facts: Mapping[str, Any]) -> dict[str, Any]:
    rows = facts["unit"] == "row"
    unit = facts["record"] if rows else f"person (all rows with one value of column {facts['unit']})"
    details = _UNIT_DETAILS[facts["relation"]].format(unit=unit)
    if not rows:
        details += f" At most {facts['max_rows_per_unit']} rows of a person are used."
    numbers = {kind: float(Fraction(facts[kind])) for kind in ("epsilon", "delta", "rho") if kind in facts}
    if numbers.get("delta") == 0:
        del numbers["delta"]
    budgets = "; ".join(", ".join(f"{kind} {much}" for kind, much in each.items()) for each in facts["budgets"])
    spent = "".join(
        f" In the ledger this is release {each['number']}; its dataset has spent {_amount(each['after'])} with it."
        for each in facts["ledger"]
    )
    return {
        "privacy_unit": unit,
        "privacy_unit_details": details,
        "privacy_parameters": numbers,
        "privacy_parameters_details": f"Budgets of the merged releases: {budgets}.{spent}",
    }


def _model(facts: Mapping[str, Any]) -> dict[str, Any]:
    later = any(each["number"] > 1 for each in facts["ledger"])
    return {
        "model_name": "Central",
        "actors": f"{facts['trust']['curator']} {facts['trust']['readers']} {_todo('who else may see the table')}",
        "release_type": "Many releases" if later or len(facts["budgets"]) > 1 else "One release",
        "release_type_details": _todo("whether more releases are planned, and the cap of the ledger"),
        "data_source_type": "Static",
        "access_type": "Non-interactive",
        "access_type_details": "The file is released once; questions are answered from it without the table.",
    }


def _mechanisms(facts: Mapping[str, Any]) -> str:
    """The technical lines of the statement, and what a person must add."""
    (_, lines) = statement_sections(dict(facts))[1]
    texts = [f"- {label}: {text}" if label else f"  - {text}" for label, text in lines]
    return "\n".join([*texts, f"- {_todo('how the table is secured, and who has access')}"])


def _amount(total: Mapping[str, str]) -> str:
    return " and ".join(f"{kind} {much}" for kind, much in total.items())


def _yaml(value: Mapping[str, Any], indent: str = "") -> list[str]:
    """Nested mappings, lists of texts and scalars; texts are in double quotes, as in JSON."""
    lines = []
    for key, each in value.items():
        if isinstance(each, Mapping):
            inner = _yaml(each, indent + "  ")
            lines += [f"{indent}{key}:", *inner] if inner else [f"{indent}{key}: {{}}"]
        elif isinstance(each, list):
            lines += [f"{indent}{key}:", *(f"{indent}  - {_scalar(one)}" for one in each)]
        else:
            lines.append(f"{indent}{key}: {_scalar(each)}")
    return lines


def _scalar(value: object) -> str:
    """JSON, except for floats like 1e-06, which YAML 1.1 reads as a text without its dot."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return re.sub(r"^(\d+)e", r"\1.0e", text) if isinstance(value, float) else text
