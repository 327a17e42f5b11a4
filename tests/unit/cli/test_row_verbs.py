"""`dpsketch fit … --save`, `score`, `show` and `sample` as a person uses them, with real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from command_line import called
from planted_clusters import COLUMNS, ROWS, SCHEMA, planted


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("score")
    table = pa.table(dict(planted()))
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Fourier(("a", "c"), size=32, radii=(2, 40)), 0.9)])
    raw = dps.accumulate(table, SCHEMA, recipe)
    dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "planted").save(folder / "planted.sketch")
    pq.write_table(pa.table(dict(planted(2))), folder / "new.parquet", row_group_size=3000)
    (folder / "few.csv").write_text("c,a,note\n10,-4,first\n20,4,second\n,,third\n")
    (folder / "none.csv").write_text("a,c\n")
    done = called(folder, "fit", "kmeans", "planted.sketch", "--k", "2", "--save", "two.model")
    assert done.returncode == 0, done.stderr
    assert "two.model: the model; score rows with it" in done.stderr
    return folder


def test_every_row_gets_its_cluster_in_order(folder: Path) -> None:
    done = called(folder, "score", "two.model", "new.parquet", "-o", "scores.parquet")
    assert done.returncode == 0, done.stderr
    found = pq.read_table(folder / "scores.parquet")
    assert found.column_names == ["cluster", "distance"]
    assert len(found) == ROWS
    labels = planted(2)["label"]
    assert np.mean((found["cluster"].to_numpy() == 1) == (labels == "y")) > 0.99
    model = dps.load_model(folder / "two.model")
    assert found["cluster"].to_numpy() == pytest.approx(model.predict(pq.read_table(folder / "new.parquet")))
    again = called(folder, "score", "two.model", "new.parquet", "-o", "scores.parquet")
    assert again.returncode == 1
    assert "scores.parquet exists already" in again.stderr
    assert called(folder, "score", "two.model", "new.parquet", "-o", "scores.parquet", "--force").returncode == 0


def test_text_in_text_out_and_no_rows_at_all(folder: Path) -> None:
    assert called(folder, "score", "two.model", "few.csv", "-o", "few_scores.csv").returncode == 0
    found = pyarrow.csv.read_csv(folder / "few_scores.csv")
    assert found["cluster"].to_pylist()[:2] == [0, 1]
    assert len(found) == 3
    assert called(folder, "score", "two.model", "none.csv", "-o", "none_scores.csv").returncode == 0
    assert (folder / "none_scores.csv").read_text().split() == ['"cluster","distance"']


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["two.model", "few.csv", "-o", "x.xlsx"], "x.xlsx is neither .parquet nor .csv"),
        (["two.model", "few.csv", "-o", "few.csv", "--force"], "few.csv is another file of this command"),
        (["two.model", "gone.csv", "-o", "x.csv"], "there is no file gone.csv"),
        (["planted.sketch", "few.csv", "-o", "x.csv"], "planted.sketch is a sketch, not a model"),
        (["few.csv", "few.csv", "-o", "x.csv"], "few.csv is damaged or not a model file"),
        (["two.model", "lacking.csv", "-o", "x.csv"], "lacking.csv has no column 'c'"),
    ],
)
def test_what_cannot_be_scored_leaves_nothing_behind(folder: Path, words: list[str], message: str) -> None:
    (folder / "lacking.csv").write_text("a,b\n1,2\n")
    done = called(folder, "score", *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "x.csv").exists()
    assert not list(folder.glob(".*.tmp"))


def test_a_model_shows_the_statement_of_its_release(folder: Path) -> None:
    done = called(folder, "show", "two.model")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A KMeans, which follows from a release with this statement:\n\nPRIVACY STATEMENT")
    assert "epsilon = 1:" in done.stdout
    assert '"model": "KMeans"' in called(folder, "show", "two.model", "--json").stdout
    refused = called(folder, "ask", "two.model", "select count(*) from sketch")
    assert "two.model is a model, not a sketch" in refused.stderr


def test_a_model_is_not_saved_over_a_file(folder: Path) -> None:
    for path in ("two.model", "planted.sketch"):
        done = called(folder, "fit", "kmeans", "planted.sketch", "--k", "2", "--save", path)
        assert done.returncode == 1
        assert path in done.stderr


def test_every_saved_model_scores(tmp_path: Path) -> None:
    """By its own methods, one column each."""
    facts = {"privacy": {"rows": ROWS}, "columns": {name: COLUMNS[name] for name in ("c", "label")}}
    recipe = dps.Recipe([dps.Part(dps.Marginals(), 0.5), dps.Part(dps.Pairs(pool=True), 0.5)])
    raw = dps.accumulate(pa.table(dict(planted())), dps.Schema.from_dict(facts), recipe)
    view = dps.View(dps.release(raw, dps.Budget(2.0), dps.Ledger("sqlite://"), "planted"))
    rows = {"c": [10.0, 20.0], "label": ["x", "y"]}
    logistic = dps.LogisticRegression("label").fit(view, uncertainty=False)
    assert logistic.input_columns == ("c",)
    found = logistic.scores(rows)
    assert found["prediction"].tolist() == ["x", "y"]
    assert list(found) == ["prediction", "probability_x", "probability_y"]
    linear = dps.LinearRegression("c").fit(view, uncertainty=False)
    assert linear.scores(rows)["prediction"] == pytest.approx([10, 20], abs=1.5)
