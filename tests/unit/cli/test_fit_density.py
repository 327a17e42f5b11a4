"""`dpsketch release --for …`, the verbs of `dpsketch fit` for densities and predictions, and `score`: real files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import dpsketch as dps
from dpsketch.cli.app import app
from dpsketch.errors import FileError, QueryError, RecipeError
from planted_clusters import CENTRES, COLUMNS, ROWS, SHARES, planted

SCHEMA = f"[privacy]\nrows = {ROWS}\n" + "".join(
    f"[columns.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())
    for name, facts in COLUMNS.items()
)
PURPOSES = {
    "density": ["--for", "density:0.1", "--columns", "c"],
    "plane": ["--for", "density", "--columns", "a, c"],
    "anomaly": ["--for", "anomaly", "--columns", "a,b,label"],
    "classes": ["--for", "classify:label"],
    "linear": ["--for", "linear:c", "--columns", "a,b"],
    "hashed": ["--for", "hashed_linear:c", "--columns", "a,b"],
    "hashed_classes": ["--for", "hashed_linear:label", "--columns", "a,b,c"],
    "rows": ["--for", "synthetic", "--columns", "a"],
    "pca": ["--for", "pca:1"],
    "bounds": ["--for", "bounds"],
    "general": [],
}


def invoke(*words: Any) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: Any) -> Result:
    found = invoke(*words)
    assert found.exit_code == 0, (found.exception, found.output)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("density")
    pq.write_table(pa.table(dict(planted())), folder / "planted.parquet")
    new = pa.table(dict(planted(2))).slice(0, 500)
    pq.write_table(new, folder / "new.parquet")
    pyarrow.csv.write_csv(new, folder / "new.csv")
    (folder / "planted.toml").write_text(SCHEMA)
    for name, words in PURPOSES.items():
        out = folder / f"{name}.sketch"
        spend = ["--epsilon", "2", "--ledger", folder / "l.db", "--create-ledger", "--dataset", name, "-o", out]
        dps.Ledger(folder / "l.db").grant(name, dps.Budget(2.0))
        done("release", folder / "planted.parquet", "--schema", folder / "planted.toml", *words, *spend)
    return folder


def scores(folder: Path, model: str, table: str = "new.parquet") -> pa.Table:
    out = folder / f"{model}.{table}.scores.parquet"
    done("score", folder / model, folder / table, "-o", out)
    return pq.read_table(out)


def test_a_density_is_fitted_drawn_and_asked(folder: Path) -> None:
    words = ["--save", folder / "c.model", "--bandwidth", "0.1", "--plot", folder / "c.png"]
    found = done("fit", "density", folder / "density.sketch", *words, "--format", "json")
    assert json.loads(found.stdout)["columns"] == ["c"]
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")
    table = scores(folder, "c.model")
    assert table.column_names == ["density", "density_stderr", "log_density"]
    exact = dps.Euclidean(4.0).kernel(np.abs(np.subtract.outer(planted(2)["c"][:20], planted()["c"])))
    assert np.abs(table["density"].to_numpy()[:20] - exact.mean(1)).max() < 0.02
    assert table == scores(folder, "c.model", "new.csv")
    with pytest.raises(FileError, match=r"c\.model exists already"):
        raise invoke("fit", "density", folder / "density.sketch", *words[:2]).exception  # type: ignore[misc]


def test_other_kernels_and_two_columns(folder: Path) -> None:
    words = ["--kernel", "gaussian", "--bandwidth", "a=2, c=4", "--columns", "c,a"]
    found = done("fit", "density", folder / "plane.sketch", *words, "--plot", folder / "plane.png")
    assert "gaussian" in found.stdout
    assert (folder / "plane.png").stat().st_size > 5000
    wrong = invoke("fit", "density", folder / "plane.sketch", "--bandwidth", "wide")
    assert "--bandwidth must be a number" in str(wrong.exception)


def test_modes_are_the_planted_centres(folder: Path) -> None:
    found = done("fit", "modes", folder / "plane.sketch", "--k", "2", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert list(rows[0]) == ["a", "c", "density", "density_stderr"]
    assert [float(row["a"]) for row in rows] == pytest.approx([-4, 4], abs=1)
    assert "±" in done("fit", "modes", folder / "plane.sketch", "--method", "cells").stdout


def test_modes_and_anomalies_take_a_bandwidth(folder: Path) -> None:
    def densest(*words: str) -> float:
        found = done("fit", "modes", folder / "density.sketch", *words, "--format", "json")
        return float(json.loads(found.stdout)["rows"][0]["density"])

    assert densest() == densest("--bandwidth", "0.1")  # the release is for this one
    assert densest() == densest("--bandwidth", "c=4")
    assert densest("--bandwidth", "0.3") > densest("--bandwidth", "0.1") > densest("--bandwidth", "0.05")

    def threshold(*words: str) -> float:
        found = done("fit", "anomaly", folder / "density.sketch", *words, "--format", "json")
        return float(json.loads(found.stdout)["rows"][0]["threshold"])

    assert threshold() == threshold("--bandwidth", "0.1") < threshold("--bandwidth", "0.3")


def test_anomalies_are_flagged(folder: Path) -> None:
    found = done("fit", "anomaly", folder / "anomaly.sketch", "--contamination", "0.05", "--save", folder / "a.model")
    assert "threshold" in found.stdout
    table = scores(folder, "a.model")
    assert table.column_names == ["score", "anomaly"]
    assert table["anomaly"].to_numpy().mean() < 0.2
    assert table == scores(folder, "a.model", "new.csv")
    (folder / "odd.csv").write_text("a,b,c,label\n9.5,-9.5,39,x\n")
    assert scores(folder, "a.model", "odd.csv")["anomaly"].to_pylist() == [True]


def test_classes_are_told(folder: Path) -> None:
    words = ["--target", "label", "--save", folder / "l.model", "--format", "json"]
    found = json.loads(done("fit", "classifier", folder / "classes.sketch", *words).stdout)
    assert [row["class"] for row in found["rows"]] == ["x", "y"]
    assert found["rows"][0]["prior"] == pytest.approx(0.65, abs=0.02)
    table = scores(folder, "l.model")
    names = ["prediction", "probability_x", "probability_y"]
    names += [f"log_odds_{label}{end}" for label in "xy" for end in ("", "_stderr")]
    assert table.column_names == names
    assert np.mean(table["prediction"].to_numpy() == planted(2)["label"][:500]) > 0.98
    told = invoke("score", folder / "l.model", folder / "new.csv", "-o", folder / "l.csv").output
    assert "not calibrated" in told


def test_a_line_is_fitted(folder: Path) -> None:
    words = ["--target", "c", "--save", folder / "line.model", "--format", "csv"]
    found = done("fit", "linear", folder / "linear.sketch", *words).stdout
    rows = list(csv.DictReader(io.StringIO(found)))
    assert [row["feature"] for row in rows] == ["intercept", "a", "b"]
    values = [float(row["coefficient"]) for row in rows]
    assert values[0] + CENTRES[:, :2] @ values[1:] == pytest.approx(CENTRES[:, 2], abs=1)
    assert all(float(row["coefficient_stderr"]) > 0 for row in rows)
    assert scores(folder, "line.model").column_names == ["prediction"]
    assert "second moments" in done("fit", "linear", folder / "linear.sketch", "--target", "c").stdout


def test_linear_models_are_fitted_to_hashed_counters(folder: Path) -> None:
    words = ["--target", "label", "--save", folder / "signs.model"]
    told = done("fit", "hashed_linear", folder / "hashed_classes.sketch", *words).output
    assert "positive for label = y by hashed counters; errors of the coefficients are unknown" in told
    assert np.mean(np.asarray(scores(folder, "signs.model")["prediction"]) == planted(2)["label"][:500]) > 0.8
    found = json.loads(done("fit", "hashed_linear", folder / "hashed.sketch", "--target", "c", "--json").stdout)
    assert found["loss"] == "squared"
    assert [row["feature"] for row in found["rows"]] == ["intercept", "a", "b"]
    missing = invoke("fit", "hashed_linear", folder / "linear.sketch", "--target", "c").exception
    assert isinstance(missing, QueryError)
    assert "holds no hashed counters" in missing.fact


def test_bounds_are_tightened_for_a_second_release(folder: Path) -> None:
    tight = folder / "tight.toml"
    told = done("tighten", folder / "bounds.sketch", "-o", tight, "--share", "0.05", "--columns", "a, c").output
    assert "tighter bounds of 2 of" in told
    old, new = dps.Schema.load(folder / "planted.toml"), dps.Schema.load(tight)
    assert new.column("b") == old.column("b")
    low, high = (float(np.quantile(planted()["a"], each)) for each in (0.05, 0.95))
    assert new.column("a").to_dict()["lower"] == pytest.approx(low, abs=0.5)
    assert new.column("a").to_dict()["upper"] == pytest.approx(high, abs=0.5)
    dps.Ledger(folder / "l.db").grant("bounds", dps.Budget(3.0))
    spend = [
        "--epsilon",
        "1",
        "--ledger",
        folder / "l.db",
        "--create-ledger",
        "--dataset",
        "bounds",
        "-o",
        folder / "tight.sketch",
    ]
    done("release", folder / "planted.parquet", "--schema", tight, "--for", "linear:c", *spend)
    assert "Bounds were tightened" in done("show", folder / "tight.sketch").stdout
    again = invoke("tighten", folder / "bounds.sketch", "-o", tight)
    assert "exists already" in str(again.exception)
    assert "quantiles of no column" in str(invoke("tighten", folder / "linear.sketch", "-o", folder / "n").exception)
    assert not (folder / "n").exists()


def test_a_grid_scores_and_gives_rows(folder: Path) -> None:
    dps.save_model(dps.GridDensity().fit(dps.open(folder / "rows.sketch")), folder / "grid.model")
    table = scores(folder, "grid.model")
    assert table.column_names == ["density", "density_stderr"]
    assert table == scores(folder, "grid.model", "new.csv")
    done("sample", folder / "rows.sketch", "-n", "20", "-o", folder / "drawn.csv")
    assert done("fit", "pca", folder / "pca.sketch", "--k", "1", "--format", "csv").stdout


def test_densities_and_rows_of_a_grid(folder: Path) -> None:
    """A release with a grid was refused: "this release holds no density"."""
    sketch = folder / "rows.sketch"
    told = done("fit", "density", sketch, "--save", folder / "cells.model").stdout
    assert "from coarse to fine" in told
    assert scores(folder, "cells.model").column_names == ["density", "density_stderr"]
    words = ["--method", "heap", "--heavy", "50", "--format", "json"]
    [row] = json.loads(done("fit", "density", sketch, *words).stdout)["rows"]
    assert 0 < row["captured"] <= 1
    assert row["captured_stderr"] > 0
    refused = invoke("fit", "density", sketch, "--method", "heap", "--bandwidth", "0.1").exception
    assert "--bandwidth: not of the density of a grid, which is constant inside its cells" in str(refused)
    assert "rows of the joint" in done("fit", "density", sketch, "--bandwidth", "0.1").stdout
    assert "holds no grid" in str(invoke("fit", "density", folder / "plane.sketch", "--method", "heap").exception)
    assert "±" in done("fit", "modes", sketch).stdout
    drawn = {}
    for name, more in {"auto": [], "cells": [], "heap": ["--heavy", "3"]}.items():
        path = folder / f"{name}.csv"
        done("sample", sketch, "-n", "200", "--method", name, *more, "-o", path)
        drawn[name] = path.read_text()
    assert drawn["auto"] == drawn["cells"] != drawn["heap"]
    assert "heavy is the number" in str(
        invoke("sample", sketch, "-n", "2", "--heavy", "3", "-o", folder / "n.csv").exception
    )


ONE_RELEASE = {
    "density": [],
    "modes": ["--k", "2"],
    "anomaly": [],
    "classifier": ["--target", "label"],
    "linear": ["--target", "c"],
    "logistic": ["--target", "label"],
    "kmeans": ["--k", "2"],
    "gmm": ["--k", "2"],
    "pca": ["--k", "2"],
}


AS_JSON = ("modes", "linear", "kmeans", "pca")  # quick ones of every module of verbs
BETTER = {  # what is said about a release for the purpose
    "density": "its error is predicted to be",
    "anomaly": "--for anomaly",
    "classifier": "--for classify:label",
    "gmm": "--clusters K",
}


@pytest.mark.parametrize("verb", ONE_RELEASE)
def test_one_general_release_is_enough_for_every_verb(folder: Path, verb: str) -> None:
    """The README's list of tasks took a release each for densities, modes, anomaly scores and classifiers."""
    words = ["fit", verb, folder / "general.sketch", *ONE_RELEASE[verb]]
    saved = [] if verb == "modes" else ["--save", folder / f"one_{verb}.model", "--force"]
    shown = done(*words, *saved)
    assert "±" in shown.stdout
    assert BETTER.get(verb, "") in shown.stderr.replace("\n", " ")
    if verb in AS_JSON:
        assert json.loads(done(*words, "--format", "json").stdout)["rows"]
    if saved:
        assert len(scores(folder, f"one_{verb}.model")) == 500


