"""Plant recognisable cells and an unusual number of rows; look for them in everything that leaves the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.cli import main

CANARY = "xq7zsecret"
NUMBER = 123457.91
ROWS = 10_007
SCHEMA = """[privacy]
rows = 10000
[columns.name]
kind = "category"
values = ["a", "b"]
[columns.amount]
kind = "number"
lower = 0
upper = 1000000
[columns.born]
kind = "datetime"
lower = 1900-01-01
upper = 2030-01-01
[columns.flag]
kind = "boolean"
"""


def planted() -> pa.Table:
    return pa.table(
        {
            "name": [CANARY] * ROWS,
            "amount": [CANARY if i % 2 else str(NUMBER) for i in range(ROWS)],
            "born": [CANARY] * ROWS,
            "flag": [CANARY] * ROWS,
        }
    )


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dpsketch", *arguments])
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def test_nothing_of_the_cells_or_of_n_is_shown_or_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    pq.write_table(planted(), "t.parquet")
    with open("t.csv", "w") as file:
        file.write("name,amount,born,flag\n" + f'{CANARY},{NUMBER},"{CANARY},{CANARY}\n' * ROWS)
    for source in ("t.parquet", "t.csv"):
        options = ["--schema", "schema.toml", "--epsilon", "1", "--ledger", f"{source}.db", "-o", f"{source}.sketch"]
        assert run(monkeypatch, "release", source, *options) == 0
        assert run(monkeypatch, "show", f"{source}.sketch") == 0
        assert run(monkeypatch, "show", f"{source}.sketch", "--json") == 0
        assert run(monkeypatch, "ledger", "show", f"{source}.db", "--json") == 0
        stored = Path(f"{source}.sketch").read_bytes() + Path(f"{source}.db").read_bytes()
        for secret in (CANARY.encode(), str(NUMBER).encode(), str(ROWS).encode()):
            assert secret not in stored
    captured = capfd.readouterr()
    for secret in (CANARY, str(NUMBER), str(ROWS)):
        assert secret not in captured.out + captured.err


def test_the_size_of_a_file_does_not_depend_on_the_data(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema, budget = dps.Schema.load(tmp_path / "schema.toml"), dps.Budget(1.0)
    sizes = set()
    for rows in (0, 1, ROWS):
        raw = dps.accumulate(planted().slice(0, rows), schema, dps.Recipe.general(schema, budget=budget))
        path = tmp_path / f"{rows}.sketch"
        dps.release(raw, budget, dps.Ledger("sqlite://"), "t").save(path)
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1


def test_no_cell_raises_and_an_unexpected_error_stays_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If a bug ever raises with a cell in its message, the command line must not show it."""
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA)
    pq.write_table(planted(), "t.parquet")

    def bug(*_: object) -> None:
        raise ValueError(f"cannot read {CANARY}")

    monkeypatch.setattr("dpsketch.engines.local.encode", bug)
    options = ["--schema", "schema.toml", "--epsilon", "1", "--ledger", "l.db", "-o", "t.sketch"]
    assert run(monkeypatch, "release", "t.parquet", *options) == 70
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err
    assert "ValueError: unexpected error." in captured.err
    assert dps.Ledger("l.db").accounts() == (), "nothing was spent"


class Hostile:
    """A cell whose own code raises with its content."""

    def __str__(self) -> str:
        raise ValueError(CANARY)


def test_progress_does_not_tell_the_number_of_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"flag": [True] * 100_003}), tmp_path / "t.parquet")
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"flag": {"kind": "boolean"}}})
    shares: list[float] = []
    dps.accumulate(tmp_path / "t.parquet", schema, dps.Recipe([dps.Part(dps.Count(), 1.0)]), progress=shares.append)
    assert all(round(100 * share) / 100 == share for share in shares)


def test_a_missing_column_is_told_without_any_row() -> None:
    schema = dps.Schema.from_dict({"privacy": {"rows": 10}, "columns": {"flag": {"kind": "boolean"}}})
    recipe = dps.Recipe([dps.Part(dps.Count(), 1.0)])
    for rows in (0, 1):
        for source in (pa.table({"other": [True] * rows}), pa.table({"other": [True] * rows}).to_pandas()):
            with pytest.raises(dps.DpsketchError, match="has no column 'flag'"):
                dps.accumulate(source, schema, recipe)


def test_mixed_pandas_objects_do_not_raise() -> None:
    import pandas

    schema = dps.Schema.from_dict(
        {"privacy": {"rows": 5}, "columns": {"amount": {"kind": "number", "lower": 0, "upper": 10}}}
    )
    cells = [1, "2", None, b"\xff", object(), float("nan"), [3], "\ud800", pandas.NA, Hostile(), np.arange(2), 10**5000]
    frame = pandas.DataFrame({"amount": pandas.Series(cells, dtype=object), "other": [Hostile()] * len(cells)})
    raw = dps.accumulate(frame, schema, dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(bins=5), 0.5)]))
    assert raw.parts[0].sums.tolist() == [len(cells)]
    assert raw.parts[1].sums[-1] == len(cells) - 2
    labels = pandas.DataFrame({"amount": pandas.Categorical([1, "x", 2.5, None])})
    raw = dps.accumulate(labels, schema, raw.recipe)
    assert raw.parts[1].sums[-1] == 2
