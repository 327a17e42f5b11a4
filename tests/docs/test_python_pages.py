"""The Python of docs pages runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "printed"),
    [("synthetic.md", "predicted distance"), ("recipes.md", "±"), ("schema.md", "('ATL', 'JFK', 'LAX')")],
)
def test_the_code_runs(tmp_path: Path, page: str, printed: str) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