def test_no_rows_at_all_are_scored(folder: Path) -> None:
    (folder / "none.csv").write_text("a,b,c,label\n")
    view = dps.open(folder / "anomaly.sketch")
    dps.save_model(dps.KernelDensity().fit(view), folder / "hashed.model")
    dps.save_model(dps.KernelDensity().fit(dps.open(folder / "plane.sketch")), folder / "table.model")
    for model in ("hashed.model", "table.model"):
        assert len(scores(folder, model, "none.csv")) == 0


def test_log_odds_are_fitted(folder: Path) -> None:
    """Even odds lie where the densities of the two clusters cross, times their shares; a penalty shrinks the slope."""
    words = ["--target", "label", "--columns", "c", "--save", folder / "odds.model"]
    found = done("fit", "logistic", folder / "general.sketch", *words, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(found)))
    assert [(row["class"], row["feature"]) for row in rows] == [("y", "intercept"), ("y", "c")]
    intercept, slope = (float(row["coefficient"]) for row in rows)
    assert 0.5 < slope < 3  # without noise and penalty 2.5
    even = CENTRES[:, 2].mean() - np.log(SHARES[1] / SHARES[0]) / 2.5
    assert -intercept / slope == pytest.approx(even, abs=0.7)
    assert all(float(row["coefficient_stderr"]) > 0 for row in rows)
    table = scores(folder, "odds.model")
    assert table.column_names == ["prediction", "probability_x", "probability_y"]
    assert np.mean(table["prediction"].to_numpy() == planted(2)["label"][:500]) > 0.97
    told = done("fit", "logistic", folder / "general.sketch", "--target", "label", "--columns", "c").stdout
    assert "Log odds of label = y rather than x" in told
    as_json = json.loads(done("fit", "logistic", folder / "general.sketch", *words[:4], "--format", "json").stdout)
    assert as_json["classes"] == ["x", "y"]
    assert "A LogisticRegression" in done("show", folder / "odds.model").stdout


