"""A planted advisory is found by version, map and mechanism."""

from __future__ import annotations

import pytest

from dpsketch.privacy import advisories as listed
from dpsketch.privacy.advisories import Advisory

FAULT = Advisory("DPS-2026-001", "0.1", "0.3.1", "noise is too small", ("fourier",), ("rounded disc",))


@pytest.mark.parametrize(
    ("library", "maps", "mechanisms", "affected"),
    [
        ("0.1.0", ["fourier"], ["rounded disc"], True),
        ("0.1", ["count", "fourier"], ["rounded disc", "discrete Laplace"], True),
        ("0.3.1", ["fourier"], ["rounded disc"], False),
        ("0.0.9", ["fourier"], ["rounded disc"], False),
        ("0.3.0rc1", ["fourier"], ["rounded disc"], True),
        ("0.10", ["fourier"], ["rounded disc"], False),
        ("0.2", ["count"], ["rounded disc"], False),
        ("0.2", ["fourier"], ["discrete Laplace"], False),
        ("0.2", None, ["rounded disc"], True),  # a ledger does not know the maps
        ("unknown", ["fourier"], ["rounded disc"], True),
    ],
)
def test_affected(library: str, maps: list[str] | None, mechanisms: list[str], affected: bool) -> None:
    assert FAULT.affects(library, maps, mechanisms) is affected


def test_a_fault_without_a_fix_affects_all_later_versions() -> None:
    assert Advisory("A", "0.2", None, "t").affects("9.0", [], [])


def test_the_list_is_empty_and_what_is_added_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed.ADVISORIES == ()
    monkeypatch.setattr(listed, "ADVISORIES", (FAULT,))
    assert listed.advisories(["9.9", "0.2"], ["fourier"], ["rounded disc"]) == (FAULT,)
    assert listed.advisories(["9.9"], ["fourier"], ["rounded disc"]) == ()
    assert str(FAULT) == "DPS-2026-001: noise is too small"
