"""Files written by earlier versions stay readable and give the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsketch as dps
from dpsketch.privacy.events import Mechanism

FOLDER = Path(__file__).parent
BUDGET = dps.Budget(1.0, 1e-6)
RAW = [500, 17, 11603942]
RELEASED = [417, 16, 10491448]
MEAN = 53.85447724836792
RELEASED_2 = [500, -11, 10365441]
MEAN_2 = 62.98819426938914


def test_format_1_released() -> None:
    view = dps.open(FOLDER / "format-1.sketch")
    assert view.statement["epsilon"] == "1"
    assert view.released.library == "0.1.0"
    assert [int(part.sums[0]) for part in view.released.parts] == RELEASED
    assert view.mean("age").value == pytest.approx(MEAN)


def test_format_1_raw() -> None:
    raw = dps.RawSketch.load(FOLDER / "format-1.raw")
    assert [int(part.sums[0]) for part in raw.parts] == RAW


def test_format_1_says_laplace_noise_by_shares() -> None:
    released = dps.ReleasedSketch.load(FOLDER / "format-1.sketch")
    (release,) = released.releases
    assert {noise.mechanism for noise in release.noises} == {Mechanism.LAPLACE}
    assert sum(noise.epsilon or 0 for noise in release.noises) == 1


def test_format_2_released() -> None:
    view = dps.open(FOLDER / "format-2.sketch")
    (release,) = view.released.releases
    assert release.budget == BUDGET
    assert view.statement["relation"] == "replace-one"
    assert [int(part.sums[0]) for part in view.released.parts] == RELEASED_2
    assert view.mean("age").value == pytest.approx(MEAN_2)


if __name__ == "__main__":  # writes the files of this version; run once a format
    from conftest import MIXED, mixed_table

    facts = MIXED | {"privacy": MIXED["privacy"] | {"relation": "replace-one"}}  # type: ignore[operator]
    schema = dps.Schema.from_dict(facts)
    recipe = dps.Recipe.general(schema, budget=BUDGET)
    made = dps.accumulate(mixed_table(500), schema, recipe)
    dps.release(made, BUDGET, dps.Ledger("sqlite://"), "golden").save(FOLDER / "format-2.sketch")
    opened = dps.open(FOLDER / "format-2.sketch")
    print(f"RELEASED_2 = {[int(part.sums[0]) for part in opened.released.parts]}")
    print(f"MEAN_2 = {opened.mean('age').value!r}")