def test_a_line_is_fitted_to_a_general_release(folder: Path) -> None:
    found = done(
        "fit", "linear", folder / "general.sketch", "--target", "c", "--columns", "a", "--format", "json"
    ).stdout
    told = json.loads(found)
    assert told["how"] == "joint distribution"
    intercept, slope = (row["coefficient"] for row in told["rows"])
    assert intercept + slope * CENTRES[:, 0] == pytest.approx(CENTRES[:, 2], abs=1)


def test_a_class_is_refused_where_numbers_are_asked_for(folder: Path) -> None:
    wrong = invoke("fit", "logistic", folder / "general.sketch", "--target", "a")
    assert "is a number, not a class" in str(wrong.exception)
    wrong = invoke("fit", "logistic", folder / "linear.sketch", "--target", "label")
    assert isinstance(wrong.exception, QueryError)


def test_nodes_of_an_edge_list_get_jaccard_densities(folder: Path) -> None:
    """Nodes below 50 have one list, all others another."""
    source = np.repeat(np.arange(200), 4)
    target = np.where(source < 50, 0, 10) + np.tile(np.arange(4), 200)
    pq.write_table(pa.table({"from": source, "to": target}), folder / "edges.parquet")
    words = ["--nodes", "200", "--source", "from", "--target", "to", "--width", "500", "--repetitions", "50"]
    spend = [
        "--epsilon",
        "100",
        "--ledger",
        folder / "l.db",
        "--create-ledger",
        "--dataset",
        "g",
        "-o",
        folder / "graph.sketch",
    ]
    done("graph", folder / "edges.parquet", *words, *spend)
    assert "A person who is in many lists is not protected" in done("show", folder / "graph.sketch").stdout
    assert (
        dps.open(folder / "graph.sketch").count().stderr < 1
    )  # by a count: totals of the counters have an error of 2.2
    done("fit", "density", folder / "graph.sketch", "--save", folder / "graph.model")
    out = folder / "nodes.parquet"
    done("score", folder / "graph.model", folder / "edges.parquet", "--edges", "from,to", "-o", out)
    found = pq.read_table(out).sort_by("node")
    assert found["node"].to_pylist() == list(range(200))
    assert found["density"].to_numpy() == pytest.approx(np.where(np.arange(200) < 50, 0.25, 0.75), abs=0.02)
    lists = pa.table({"neighbours": [[0, 1, 2, 3], [10, 11, 12, 13], [], None]})
    pq.write_table(lists, folder / "lists.parquet")
    assert scores(folder, "graph.model", "lists.parquet")["density"].to_pylist()[:2] == pytest.approx([0.25, 0.75], 0.1)
    done("fit", "linear", folder / "linear.sketch", "--target", "c", "--save", folder / "numbers.model")
    for model, words, message in (
        ("graph.model", ["--edges", "from"], "--edges needs two columns"),
        ("numbers.model", ["--edges", "from,to"], "does not score sets of ids"),
    ):
        wrong = invoke("score", folder / model, folder / "edges.parquet", *words, "-o", folder / "x.csv")
        assert message in str(wrong.exception)


