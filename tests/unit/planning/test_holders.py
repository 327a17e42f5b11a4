"""One curator, secure sums and local noise side by side, against real releases of the same noise."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.planning.holders import part_noises
from dpsketch.planning.simulated_release import Sharing, planned_release
from dpsketch.privacy.mechanisms import Mechanism

FIVE = dps.Consortium.of(5)
FACTS = {
    "privacy": {"rows": 3000},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 100},
        "sex": {"kind": "category", "values": ["f", "m"]},
    },
}
SCHEMA = dps.Schema.from_dict(FACTS)
SMALL = dps.Recipe([dps.Part(dps.Count(), 0.2), dps.Part(dps.Histogram(bins=8), 0.8)])
PURE, APPROXIMATE = dps.Budget(1.0), dps.Budget(1.0, 1e-6)
COUNTED = "select count(*) from sketch where sex = 'f'"


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE], ids=str)
def test_errors_of_counts_follow_the_noise(budget: dps.Budget) -> None:
    found = dps.plan_holders(SCHEMA, [COUNTED], [budget], FIVE, recipe=SMALL, simulations=2)
    ((curator, secure, local),) = found.rows()
    assert secure.error / curator.error == pytest.approx(sqrt(5 / 3), rel=0.1)
    assert local.error / curator.error == pytest.approx(sqrt(5), rel=0.1)
    for each in found.noises:
        assert each.secure / each.curator == pytest.approx(sqrt(5 / 3), rel=0.02)
        assert each.local / each.curator == pytest.approx(sqrt(5))
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_general_recipe_is_released_in_all_three_ways() -> None:
    """Later sites take the cells of the first, so that local releases merge."""
    found = dps.plan_holders(
        SCHEMA, ["select avg(age) from sketch where sex = 'f'"], [APPROXIMATE], FIVE, simulations=1
    )
    ((curator, secure, local),) = found.rows()
    assert np.isfinite([curator.error, secure.error, local.error]).all()
    assert curator.error < local.error


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE], ids=str)
def test_simulated_shares_have_the_variance_of_real_ones(budget: dps.Budget, rng: np.random.Generator) -> None:
    made = planned_release(SCHEMA, SMALL, budget, None, Sharing(FIVE))
    empty = dps.accumulate(pa.table({"age": pa.array([], pa.int64()), "sex": pa.array([], pa.string())}), SCHEMA, SMALL)
    squares, variance = [], None
    for _ in range(300):
        part = made.of(empty, rng).parts[1]
        squares.append(np.mean(part.sums.astype(float) ** 2))
        variance = part.noise_variance
    assert np.mean(squares) == pytest.approx(variance, rel=5 * np.std(squares) / sqrt(300) / np.mean(squares))


def test_what_waves_cost_without_noise_in_the_shape_of_discs() -> None:
    recipe = dps.Recipe([dps.Part(dps.Fourier(size=100), 1.0)])
    (pure,), (gaussian,) = (part_noises(SCHEMA, recipe, budget, FIVE) for budget in (PURE, APPROXIMATE))
    assert pure.secure / pure.curator == pytest.approx(2 * sqrt(5 / 3), rel=0.02)
    assert gaussian.secure / gaussian.curator == pytest.approx(sqrt(5 / 3), rel=1e-3)
    event = planned_release(SCHEMA, recipe, PURE, None, Sharing(FIVE)).event
    assert event.noises[0].mechanism is Mechanism.POLYA


def test_the_command_shows_all_three(tmp_path: Path) -> None:
    schema, recipe = tmp_path / "schema.toml", tmp_path / "recipe.toml"
    schema.write_text(
        '[privacy]\nrows = 3000\n[columns.sex]\nkind = "category"\nvalues = ["f", "m"]\n'
        '[columns.age]\nkind = "integer"\nlower = 0\nupper = 100\n'
    )
    recipe.write_text('[[parts]]\nmap = "histogram"\nbins = 8\nshare = 1.0\n')
    asked = ["plan", "--schema", str(schema), "--recipe", str(recipe), "--epsilon", "1", "--simulations", "1"]
    shown = called(tmp_path, *asked, "--query", COUNTED, "--holders", "5").stdout
    for wanted in ("one curator", "secure sum", "local noise", "threshold 4", "3 shares", "Nothing was read"):
        assert wanted in " ".join(shown.split())
    facts = json.loads(
        called(tmp_path, *asked, "--query", COUNTED, "--holders", "7", "--colluders", "2", "--json").stdout
    )
    assert facts["consortium"] == {"holders": 7, "least": 5, "colluders": 2, "threshold": 5, "honest": 3}
    assert facts["noise"][0]["secure"] / facts["noise"][0]["curator"] == pytest.approx(sqrt(7 / 3), rel=0.02)
    assert len(facts["curator"]) == len(facts["secure"]) == len(facts["local"]) == 1
    for wrong in (
        ["--least", "3"],
        ["--holders", "2"],
        ["--holders", "5", "--least", "3"],
        ["--holders", "5", "--within", "1"],
    ):
        refused = called(tmp_path, *asked, *wrong)
        assert refused.returncode != 0
        assert "BudgetError" in refused.stderr
