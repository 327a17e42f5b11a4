"""Versions of this library with known privacy faults, so that whoever opens an affected file is warned.

A fault that is found is added to `ADVISORIES` (SECURITY.md); the list is empty while none is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Advisory:
    """A fault of the versions from `first` up to, without, `fixed`; of all later ones while that is None.

    It is limited to releases with one of these maps and one of these mechanisms, by their names; all if empty.
    """

    id: str
    first: str
    fixed: str | None
    text: str
    maps: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()

    def affects(self, library: str, maps: Collection[str] | None, mechanisms: Collection[str]) -> bool:
        """Whether it may affect a release by this version. Unknown maps (None) and versions count as affected."""
        if self.maps and maps is not None and not set(self.maps) & set(maps):
            return False
        if self.mechanisms and not set(self.mechanisms) & set(mechanisms):
            return False
        made = _parsed(library)
        if made is None:
            return True
        first, fixed = _parsed(self.first), None if self.fixed is None else _parsed(self.fixed)
        return (first is None or made >= first) and (fixed is None or made < fixed)

    def to_dict(self) -> dict[str, str]:
        return {"id": self.id, "text": self.text}

    def __str__(self) -> str:
        return f"{self.id}: {self.text}"


ADVISORIES: tuple[Advisory, ...] = ()


def advisories(
    libraries: Collection[str], maps: Collection[str] | None, mechanisms: Collection[str]
) -> tuple[Advisory, ...]:
    """The faults that may affect a file that these versions made."""
    return tuple(each for each in ADVISORIES if any(each.affects(one, maps, mechanisms) for one in libraries))


def _parsed(version: str) -> tuple[int, ...] | None:
    """The numbers of a version such as 0.1.0, without trailing zeros and without what follows them."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    if numbers is None:
        return None
    parts = [int(part) for part in numbers[0].split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
