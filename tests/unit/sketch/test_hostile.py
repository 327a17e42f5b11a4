"""Files made to keep a reader busy, or with sums that no table has: refused in time proportionate to their size."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save

import dpsketch as dps
from dpsketch.errors import FileError, RecipeError
from dpsketch.maps.base import FREE_WORK, WORK_PER_SUM
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.tables.pairs import Pairs
from dpsketch.sketch import file

COLUMNS = {
    "x": {"kind": "number", "lower": 0, "upper": 1},
    "y": {"kind": "integer", "lower": 0, "upper": 9},
    "ok": {"kind": "boolean"},
}
PARTS = {
    "count": dps.Count(),
    "marginals": dps.Marginals(bins=4),
    "fourier": dps.Fourier(size=10),
    "quadratic": dps.Quadratic(("x", "y"), size=10),
    "race": dps.Race(("x", "y"), rows=4, width=16),
    "grid": dps.Grid(("x", "y"), rows=2, width=16),
    "grouped": dps.Grouped(dps.SecondMoments(("x", "y")), "ok"),
}


def released(*maps: dps.FeatureMap, columns: dict[str, Any] = COLUMNS) -> dps.ReleasedSketch:
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": columns})
    recipe = dps.Recipe([dps.Part(each, 1 / len(maps)) for each in maps])
    table = pa.table({name: [0, 1, 1] for name in columns})
    return dps.release(dps.accumulate(table, schema, recipe), dps.Budget(1.0), dps.Ledger("sqlite://"), "a")


def sealed(header: Any, sums: list[np.ndarray]) -> bytes:
    """A file with a correct digest, whatever it says."""
    tensors = {f"part.{place}": each for place, each in enumerate(sums)} | {"sha256": np.zeros(32, np.uint8)}
    data = save(tensors, metadata={"dpsketch": json.dumps(header)})
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def with_parts(path: Path, parts: list[dict[str, Any]], lengths: list[int], columns: int) -> None:
    """A sketch of as many boolean columns and of any parts; fingerprints and noises are of no interest here."""
    released(dps.Count()).save(path)
    header = file.read_header(path)
    header["schema"]["columns"] = {f"c{number}": {"kind": "boolean"} for number in range(columns)}
    header["recipe"]["parts"] = [part | {"version": 1, "share": 1 / len(parts)} for part in parts]
    path.write_bytes(sealed(header, [np.zeros(length, np.int64) for length in lengths]))


@pytest.mark.parametrize(
    ("part", "columns", "length", "count"),
    [
        ({"map": "quadratic", "size": 8388}, 4000, 8388, 3),
        ({"map": "quadratic", "size": 8388}, 4000, 8388, 1),
        ({"map": "quadratic", "size": 1000}, 1000, 1000, 100),
        ({"map": "quadratic", "size": 4096, "directions": "hadamard"}, 4096, 4096, 100),
        ({"map": "quadratic", "size": 4096, "directions": "hadamard3"}, 4096, 4096, 100),
        ({"map": "fourier", "size": 3000, "structure": "dense"}, 10_000, 6000, 2),
        ({"map": "one_bit_fourier", "size": 3000, "structure": "dense"}, 10_000, 6000, 2),
        ({"map": "race", "rows": 1000, "width": 2, "hash": {"family": "euclidean", "power": 8}}, 2000, 2000, 2),
        ({"map": "subsampled", "of": {"map": "quadratic", "version": 1, "size": 8000}, "size": 8000}, 4000, 8000, 3),
        ({"map": "grouped", "of": {"map": "quadratic", "version": 1, "size": 8000}, "column": "c0"}, 4000, 24_000, 3),
    ],
)
def test_parts_that_take_long_to_draw_are_refused_before_they_are(
    part: dict[str, Any], columns: int, length: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sketch"
    with_parts(path, [part] * count, [length] * count, columns)
    monkeypatch.setattr(PublicStream, "words", lambda *_: pytest.fail("drawn"))
    with pytest.raises(FileError, match="too long to draw"):
        dps.ReleasedSketch.load(path)


def test_sizes_are_not_worked_out_for_parts_that_the_file_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = tmp_path / "a.sketch", []
    with_parts(path, [{"map": "pairs"}] * 100, [1] * 100, 400)
    length = Pairs.length
    monkeypatch.setattr(Pairs, "length", lambda self, schema: asked.append(self) or length(self, schema))
    with pytest.raises(FileError, match="not valid"):
        dps.ReleasedSketch.load(path)
    assert len(asked) == 1


def test_a_curator_cannot_make_what_nobody_could_open() -> None:
    columns = {f"c{number}": {"kind": "boolean"} for number in range(4000)}
    with pytest.raises(
        RecipeError, match=r"quadratic on 4000 columns would take too long to draw[^\n]*\nHint: name few"
    ):
        released(dps.Count(), dps.Quadratic(size=8388), columns=columns)


@pytest.mark.parametrize("columns", [50, 785])
def test_ready_made_recipes_are_far_from_the_limit(columns: int) -> None:
    facts = {f"c{number}": {"kind": "number", "lower": 0, "upper": 1} for number in range(columns)}
    schema = dps.Schema.from_dict({"privacy": {"rows": 10**6}, "columns": facts | {"ok": {"kind": "boolean"}}})
    budget = dps.Budget(1.0)
    recipes = [
        dps.Recipe.clusters(schema, budget=budget),
        dps.Recipe.pca(schema, budget=budget, of="second_moments"),
        dps.Recipe.density(schema, budget=budget),
        dps.Recipe.classify(schema, target="ok", budget=budget),
    ]
    for recipe in recipes:
        work = sum(part.map.work(schema) for part in recipe.parts)
        assert work < 0.5 * (FREE_WORK + WORK_PER_SUM * sum(part.map.length(schema) for part in recipe.parts))


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, 2**40])
@pytest.mark.parametrize("kind", PARTS)
def test_sums_that_no_table_has_are_refused(kind: str, value: int, tmp_path: Path) -> None:
    path = tmp_path / "a.sketch"
    sketch = released(dps.Count(), PARTS[kind])
    sketch.save(path)
    dps.ReleasedSketch.load(path)
    header, sums = file.read_header(path), [np.array(each, np.int64) for each in sketch.sums]
    sums[1][-1] = value
    path.write_bytes(sealed(header, sums))
    if kind == "quadratic" and value == 2**40:  # its features are squares of large integers
        dps.ReleasedSketch.load(path)
        return
    with pytest.raises(FileError, match="damaged or made by something else: its sums are larger than possible"):
        dps.ReleasedSketch.load(path)


@pytest.mark.parametrize(("kind", "value"), [("fourier", -(2**63)), ("marginals", 2**63 - 1), ("count", 2**51)])
def test_absurd_sums_are_refused_without_another_count_as_well(kind: str, value: int, tmp_path: Path) -> None:
    path = tmp_path / "a.sketch"
    sketch = released(PARTS[kind])
    sketch.save(path)
    header, sums = file.read_header(path), np.array(sketch.sums[0])
    sums[0] = value
    path.write_bytes(sealed(header, [sums]))
    with pytest.raises(FileError, match="larger than possible"):
        dps.ReleasedSketch.load(path)
