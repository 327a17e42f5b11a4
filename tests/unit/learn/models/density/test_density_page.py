"""The code of docs/densities.md runs, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[5] / "docs" / "densities.md"


@pytest.mark.usefixtures("seeded")
def test_the_blocks_run() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 9
    for block in blocks:
        exec(block, names)
    assert names["scorer"].predict([[40_000, 30], [40_000, 85]]).tolist() == [1, -1]
    assert len(names["modes"]) == 2
    assert names["best"].parameters[0] == pytest.approx(40_000, abs=8_000)
    assert names["dps"].mmd(names["june"], names["july"]).value > 0.01  # the second half of the rows earns more
