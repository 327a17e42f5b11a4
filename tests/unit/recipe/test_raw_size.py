"""The raw sketch of the general recipe fits memory: its size follows from public facts alone."""

from __future__ import annotations

import pytest

import dpsketch as dps

LARGEST = 256_000_000
KINDS = (
    {"kind": "number", "lower": 0, "upper": 1},
    {"kind": "integer", "lower": 0, "upper": 1000},
    {"kind": "category", "values": [str(each) for each in range(50)]},
    {"kind": "boolean"},
)


@pytest.mark.parametrize("budget", [dps.Budget(0.1), dps.Budget(10.0), dps.Budget(1.0, 1e-6)])
@pytest.mark.parametrize("columns", [10, 30, 100, 300])
@pytest.mark.parametrize("kinds", [1, 4])
def test_the_general_recipe_stays_below_256_megabytes(columns: int, kinds: int, budget: dps.Budget) -> None:
    facts = {f"c{each}": KINDS[each % kinds] for each in range(columns)}
    schema = dps.Schema.from_dict({"privacy": {"rows": 3_000_000}, "columns": facts})
    maps = dps.Recipe.general(schema, budget=budget).bind(schema).maps
    assert sum(4 * each.size for each in maps) < LARGEST
