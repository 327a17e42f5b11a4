"""The arithmetic of the studies of wide tables and of peers: no figure comes from a lost label or a wrong mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.truth import peers, wide
from benchmarks.truth.questions import Condition
from benchmarks.truth.tables import Table, simulated
from benchmarks.truth.trees import score

import dpsketch as dps

ROWS = 600


@pytest.fixture(scope="module")
def table() -> Table:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.uniform(0, 10, ROWS), "member": rng.random(ROWS) < 0.4})
    frame["level"] = pd.Series(rng.choice([1, 2, None], ROWS), dtype="Int64")
    frame["ward"] = rng.choice(["a", "b", "other"], ROWS)
    frame["label"] = (frame.x + 3 * frame.member + (frame.ward == "a") > 7).astype(int)
    columns = {
        "x": {"kind": "number", "lower": 0, "upper": 10},
        "member": {"kind": "boolean"},
        "level": {"kind": "category", "values": [1, 2]},
        "ward": {"kind": "category", "values": ["a", "b"]},
        "label": {"kind": "category", "values": [0, 1]},
    }
    schema = dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": columns})
    return Table("htru2", schema, frame.iloc[:400], frame.iloc[400:].reset_index(drop=True))  # whose target is label


def test_what_peers_get_and_give_is_what_the_table_holds(table: Table) -> None:
    columns, domain = peers.encoded(table)
    assert domain["x"] == {"lower": 0.0, "upper": 10.0}
    assert domain["level"] == {"categories": [0, 1, 2, 3]}
    back = peers.decoded(table, {name: cells.astype(float) for name, cells in columns.items()})
    for name in table.train:
        same = back[name].astype("string").fillna("?") == table.train[name].astype("string").fillna("?")
        assert same.all() or name == "x", name
    assert np.allclose(back.x, table.train.x)
    lost = {name: np.full(3, np.nan) for name in columns}
    assert peers.decoded(table, lost)["ward"].isna().all()


def test_trees_learn_from_good_rows_and_not_from_shuffled_ones(table: Table) -> None:
    columns, _ = peers.encoded(table)
    rows = peers.decoded(table, columns)
    assert score(table, rows) == pytest.approx(score(table, table.train), abs=0.02)
    assert score(table, rows) > 0.95
    shuffled = rows.assign(label=np.random.default_rng(0).permutation(rows.label.to_numpy()))
    assert score(table, shuffled) < 0.8
    assert score(table, rows.assign(label=1)) == 0.5


def test_a_run_that_does_not_finish_is_not_averaged() -> None:
    done = peers.Result(0.01, 0.9, 5.0)
    stopped = "not finished in an hour"
    assert peers._mean([done, stopped]) == stopped
    assert peers._mean([done, peers.Result(0.03, 0.7, 7.0)]) == peers.Result(0.02, 0.8, 6.0).text


def test_runs_of_peers_are_kept_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "KEPT", tmp_path / "peers.jsonl")
    assert peers.kept() == {}

    def run(method: str, table: str = "adult") -> peers.Run:
        return peers.Run(table, 1.0, 1e-6, method, 0, 5, 200)

    results: dict[peers.Run, peers.Result | str] = {
        run("dpsketch"): peers.Result(0.01, 0.8, 1.0),
        run("MST 32"): peers.Result(0.02, 0.9, 9.0),
        run("AIM 32"): "not finished in an hour",
        run("dpsketch", "fare"): peers.Result(0.03, 0.8, 1.0),
        run("MST 128", "fare"): peers.Result(0.02, 0.7, 9.0),
        run("dpsketch", "kdd"): peers.Result(0.03, 0.8, 1.0),
        run("AIM 32", "kdd"): "not finished in an hour",
    }
    peers.keep(results)
    assert peers.kept() == results
    printed = list(peers.lines(results))
    assert sum("dpsketch" in line for line in printed) == 3
    assert any("not finished" in line for line in printed)
    first = [line for line in printed if line.startswith("ε=1,")]
    assert [line.split(" on ")[1] for line in first] == ["1 of 2 tables, SHORT", "1 of 2 tables, SHORT"]


def test_independence_multiplies_exact_shares() -> None:
    halves = [Condition(f"c{at}", np.arange(8) >> at & 1 == 1) for at in range(3)]
    asked = wide._asked(halves)
    assert (asked.truth, asked.independent) == (1 / 8, 1 / 8)
    same = wide._asked([halves[0]] * 3)
    assert (same.truth, same.independent) == (1 / 2, 1 / 8)
    assert same.sql == "select count(*) as v from sketch where c0 and c0 and c0"


def test_goals_are_judged_by_means_and_their_spread() -> None:
    def found(error: float, table: str = "wide100", seconds: float = 1.0) -> wide.Found:
        return wide.Found(table, (1.0, 1e-6), (error,), (0.01,), ((True, True),), seconds, 1 << 30)

    def verdict(*errors: float, **changes: float) -> str:
        return list(wide.lines([found(error, **changes) for error in errors]))[1].split("%  ")[-1]

    assert "goal 0.002 PASS" in verdict(0.0019, 0.0018)
    assert "goal 0.002 SHORT" in verdict(0.0031, 0.0032)
    assert "above independence" in verdict(0.02, 0.021)
    assert "fit SHORT" in verdict(0.001, 0.001, seconds=100.0)


def test_simulated_columns_follow_hidden_causes() -> None:
    frame, facts = simulated(8, rows=5000)
    assert [facts[f"c{at}"]["kind"] for at in range(4)] == ["number", "number", "category", "boolean"]
    strongest = np.abs(np.corrcoef(frame[["c0", "c4"]].to_numpy(float).T)[0, 1])
    ranks = frame[["c0", "c1", "c3", "c4", "c5", "c7"]].astype(float).corr("spearman").to_numpy()
    assert np.abs(ranks - np.eye(6)).max() > 0.2
    assert strongest < 0.9
