from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from dpsketch.cli import console


def test_progress_shows_the_time_that_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter in ten seconds leaves thirty."""
    now, shown = [100.0], StringIO()
    terminal = {"TERM": "xterm"}  # on a dumb one, Rich shows no progress
    screen = Console(file=shown, force_terminal=True, width=120, get_time=lambda: now[0], _environ=terminal)
    monkeypatch.setattr(console, "err", screen)
    with console.progress_bar("reading") as report:
        for share in (0.0, 0.125, 0.25):
            now[0] = 100 + 40 * share
            report(share)
    assert " 25 %" in shown.getvalue()
    assert "0:00:10" in shown.getvalue()
    assert "0:00:30" in shown.getvalue()