def test_lists_are_released_for_graphs(folder: Path) -> None:
    lists = [[place % 5, place % 7] for place in range(100)]
    pq.write_table(pa.table({"friends": lists}), folder / "friends.parquet")
    (folder / "friends.toml").write_text('[privacy]\nrows = 100\n[columns.friends]\nkind = "set"\nuniverse = 7\n')
    spend = [
        "--epsilon",
        "1",
        "--ledger",
        folder / "l.db",
        "--create-ledger",
        "--dataset",
        "friends",
        "-o",
        folder / "friends.sketch",
    ]
    done("release", folder / "friends.parquet", "--schema", folder / "friends.toml", "--for", "graph", *spend)
    assert "MinHash" in done("fit", "density", folder / "friends.sketch").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--for", "oven"],
            "--for must be one of general, clusters, pca, density, anomaly, synthetic",
        ),
        (["--for", "classify"], "--for classify needs an argument"),
        (["--for", "anomaly:3"], "no argument that fits"),
        (["--for", "density:wide"], "a bandwidth must be a number"),
        (["--for", "pca:many"], "components must be a whole number"),
        (["--for", "graph", "--columns", "a"], "--columns is not for graphs"),
        (["--for", "graph"], "needs one column of sets"),
        (["--for", "density", "--clusters", "3"], "--for is a recipe of its own"),
        (["--for", "density", "--frequencies", "3"], "--for is a recipe of its own"),
        (["--columns", "a"], "--columns is for a task"),
    ],
)
def test_wrong_purposes_are_refused_before_any_spend(folder: Path, words: list[str], message: str) -> None:
    spend = [
        "--epsilon",
        "1",
        "--ledger",
        folder / "wrong.db",
        "--create-ledger",
        "--dataset",
        "w",
        "-o",
        folder / "wrong.sketch",
    ]
    found = invoke("release", folder / "planted.parquet", "--schema", folder / "planted.toml", *words, *spend)
    assert isinstance(found.exception, RecipeError)
    assert message in str(found.exception)
    assert not (folder / "wrong.sketch").exists()


