from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import dpsketch as dps
from dpsketch.cli.app import app
from dpsketch.errors import FileError, QueryError


def test_rows_obey_the_schema(view: dps.View) -> None:
    rows = view.sample(20_000)
    assert rows.column_names == [column.name for column in view.schema.columns]
    assert rows.num_rows == 20_000
    kinds = [pa.int64(), pa.float64(), pa.string(), pa.timestamp("us", tz="UTC"), pa.float64(), pa.float64()]
    assert rows.schema.types == [*kinds, pa.bool_(), pa.int64()]
    assert pc.min(rows["age"]).as_py() >= 18
    assert pc.max(rows["age"]).as_py() <= 90
    assert pc.min(rows["income"]).as_py() >= 1
    assert pc.max(rows["income"]).as_py() <= 1000
    assert set(rows["city"].to_pylist()) <= {"north", "south", "west", "other", None}
    assert pc.min(rows["since"]).as_py().year >= 2000
    assert rows["income"].null_count == pytest.approx(2000, abs=500)


def test_rows_have_the_dependence_of_the_table(view: dps.View) -> None:
    rows = view.sample(20_000)
    assert np.corrcoef(rows["weight"].to_numpy(), rows["height"].to_numpy())[0, 1] > 0.88
    young = rows.filter(pc.less(rows["age"], 60))
    assert pc.mean(pc.equal(young["city"], "north")).as_py() < 0.1


def test_a_seed_decides_the_rows(view: dps.View) -> None:
    assert view.sample(500, seed=3).equals(view.sample(500, seed=3))
    assert not view.sample(500, seed=3).equals(view.sample(500, seed=4))


def test_many_rows_come_in_blocks(view: dps.View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.learn.population.weighted_rows._BLOCK_CELLS", 8 * 300)
    rows = view.sample(1000)
    assert rows.num_rows == 1000
    assert rows["age"].num_chunks == 4
    assert not rows["age"].chunk(0).equals(rows["age"].chunk(1))


@pytest.mark.parametrize(("n", "seed"), [(0, 0), (-1, 0), (2.5, 0), (True, 0), (10, -1), ("10", 0)])
def test_bad_numbers_are_refused(view: dps.View, n: object, seed: object) -> None:
    with pytest.raises(QueryError, match="must be a whole number"):
        view.sample(n, seed)  # type: ignore[arg-type]


def test_a_release_without_pairs_says_what_is_missing(counts_only: dps.View) -> None:
    with pytest.raises(QueryError, match=r"Part\(Marginals\(\).*Part\(Pairs\(pool=True\)"):
        counts_only.sample(10)


def test_the_command_line_writes_rows(view: dps.View, tmp_path: Path) -> None:
    view.released.save(tmp_path / "a.sketch")
    for output, read in (("rows.parquet", parquet.read_table), ("rows.csv", csv.read_csv)):
        done = CliRunner().invoke(app, ["sample", str(tmp_path / "a.sketch"), "-n", "50", "-o", str(tmp_path / output)])
        assert done.exit_code == 0, done.output
        assert read(tmp_path / output).num_rows == 50
    again = CliRunner().invoke(app, ["sample", str(tmp_path / "a.sketch"), "-n", "5", "-o", str(tmp_path / "rows.csv")])
    assert isinstance(again.exception, FileError)
    other = CliRunner().invoke(app, ["sample", str(tmp_path / "a.sketch"), "-n", "5", "-o", str(tmp_path / "rows.doc")])
    assert isinstance(other.exception, FileError)
