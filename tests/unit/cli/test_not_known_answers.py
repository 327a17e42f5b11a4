"""What `dpsketch ask` prints where nothing is known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from command_line import called

SKETCH = Path(__file__).parents[2] / "pinned" / "mixed-general-pure.sketch"
QUESTION = "select count(*) as n, avg(height) as h from sketch where height > 2.5"


def test_tables_say_that_nothing_is_known_and_why(tmp_path: Path) -> None:
    printed = called(tmp_path, "ask", str(SKETCH), QUESTION).stdout
    assert "not known (0 to " in printed
    assert "n not known: records above 2.5 were clamped to 2.5, the upper bound of column 'height'" in printed


def test_json_and_csv_have_a_reason_and_what_is_possible(tmp_path: Path) -> None:
    [row] = json.loads(called(tmp_path, "ask", str(SKETCH), QUESTION, "--json").stdout)
    assert row["n"] is row["h"] is None
    assert row["n_low"] == 0
    assert row["n_high"] > 0
    assert row["h_low"] is row["h_high"] is None
    assert "clamped" in row["n_reason"]
    [line] = csv.DictReader(called(tmp_path, "ask", str(SKETCH), QUESTION, "--csv").stdout.splitlines())
    assert list(line) == list(row)
    assert line["n"] == ""
