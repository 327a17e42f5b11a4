"""The options of every part of the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    runs: int
    seed: int  # of simulated tables and baselines; noise cannot be seeded
    quick: bool
    results: Path
    skip: tuple[str, ...] = ()
    queries: int = 2000  # of kernel densities
    tables: tuple[str, ...] = ()  # all, if none is named

    def wants(self, table: str) -> bool:
        return not self.tables or table in self.tables
