"""market.toml: the terms of a market and where its parties meet. The file is public; every party has the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsketch.errors import FederationError
from dpsketch.federate.market.terms import Terms
from dpsketch.files.toml_file import read_toml
from dpsketch.privacy.budget import Budget
from dpsketch.schema.schema import Schema

_MARKET = {
    "schema",
    "name",
    "label",
    "width",
    "size",
    "features",
    "seed",
    "over",
    "validation_rows",
    "count",
    "redraws",
}
_MEETING = {"roster", "address", "patience", "patience_rows", "authorities"}


@dataclass(frozen=True)
class MarketConfig:
    """`name` makes the session. `patience` is how many seconds parties wait for releases, `patience_rows` how many the
    aggregator then waits for rows.
    """

    name: str
    terms: Terms
    roster: Path
    address: str
    patience: float = 600.0
    patience_rows: float = 600.0
    authorities: Path | None = None

    @property
    def longest(self) -> float:
        """Seconds after which a market is over in any case."""
        return 3 * self.patience + 2 * self.patience_rows

    @classmethod
    def load(cls, path: str | Path) -> MarketConfig:
        """Read [market], [budgets] and [meeting]; paths are relative to the file's folder."""
        path = Path(path)
        facts = read_toml(path, FederationError, "check the path", "docs/market.md has an example")
        market, budgets = _section(path, facts, "market"), _section(path, facts, "budgets")
        meeting = _section(path, facts, "meeting")
        _check(path, "market", market, _MARKET, {"schema", "name", "width", "size", "validation_rows"})
        _check(path, "budgets", budgets, {"owner", "consumer"}, {"owner", "consumer"})
        _check(path, "meeting", meeting, _MEETING, {"roster", "address"})
        given: dict[str, Any] = {key: fact for key, fact in market.items() if key not in ("schema", "name")}
        folder = path.parent
        try:
            terms = Terms(
                Schema.load(folder / market["schema"]),
                given.pop("label", None),
                float(given.pop("width")),
                int(given.pop("size")),
                Budget(**budgets["owner"]),
                Budget(**budgets["consumer"]),
                int(given.pop("validation_rows")),
                **given,
            )
            patience = float(meeting.get("patience", 600))
            patience_rows = float(meeting.get("patience_rows", patience))
        except (TypeError, ValueError):
            raise FederationError(f"{path}: a value has the wrong type", "docs/market.md has an example") from None
        authorities = meeting.get("authorities")
        return cls(
            str(market["name"]),
            terms,
            folder / meeting["roster"],
            str(meeting["address"]),
            patience,
            patience_rows,
            None if authorities is None else folder / authorities,
        )


def _section(path: Path, facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = facts.get(name)
    if not isinstance(section, dict):
        raise FederationError(f"{path} has no section [{name}]", "docs/market.md has an example")
    return section


def _check(path: Path, name: str, section: Mapping[str, Any], known: set[str], needed: set[str]) -> None:
    for key in sorted(set(section) - known):
        raise FederationError(f"{path}: [{name}] has no key '{key}'", f"the keys are {', '.join(sorted(known))}")
    for key in sorted(needed - set(section)):
        raise FederationError(f"{path}: [{name}] lacks '{key}'", "docs/market.md has an example")
