"""Files written by earlier versions stay readable and give the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsketch as dps

FOLDER = Path(__file__).parent
RAW = [500, 17, 11603942]
RELEASED = [417, 16, 10491448]
MEAN = 53.85447724836792


def test_format_1_released() -> None:
    view = dps.open(FOLDER / "format-1.sketch")
    assert view.statement["epsilon"] == "1"
    assert view.released.library == "0.1.0"
    assert [int(part.sums[0]) for part in view.released.parts] == RELEASED
    assert view.mean("age").value == pytest.approx(MEAN)


def test_format_1_raw() -> None:
    raw = dps.RawSketch.load(FOLDER / "format-1.raw")
    assert [int(part.sums[0]) for part in raw.parts] == RAW


if __name__ == "__main__":  # writes the files of this version; run once a format
    from conftest import MIXED, mixed_table

    schema = dps.Schema.from_dict(MIXED)
    recipe = dps.Recipe.general(schema, budget=dps.Budget(1.0))
    made = dps.accumulate(mixed_table(500), schema, recipe)
    made.save(FOLDER / "format-1.raw")
    dps.release(made, dps.Budget(1.0), dps.Ledger("sqlite://"), "golden").save(FOLDER / "format-1.sketch")
    opened = dps.open(FOLDER / "format-1.sketch")
    print(f"RAW = {[int(part.sums[0]) for part in made.parts]}")
    print(f"RELEASED = {[int(part.sums[0]) for part in opened.released.parts]}")
    print(f"MEAN = {opened.mean('age').value!r}")
