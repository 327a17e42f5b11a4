"""What a curator says about a release: public texts for its privacy statement, without any effect on the sketch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsketch.errors import SchemaError
from dpsketch.schema.parsing import check_keys, line_of

# Longest texts, in characters.
LENGTHS = {"name": 100, "curator": 200, "contact": 200, "purpose": 1000, "licence": 200, "justification": 2000}


@dataclass(frozen=True)
class About:
    """The section [about] of a schema: single lines of text. `name` is also the dataset's name in the ledger."""

    name: str | None = None
    curator: str | None = None
    contact: str | None = None
    purpose: str | None = None
    licence: str | None = None
    justification: str | None = None

    def to_dict(self) -> dict[str, str]:
        return {key: text for key in LENGTHS if (text := getattr(self, key)) is not None}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> About:
        check_keys(facts, "about", tuple(LENGTHS))
        texts = {key: line_of(facts, "about", key, longest) for key, longest in LENGTHS.items()}
        name = texts["name"]
        if name is not None and name != name.strip():
            raise SchemaError("about.name must not begin or end with a blank", "it names the dataset in the ledger")
        return cls(**texts)

    def agreed(self, other: About) -> About:
        """What both say: the texts of a merged sketch."""
        mine, theirs = self.to_dict(), other.to_dict()
        return About(**{key: text for key, text in mine.items() if theirs.get(key) == text})
