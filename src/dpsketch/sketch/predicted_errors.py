"""What `plan` predicted for a release, as its statement cites it: standard errors from public facts alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Any

from dpsketch.errors import FileError, visible
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Recipe, declared_rows
from dpsketch.schema.schema import Schema

_MOST_ANSWERS = 200
_LONGEST_QUERY = 2000
_HOW = "write one: dpsketch plan --schema SCHEMA --epsilon … --query … --json > plan.json, with the release's options"


@dataclass(frozen=True)
class PredictedError:
    """The predicted standard error of one answer and its range; seconds where the typical answer is a date, a text.

    None stands for an answer that no simulated release could give.
    """

    query: str
    answer: str
    typical: float | str | None
    error: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> PredictedError:
        typical = facts["typical"]
        typical = _text(typical, 40) if isinstance(typical, str) else _number(typical)
        numbers = [_number(facts[name]) for name in ("error", "low", "high")]
        if any(number is not None and number < 0 for number in numbers):
            raise ValueError("error")
        return cls(_text(facts["query"], _LONGEST_QUERY), _text(facts["answer"], _LONGEST_QUERY), typical, *numbers)


@dataclass(frozen=True)
class PredictedErrors:
    """The outcome of `dpsketch plan` for the recipe, schema and budget of a release."""

    date: str
    library: str
    simulations: int
    drawn: bool  # tables were drawn from an earlier release, not from the schema alone
    answers: tuple[PredictedError, ...]

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self)) | {"answers": [each.to_dict() for each in self.answers]}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> PredictedErrors:
        simulations, drawn, answers = facts["simulations"], facts["drawn"], facts["answers"]
        if type(simulations) is not int or not 1 <= simulations <= 1000 or type(drawn) is not bool:
            raise ValueError("simulations")
        if not isinstance(answers, list) or not 1 <= len(answers) <= _MOST_ANSWERS:
            raise ValueError("answers")
        made = date.fromisoformat(facts["date"]).isoformat()
        found = tuple(map(PredictedError.from_dict, answers))
        return cls(made, _text(facts["library"], 40), simulations, drawn, found)


def planned_digest(recipe: Recipe, schema: Schema, budget: Budget) -> str:
    """SHA-256 of what a plan is about: maps and shares, columns, declared rows, whom they protect, and the budget."""
    facts = {
        "recipe": recipe.to_dict(),
        "columns": {column.name: column.to_dict() for column in schema.as_stored().columns},
        "rows": declared_rows(schema, recipe.rows),
        "accounted": schema.accounted,
        "budget": str(budget),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def checked_predictions(facts: object, name: str, digest: str) -> PredictedErrors:
    """What `dpsketch plan --json` printed about the recipe, schema and budget with this digest."""
    try:
        if not isinstance(facts, dict):
            raise ValueError("plan")
        rows = [row for row in facts["predictions"] if row["planned"] == digest]
        known = bool(facts["predictions"])
        found = PredictedErrors.from_dict(facts | {"answers": rows}) if rows else None
    except (KeyError, TypeError, ValueError):
        raise FileError(f"{name} is not a plan of answers", _HOW) from None
    if found is None:
        what = "another recipe, schema or budget" if known else "no question"
        raise FileError(f"{name} is the plan of {what}", _HOW)
    return found


def _text(text: object, longest: int) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= longest:
        raise ValueError("text")
    return visible(text)


def _number(number: object) -> float | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
        raise ValueError("number")
    return float(number)
