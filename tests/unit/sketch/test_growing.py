"""Raw sketches as checkpoints: new files are added once, and rows are removed before a release."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_sqlite import dbapi as sqlite
from deltalake import write_deltalake

import dpsketch as dps
from conftest import MIXED, mixed_table


def bytes_of(raw: dps.RawSketch) -> list[bytes]:
    return [part.sums.tobytes() for part in raw.parts]


def months(folder: Path, table: pa.Table) -> list[Path]:
    paths = [folder / f"{name}.parquet" for name in ("january", "february", "march")]
    for number, path in enumerate(paths):
        pq.write_table(table.slice(number * 300, 300), path)
    return paths


def test_months_are_appended_once(schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path) -> None:
    table = mixed_table(900)
    january, february, march = months(tmp_path, table)
    dps.accumulate(january, schema, recipe).save(tmp_path / "year.raw")
    raw = dps.append(dps.RawSketch.load(tmp_path / "year.raw"), february)
    raw.save(tmp_path / "year.raw", force=True)
    raw = dps.RawSketch.load(tmp_path / "year.raw")
    copy = Path(shutil.copy(january, tmp_path / "copy.parquet"))
    for again in (january, february, copy, [march, february]):
        with pytest.raises(
            dps.DpsketchError, match="a file was counted before, perhaps in another version\nHint: name only new files"
        ):
            dps.append(raw, again)
    whole = dps.append(raw, march)
    assert bytes_of(whole) == bytes_of(dps.accumulate(table, schema, recipe))
    assert whole.schema == schema, "the declared rows are those of the whole table"


def test_another_version_of_a_file_is_refused(schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path) -> None:
    january = months(tmp_path, mixed_table(900))[0]
    raw = dps.accumulate(january, schema, recipe)
    pq.write_table(mixed_table(301), january)
    with pytest.raises(dps.DpsketchError, match="perhaps in another version"):
        dps.append(raw, january)


def test_tables_and_queries_are_recognised(schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path) -> None:
    """Any version of a lake table, and the same query of a database. Rows in memory need an assertion."""
    table = mixed_table(300)
    write_deltalake(tmp_path / "lake", table)
    with sqlite.connect(str(tmp_path / "t.db")) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("t", table)
        connection.commit()
    database = dps.Database(f"sqlite:///{tmp_path}/t.db", table="t")
    for source in (tmp_path / "lake", database):
        raw = dps.accumulate(source, schema, recipe)
        with pytest.raises(dps.DpsketchError, match="this table or query was counted before"):
            dps.append(raw, source)
    with pytest.raises(dps.DpsketchError, match="whether rows of a Table were counted before is unknown"):
        dps.append(raw, table)
    assert dps.append(raw, table, new_rows=True).parts[0].sums[0] == 600


def test_a_release_contains_nothing_of_the_inputs(schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path) -> None:
    raw = dps.accumulate(months(tmp_path, mixed_table(900))[0], schema, recipe)
    released = dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "visits")
    released.save(tmp_path / "a.sketch")
    raw.save(tmp_path / "a.raw")
    for secret in (*raw.inputs[0].hashes, raw.inputs[0].key.hex()):
        assert secret.encode() not in (tmp_path / "a.sketch").read_bytes()
        assert secret.encode() in (tmp_path / "a.raw").read_bytes()
    assert raw.inputs[0].key.hex() not in repr(raw.inputs)


def test_subtracted_rows_were_never_counted(schema: dps.Schema, recipe: dps.Recipe, tmp_path: Path) -> None:
    table = mixed_table(900)
    raw, erased = dps.accumulate(table, schema, recipe), dps.accumulate(table.slice(0, 100), schema, recipe)
    left = raw.subtract(erased)
    assert bytes_of(left) == bytes_of(dps.accumulate(table.slice(100), schema, recipe))
    left.save(tmp_path / "left.raw")
    left = dps.RawSketch.load(tmp_path / "left.raw")
    with pytest.raises(dps.DpsketchError, match="these rows were subtracted before"):
        left.subtract(erased)
    with pytest.raises(dps.DpsketchError, match="an input of one sketch was subtracted from the other"):
        left.merge(erased)


def test_what_cannot_be_subtracted(schema: dps.Schema, recipe: dps.Recipe) -> None:
    table = mixed_table(900)
    raw = dps.accumulate(table, schema, recipe)
    other = dps.accumulate(table, schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]))
    with pytest.raises(dps.DpsketchError, match="different recipes"):
        raw.subtract(other)
    halves = dps.Recipe(recipe.parts, sampling=dps.RowSampling(rate=0.5))
    masks = dps.Recipe([dps.Part(dps.Subsampled(dps.Fourier(size=10), 5), 1.0)])
    for each in (halves, masks):
        with pytest.raises(dps.DpsketchError, match="sampled rows and masked features cannot be subtracted"):
            dps.accumulate(table, schema, each).subtract(dps.accumulate(table.slice(0, 9), schema, each))


def test_units_are_subtracted_whole(recipe: dps.Recipe) -> None:
    """A person's rows beyond the limit take the places of erased ones: only all of them may go."""
    table = mixed_table(900)
    people = pa.array(np.arange(900) % 150)
    table = table.append_column("person", people)
    units = {"privacy": {"rows": 1000, "unit": "person", "max_rows_per_unit": 2, "unit_kind": "integer"}}
    schema = dps.Schema.from_dict(MIXED | units)
    raw = dps.accumulate(table, schema, recipe)
    gone = np.isin(people, [3, 77])
    erased = dps.accumulate(table.filter(pa.array(gone)), schema, recipe)
    with pytest.raises(dps.DpsketchError, match="other rows of the units of column 'person' may be left"):
        raw.subtract(erased)
    left = raw.subtract(erased, whole_units=True)
    assert bytes_of(left) == bytes_of(dps.accumulate(table.filter(pa.array(~gone)), schema, recipe))


def test_hostile_inputs_in_a_raw_file_are_refused(schema: dps.Schema, recipe: dps.Recipe) -> None:
    from dpsketch.sketch.inputs import Inputs

    good = Inputs(frozenset(["a" * 64]), ("postgresql://host/db: visits",)).to_dict()
    assert Inputs.from_dict(good).to_dict() == good
    for wrong in ({"key": "zz"}, {"hashes": ["../a"]}, {"tables": [3]}):
        with pytest.raises(ValueError, match="inputs"):
            Inputs.from_dict(good | wrong)
