"""The code of docs/regressions.md runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "regressions.md"


def test_the_code_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "what the sums do not resolve" in done.stdout
    share, total = map(float, done.stdout.splitlines()[-1].split())
    assert 0 < share < 0.3
    assert abs(total - 1) < 1e-6
