"""`dpsketch fit` as a person uses it, with real files."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called
from dpsketch.cli.fitted import print_rows
from planted_clusters import CENTRES, ROWS, planted

SCHEMA = f"""
[about]
name = "planted"
[privacy]
rows = {ROWS}
""" + "".join(
    f'[columns.{n}]\nkind = "number"\nlower = {low}\nupper = {high}\n'
    for n, low, high in (("a", -10, 10), ("b", -10, 10), ("c", 0, 40))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit")
    pq.write_table(pa.table(planted()), folder / "planted.parquet")
    (folder / "planted.toml").write_text(SCHEMA)
    words = [
        "--schema",
        "planted.toml",
        "--clusters",
        "2",
        "--columns",
        "a, c",
        "--epsilon",
        "1",
        "--ledger",
        "l.db",
        "--create-ledger",
    ]
    done = called(folder, "release", "planted.parquet", *words, "-o", "planted.sketch")
    assert done.returncode == 0, done.stderr
    return folder


def test_centres_come_as_csv_with_a_plot(folder: Path) -> None:
    words = ["--k", "2", "--format", "csv", "--plot", "centres.png"]
    done = called(folder, "fit", "kmeans", "planted.sketch", *words)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["cluster", "weight", "a", "a_stderr", "c", "c_stderr"]
    assert [float(row["a"]) for row in rows] == pytest.approx(CENTRES[:, 0], abs=0.3)
    assert [float(row["c"]) for row in rows] == pytest.approx(CENTRES[:, 2], abs=0.6)
    assert (folder / "centres.png").read_bytes().startswith(b"\x89PNG")
    again = called(folder, "fit", "kmeans", "planted.sketch", *words)
    assert again.returncode == 1
    assert "centres.png exists already" in again.stderr


def test_components_come_as_json(folder: Path) -> None:
    done = called(folder, "fit", "gmm", "planted.sketch", "--k", "2", "--covariance", "full", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["converged"] is True
    assert {"weight", "weight_stderr", "a", "a_var", "a_c_cov"} <= set(found["rows"][0])
    assert [row["c"] for row in found["rows"]] == pytest.approx(CENTRES[:, 2], abs=0.6)


def test_a_table_says_how_good_the_fit_is(folder: Path) -> None:
    done = called(folder, "fit", "gmm", "planted.sketch", "--k", "1")
    assert "±" in done.stdout
    assert "Goodness of fit" in done.stdout
    assert "Warning: GaussianMixture: poor fit: 100% of the cluster structure" in done.stderr


def test_the_next_step_fits_the_clusters(folder: Path) -> None:
    """As printed, it runs; a raw sketch names no task, so its release promises no more than `show`."""
    spend = ["--epsilon", "1", "--ledger", "n.db", "--create-ledger"]
    facts = ["--schema", "planted.toml", "--clusters", "2", "--columns", "a,b,c"]
    told = called(folder, "release", "planted.parquet", *facts, *spend, "-o", "next.sketch").stderr
    assert "Next: dpsketch show next.sketch, dpsketch fit kmeans next.sketch --k 2\n" in told
    assert called(folder, "fit", "kmeans", "next.sketch", "-k", "2").returncode == 0
    called(folder, "accumulate", "planted.parquet", *facts, "--epsilon", "1", "-o", "next.raw")
    told = called(folder, "release", "next.raw", *spend, "--dataset", "other", "-o", "raw.sketch").stderr
    assert told.endswith("Next: dpsketch show raw.sketch\n")


def test_columns_are_named_on_the_command_line(folder: Path) -> None:
    words = ["--k", "2", "--columns", "c,a", "--json"]
    done = called(folder, "fit", "kmeans", "planted.sketch", *words)
    assert done.returncode == 0, done.stderr
    wrong = called(folder, "fit", "gmm", "planted.sketch", "--k", "2", "--columns", "b,a")
    assert wrong.returncode == 1


def test_rows_wider_than_the_screen_stand_upright(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"cluster": place} | {f"a_long_name_{column}": 1.5 for column in range(9)} for place in range(12)]
    print_rows(rows, {}, "table")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    heads = [line.split() for line in lines if "cluster" in line]
    assert sum(str(place) in head for head in heads for place in range(12)) == 12
    assert sum("a_long_name_8" in line for line in lines) == len(heads) > 1


def test_wrong_options_are_refused(folder: Path) -> None:
    wrong = called(folder, "fit", "kmeans", "planted.sketch", "--k", "2", "--format", "xml")
    assert "--format must be one of table, csv, json, got 'xml' instead" in wrong.stderr
    wrong = called(folder, "fit", "kmeans", "planted.sketch", "--k", "2", "--plot", "a.jpg")
    assert "a.jpg does not end in .svg or .png" in wrong.stderr
    words = "planted.parquet --schema planted.toml --epsilon 1 --ledger l.db --create-ledger -o b.sketch"
    options = words.split()
    assert "--columns is for a task" in called(folder, "release", *options, "--columns", "a").stderr
    both = called(folder, "release", *options, "--clusters", "2", "--frequencies", "9").stderr
    assert "--clusters is a recipe of its own" in both


def test_dates_of_centres_are_dates(tmp_path: Path) -> None:
    sketch = str(Path(__file__).parents[2] / "pinned" / "mixed-general-delta.sketch")
    words = ("fit", "kmeans", sketch, "--k", "2", "--columns", "age,joined")
    [first, _] = json.loads(called(tmp_path, *words, "--json").stdout)["rows"]
    assert first["joined"][:2] == "20"
    assert 3600 < first["joined_stderr"] < 1e9  # seconds
    printed = called(tmp_path, *words).stdout
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d ± \S+ days", printed)


def test_coefficients_of_labels_against_a_reference(tmp_path: Path) -> None:
    wards = ["a", "b", "b", "b"] * 2000
    rows = {"ward": wards, "y": [3.0 if ward == "a" else 1.0 for ward in wards]}
    pq.write_table(pa.table(rows), tmp_path / "wards.parquet")
    (tmp_path / "wards.toml").write_text(
        '[about]\nname = "wards"\n[privacy]\nrows = 8000\n[columns.ward]\nkind = "category"\nvalues = ["a", "b"]\n'
        '[columns.y]\nkind = "number"\nlower = 0\nupper = 4\n'
    )
    words = ["--schema", "wards.toml", "--epsilon", "5", "--ledger", "l.db", "--create-ledger", "-o", "w.sketch"]
    done = called(tmp_path, "release", "wards.parquet", *words)
    assert done.returncode == 0, done.stderr
    fit = ["fit", "linear", "w.sketch", "--target", "y", "--reference"]
    done = called(tmp_path, *fit, "common", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["reference"] == {"ward": "b"}
    assert [row["feature"] for row in found["rows"]][:2] == ["intercept", "ward=a"]
    for row, truth in zip(found["rows"], (1, 2), strict=False):
        assert abs(row["coefficient"] - truth) < 4 * row["coefficient_stderr"] + 0.05
    done = called(tmp_path, *fit, "ward=a")
    assert "Coefficients of labels are against ward=a." in done.stdout
    assert "│ ward=a" not in done.stdout
    done = called(tmp_path, *fit, "ward")
    assert done.returncode == 1
    assert "--reference must be common or COLUMN=LABEL, got 'ward' instead" in done.stderr


def test_components_of_transformed_columns_are_in_units(tmp_path: Path) -> None:
    sketch = Path(__file__).parents[2] / "pinned" / "mixed-general-delta.sketch"
    words = ("fit", "gmm", str(sketch), "--k", "2", "--columns", "age,income", "--json", "--save", "m.model")
    done = called(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    table = dps.load_model(tmp_path / "m.model").to_table()
    for row, (_, weight, *centre) in zip(json.loads(done.stdout)["rows"], table.rows, strict=True):
        assert row["weight"] == pytest.approx(weight.value)
        for name, answer in zip(("age", "income"), centre, strict=True):
            assert [row[name], row[f"{name}_stderr"]] == pytest.approx([answer.value, answer.stderr])
        assert {"age_var", "asinh(income)_var"} <= set(row)


def test_the_width_of_clusters_is_printed_for_a_recipe(folder: Path) -> None:
    done = called(folder, "fit", "width", "planted.sketch", "--k", "2")
    assert done.returncode == 0, done.stderr
    width = dps.suggest_width(dps.open(folder / "planted.sketch"), 2)
    assert float(done.stdout) == width
    assert f'kernel = "gaussian" and width = {width:g}' in " ".join(done.stderr.split())
    dps.Fourier(size=10, kernel="gaussian", width=width)
