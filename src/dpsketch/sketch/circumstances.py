"""What surrounds a release in its file: its place in the curator's ledger, and an audit of its recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from math import isfinite
from typing import Any

from dpsketch.errors import FileError, visible
from dpsketch.privacy.budget import Budget, decimal_text
from dpsketch.privacy.events import exact_number
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.schema import Schema

_KINDS = ("epsilon", "delta", "rho")
_LONGEST_NAME = 200
_HOW = "write one: dpsketch audit RECIPE --schema SCHEMA --epsilon … --json > audit.json"


@dataclass(frozen=True)
class Account:
    """The `number`-th release of a dataset in its ledger, with the totals before and after it and the cap that held.

    Totals are exact numbers by kind: epsilon and delta, or rho.
    """

    dataset: str
    number: int
    cap: Mapping[str, Fraction]
    before: Mapping[str, Fraction]
    after: Mapping[str, Fraction]

    def to_dict(self) -> dict[str, Any]:
        totals = {"cap": self.cap, "before": self.before, "after": self.after}
        texts = {name: {kind: str(much) for kind, much in total.items()} for name, total in totals.items()}
        return {"dataset": self.dataset, "number": self.number} | texts

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Account:
        dataset, number = facts["dataset"], facts["number"]
        if not isinstance(dataset, str) or visible(dataset) != dataset or not 1 <= len(dataset) <= _LONGEST_NAME:
            raise ValueError("dataset")
        if type(number) is not int or not 1 <= number < 2**53:
            raise ValueError("number")
        cap, before, after = (_total(facts[name]) for name in ("cap", "before", "after"))
        return cls(dataset, number, cap, before, after)

    def stated(self) -> dict[str, Any]:
        """The facts of a privacy statement."""
        totals = {"cap": self.cap, "before": self.before, "after": self.after}
        texts = {name: {kind: decimal_text(much) for kind, much in total.items()} for name, total in totals.items()}
        return {"dataset": self.dataset, "number": self.number} | texts


@dataclass(frozen=True)
class AuditResult:
    """The outcome of `dpsketch audit` for a recipe and a budget: a lower bound on ε, or ρ, that an attack proved."""

    date: str
    draws: int
    lower_bound: float
    confidence: float
    library: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "date": self.date,
            "draws": self.draws,
            "lower_bound": self.lower_bound,
            "confidence": self.confidence,
            "library": self.library,
        }

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> AuditResult:
        draws, bound, confidence = facts["draws"], facts["lower_bound"], facts["confidence"]
        if type(draws) is not int or not 0 < draws < 2**53:
            raise ValueError("draws")
        if not all(type(number) in (int, float) and isfinite(number) and number >= 0 for number in (bound, confidence)):
            raise ValueError("numbers")
        made, library = date.fromisoformat(facts["date"]).isoformat(), _version(facts["library"])
        return cls(made, draws, float(bound), float(confidence), library)


@dataclass(frozen=True)
class Circumstances:
    """What a file says about one of its releases beside the noise; `library` is the version that made it, and
    `consortium` the one whose holders made it together.
    """

    library: str
    account: Account | None = None
    audit: AuditResult | None = None
    consortium: Consortium | None = None

    def to_dict(self) -> dict[str, Any]:
        facts = {"account": self.account, "audit": self.audit, "consortium": self.consortium}
        return {"library": self.library} | {name: each.to_dict() for name, each in facts.items() if each is not None}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Circumstances:
        return cls(
            _version(facts["library"]),
            Account.from_dict(facts["account"]) if "account" in facts else None,
            AuditResult.from_dict(facts["audit"]) if "audit" in facts else None,
            Consortium(**facts["consortium"]) if "consortium" in facts else None,
        )


def audited_digest(recipe: Recipe, schema: Schema, mechanism: str) -> str:
    """SHA-256 of what an audit is about: maps and shares, whom they protect, and the wanted mechanism."""
    facts = {"recipe": recipe.to_dict(), "accounted": schema.accounted[1:], "mechanism": mechanism}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def checked_audit(facts: object, name: str, digest: str, budget: Budget) -> AuditResult:
    """The result that `dpsketch audit --json` printed, if it has this digest and budget, and found no violation."""
    try:
        if not isinstance(facts, dict):
            raise ValueError("audit")
        result = AuditResult.from_dict(facts)
        about, claimed, violated = facts["audited"], facts["budget"], facts["violated"]
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{name} is not an audit's result", _HOW) from None
    if violated is not False:
        raise FileError(f"{name} proves a violation of the budget", "do not release by this recipe; report it")
    if about != digest or claimed != str(budget):
        raise FileError(f"{name} is the audit of another recipe or budget", _HOW)
    return result


def _version(text: object) -> str:
    return visible(str(text)[:40])


def _total(facts: object) -> dict[str, Fraction]:
    if not isinstance(facts, dict) or not facts or not set(facts) <= set(_KINDS):
        raise ValueError("total")
    return {kind: exact_number(facts[kind]) for kind in _KINDS if kind in facts}