def test_what_cannot_be_drawn_or_fitted(folder: Path) -> None:
    for words, message in (
        (["density", "anomaly.sketch", "--plot", folder / "x.png"], "cannot be drawn"),
        (["density", "pca.sketch"], "this release holds no density"),
        (["classifier", "density.sketch", "--target", "label"], "for each class of 'label', and no joint distribution"),
    ):
        found = invoke("fit", words[0], folder / words[1], *words[2:])
        assert isinstance(found.exception, QueryError)
        assert message in str(found.exception)
    assert not (folder / "x.png").exists()


def test_plans_of_densities_and_rows(folder: Path) -> None:
    words = ["plan", "--schema", folder / "planted.toml", "--epsilon", "0.1,1"]
    assert "table" in done(*words, "--task", "density:0.1", "--columns", "a,c").stdout
    found = json.loads(done(*words, "--task", "density", "--json").stdout)
    assert [plan["epsilon"] for plan in found] == [0.1, 1]
    assert found[0]["race_error"] > found[1]["race_error"]
    assert "grid" in done(*words, "--task", "synthetic", "--columns", "a").stdout
    (first, second) = json.loads(done(*words, "--task", "synthetic", "--json").stdout)
    assert first["error"] > second["error"]
    assert "budget" in done("plan", "--task", "density", "--columns", "2", "--rows", "1000").stdout
    for task, more, message in (
        ("density", ["--k", "2"], "--k is not for the task density"),
        ("synthetic:3", [], "--task synthetic:3 has a colon but no argument that fits"),
    ):
        assert message in str(invoke(*words, "--task", task, *more).exception)
