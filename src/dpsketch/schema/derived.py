"""How a column is computed from other cells of the same row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FORMS = ("part", "edges", "ratio", "difference")


@dataclass(frozen=True)
class Derived:
    """A part of a date, a number cut at edges, or the ratio or difference of two numbers. `sources` are columns of the
    table, which the schema need not declare. If `stored`, the column is read like others, as from a simulated table.
    """

    form: str
    sources: tuple[str, ...]
    part: str = ""
    edges: tuple[float, ...] = ()
    stored: bool = False

    def to_dict(self) -> dict[str, Any]:
        match self.form:
            case "part":
                return {"from": self.sources[0], "part": self.part}
            case "edges":
                return {"from": self.sources[0], "edges": list(self.edges)}
        return {self.form: list(self.sources)}
