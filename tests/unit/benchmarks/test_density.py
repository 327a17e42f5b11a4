"""Definitions of the density study: exact sums, splits, baselines and lines."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.density import baselines, goals, kde, kernel_sums, one_release, ours, runs, tables
from benchmarks.density.regression import scaled_error, two_releases

import dpsketch as dps
from dpsketch.privacy.composition import plan_cost


def test_a_line_passes_by_its_mean() -> None:
    assert goals.at_most("a", [0.1, 0.3], 0.2) == "a 0.2000 (0.3000), goal ≤ 0.2: PASS"
    assert goals.at_most("a", [0.001, 0.0012], 0.001) == "a 0.0011 (0.0012), goal ≤ 0.001: SHORT"
    assert goals.at_least("a", [0.9, 0.8], 0.9) == "a 0.8500 (0.8000), goal ≥ 0.9: SHORT"
    assert goals.at_least("a", [0.9, 0.8]) == "a 0.8500 (0.8000)"


def test_two_releases_cost_no_more_than_one() -> None:
    assert [budget.epsilon for budget in two_releases(1.0, 0.0)] == [0.1, 0.9]
    cost = float(plan_cost(two_releases(1.0, 1e-6), Fraction(1, 10**6)))
    assert 0.999 < cost <= 1


def test_one_release_is_asked_about_few_columns_and_all() -> None:
    columns = tuple("abcdef")
    chosen = one_release._column_sets(columns, 1)
    assert [len(each) for each in chosen] == [1, 2, 3, 5, 6]
    assert chosen == one_release._column_sets(columns, 1)
    assert chosen[-1] == columns


def test_exact_sums_are_exact_and_kept(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_sums, "CACHE", tmp_path / "cache")
    points = np.vstack([rng.normal(size=(3000, 2)) * 4, np.zeros((500, 2))])
    queries = np.vstack([rng.normal(size=(70, 2)) * 4, [[1e5, 1e5]]])
    found = kernel_sums.exact_sums(points, queries, 1.5)
    distances = np.sqrt(((queries[:, None] - points) ** 2).sum(2))
    exact = dps.Euclidean(1.5).kernel(distances).sum(1)
    assert found == pytest.approx(exact, rel=1e-5)  # the last query is far from all
    (kept,) = (tmp_path / "cache").iterdir()
    np.save(kept, np.ones(71))
    assert kernel_sums.exact_sums(points, queries, 1.5) == pytest.approx(1.0)
    assert kernel_sums.exact_sums(points, queries, 1.6)[0] != 1.0


def test_errors_of_salaries_are_in_l2_and_others_relative() -> None:
    exact, found = np.array([1.0, 100.0]), np.array([2.0, 100.0])
    assert kde.error_of("skin", found, exact) == pytest.approx(0.5)
    assert kde.error_of("sf_salaries", found, exact) == pytest.approx(0.01, rel=0.01)


@pytest.mark.usefixtures("dataset_path")
def test_no_colour_is_in_both_parts_of_skin() -> None:
    split = tables.classification("skin", 3)
    colours = [
        set(zip(*(part[name].to_pylist() for name in split.columns), strict=True)) for part in (split.train, split.test)
    ]
    assert not colours[0] & colours[1]
    assert len(colours[1]) == pytest.approx(0.2 * sum(map(len, colours)), rel=0.01)
    assert split.columns == ("blue", "green", "red")


@pytest.mark.usefixtures("dataset_path")
def test_official_splits_and_held_out_columns() -> None:
    occupancy = tables.classification("occupancy", 0)
    assert (len(occupancy.train), len(occupancy.test)) == (8143, 12417)
    naval = tables.regression("naval", 0)
    assert "gt_turbine_decay" not in naval.columns  # another target
    gas = tables.regression("gas", 0)
    assert "concentration_ppmv" not in gas.columns
    assert len(gas.columns) == 128
    assert len(gas.test) == round(0.2 * 6697)


@pytest.mark.usefixtures("dataset_path")
def test_anomalies_are_not_trained_on() -> None:
    found = tables.anomalies("htru2", 1)
    assert found.anomalous.sum() == 1639
    assert len(found.train) == (17898 - 1639) // 2
    assert len(found.train) + len(found.test) == 17898
    assert "label" not in found.columns


def test_repeated_rows_count_once_in_order() -> None:
    table = pa.table({"a": [3, 1, 3, 2, 1], "b": ["x", "y", "x", "x", "z"]})
    assert tables.distinct(table).to_pydict() == {"a": [3, 1, 2, 1], "b": ["x", "y", "x", "z"]}
    assert tables.distinct(table, ["a"]).to_pydict() == {"a": [3, 1, 2], "b": ["x", "y", "x"]}


def test_declared_rows_are_round() -> None:
    assert [tables.public_rows(rows) for rows in (16512, 981, 7, 243057)] == [17000, 980, 7, 240000]


def line(rng: np.random.Generator, rows: int = 4000) -> tuple[Any, Any]:
    features = rng.random((rows, 3))
    return features, 0.6 * (2 * features[:, 0] - 1) - 0.3 * (2 * features[:, 2] - 1) + rng.normal(size=rows) * 0.01


def test_private_regressions_find_the_line_with_a_large_budget_only(rng: np.random.Generator) -> None:
    features, target = line(rng)
    test, truth = line(rng)

    def error(found: Any) -> float:
        return float(np.mean((found - truth) ** 2) / np.var(truth))

    assert error(baselines.least_squares(features, target, test)) < 0.01
    for delta in (0.0, 1e-6):
        noisy = [
            error(baselines.noisy_least_squares(features, target[:, None], test, e, delta, 1, False)[:, 0])
            for e in (100.0, 0.01)
        ]
        assert noisy[0] < 0.05
        assert noisy[1] > 0.3
    assert error(baselines.ada_ssp(features, target, test, 100.0, 1e-6, 1)) < 0.05
    assert error(baselines.ada_ssp(features, target, test, 0.01, 1e-6, 1)) > 0.3


def test_the_noise_of_baselines_covers_their_sensitivity(rng: np.random.Generator) -> None:
    """The most that a row with numbers in [-1, 1] adds to what is noised, by brute force over corners."""
    width = 4
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * width)).reshape(width, -1).T
    triangle = np.triu_indices(width)
    added = np.array([np.outer(x, x)[triangle] for x in corners])
    assert np.abs(added).sum(1).max() == width * (width + 1) / 2
    assert (added**2).sum(1).max() == width * (width + 1) / 2
    assert (added**2).sum(1).max() <= width**2  # AdaSSP's bound


def test_histograms_draw_the_rows_they_were_given(rng: np.random.Generator) -> None:
    first = rng.integers(0, 32, 50_000)
    real = np.stack([first, np.where(rng.random(50_000) < 0.9, first, rng.integers(0, 32, 50_000))], axis=1)
    close = baselines.noisy_histogram(real, 10.0, 0.0, 50_000, rng)
    apart = baselines.independent_marginals(real, 10.0, 0.0, 50_000, rng)
    assert baselines.two_way_distance(real, real) == 0
    assert baselines.two_way_distance(real, close) < 0.1
    assert baselines.two_way_distance(real, apart) > 0.7


def test_the_simplex_keeps_the_total() -> None:
    assert baselines.on_simplex(np.array([5.0, 3.0, -2.0])) == pytest.approx([4 / 6, 2 / 6, 0])
    assert baselines.on_simplex(np.array([-5.0, -3.0])).sum() == pytest.approx(1)


def test_missing_models_are_told_and_do_not_stop_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def once(run: int) -> tuple[float, ours.Scored]:
        ours.needs("CrystalBall")
        raise AssertionError

    assert runs.attempted("ours", said.append, once, 3) == []
    assert said == ["  ours: MISSING: dps.CrystalBall is not in this version of the library"]


def test_our_hashed_sums_are_near_the_exact_ones(rng: np.random.Generator, seeded: None) -> None:
    points = rng.normal(size=(5000, 2))
    columns = {name: {"kind": "number", "lower": -5, "upper": 5} for name in "ab"}
    schema = dps.Schema.from_dict({"privacy": {"rows": 5000}, "columns": columns})
    passes = ours.Passes(pa.table({"a": points[:, 0], "b": points[:, 1]}), schema)
    queries = pa.table({"a": [0.0, 1.0], "b": [0.0, -1.0]})
    scored = ours.hashed_sums(passes, schema, dps.Budget(10.0), 1.0, False, queries, 400)
    away = np.sqrt(((points - np.array([[[0.0, 0.0]], [[1.0, -1.0]]])) ** 2).sum(2))
    exact = dps.Euclidean(1.0).kernel(away).sum(1)
    assert kde.error_of("skin", scored.values, exact) < 0.1
    assert "race of 400000 sums" in scored.how
    assert set(scored.seconds) == {"pass", "release", "query"}


@pytest.mark.usefixtures("dataset_path")
def test_errors_of_predictions_in_units_and_scaled_agree() -> None:
    split = tables.regression("airfoil", 0)
    known = tables.unit_features(split.schema, [split.target], split.test)[:, 0]
    assert scaled_error(split, 2 * known - 1) == pytest.approx(0, abs=1e-6)
    assert scaled_error(split, np.full(len(known), 2 * known.mean() - 1)) == pytest.approx(1, abs=0.01)
    assert scaled_error(split, np.full(len(known), 1e9)) == scaled_error(split, np.ones(len(known)))
