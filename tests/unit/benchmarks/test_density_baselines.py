"""Baselines of the density study: how far one record moves what they noise, and errors that fall with the budget."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.compressive import phase
from benchmarks.compressive.phase import CLOMPR, OURS, _edges
from benchmarks.density import (
    curves,
    faults,
    function_release,
    kde_baselines,
    kernel_sums,
    linear_baselines,
    privbayes,
    synthetic_models,
)
from benchmarks.density.choice import Settings
from benchmarks.density.function_release import Problem, Release
from benchmarks.density.goals import shown
from benchmarks.density.tables import Split

import dpsketch as dps


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_sums, "CACHE", tmp_path / "cache")


def problem(points: Any, columns: int = 1, width: float = 0.1) -> Problem:
    """Records in the unit box, where queries are random."""
    queries = np.random.default_rng(3).random((40, columns))
    ends = np.zeros(columns), np.ones(columns)
    return Problem(np.asarray(points, np.float64).reshape(-1, columns), queries, *ends, ends, width)


ONE_COLUMN = {
    "bernstein": lambda given: function_release.bernstein(given, 30, 4),
    "fourier": lambda given: function_release.fourier_series(given, 12),
    "trigonometric": lambda given: function_release.trigonometric(given, 8),
    "embedding": lambda given: function_release.mean_embedding(given, np.linspace([0.0], [1.0], 15)),
    "pfda": lambda given: function_release.functional_noise(given, 1e-3, 0.1),
    "histogram": lambda given: function_release.histogram(given, 40),
}


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarser grids of integrals, for time."""
    monkeypatch.setattr(function_release, "FINE", 256)
    monkeypatch.setattr(function_release, "_MIDDLES", (np.arange(256) + 0.5) / 256)
    monkeypatch.setattr(function_release, "PLACES", 60)
    function_release.series_reach.cache_clear()


@pytest.mark.parametrize("name", list(ONE_COLUMN))
def test_no_record_moves_the_numbers_farther_than_the_noise_covers(name: str) -> None:
    """The numbers of a single record, wherever it is, are the difference that it makes."""
    l1, l2, reached = 0.0, 0.0, (0.0, 0.0)
    for place in np.linspace(0, 1, 21):
        release: Release = ONE_COLUMN[name](problem([place]))
        l1, l2 = release.l1 or np.inf, release.l2
        norms = float(np.abs(release.numbers).sum()), float(np.linalg.norm(release.numbers))
        assert norms[0] <= l1 * (1 + 1e-5)
        assert norms[1] <= l2 * (1 + 1e-5)
        reached = max(reached[0], norms[0]), max(reached[1], norms[1])
    assert reached[1] > 0.7 * l2  # the bound is not much too large
    assert name in ("pfda", "embedding") or reached[0] > 0.7 * l1


def test_the_reach_of_a_lattice_covers_records_outside_of_the_box() -> None:
    given = problem(np.zeros(3), 3, 0.3)
    lattice = np.array(list(product(np.linspace(0, 1, 5), repeat=3)))
    l1, l2 = function_release.lattice_reach(given, 4)
    records = np.random.default_rng(1).uniform(-0.3, 1.3, (3000, 3))
    sums = function_release.kernel_matrix(np.vstack([records, lattice]), lattice, 0.3)
    assert 0.6 * l1 < sums.sum(axis=1).max() <= l1
    assert 0.6 * l2 < np.sqrt((sums**2).sum(axis=1)).max() <= l2


@pytest.mark.parametrize("name", list(ONE_COLUMN))
def test_errors_of_releases_fall_with_the_budget(name: str) -> None:
    generator = np.random.default_rng(5)
    given = problem(generator.beta(2, 5, 3000))
    exact = given.sums(given.queries)
    release: Release = ONE_COLUMN[name](given)
    for delta in (0.0, 1e-6):
        errors = []
        for epsilon in (0.002, 50.0):
            found = release.noised(epsilon, delta, generator)
            assert (found is None) == (name == "pfda" and not delta)
            if found is not None:
                errors.append(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)))
        assert not errors or (errors[1] < 0.06 and errors[0] > 2 * errors[1])


def test_releases_of_three_columns_approximate_the_kernel_sum() -> None:
    generator = np.random.default_rng(6)
    given = problem(generator.random((500, 3)), 3, 1.0)
    exact = given.sums(given.queries)
    centres = generator.random((120, 3))
    for release in (
        function_release.bernstein(given, 6, 16),
        function_release.trigonometric(given, 4),
        function_release.mean_embedding(given, centres),
    ):
        found = release.estimate(release.numbers)
        assert np.mean(np.abs(found / exact - 1)) < 0.04


def test_the_score_of_parents_moves_by_less_than_two() -> None:
    """Every table of up to four records of two columns, with every record more."""
    levels, places = (3, 2), list(product(range(3), range(2)))
    largest = 0.0
    for size in range(5):
        for chosen in product(places, repeat=size):
            before = privbayes.score(np.array(chosen, np.int64).reshape(-1, 2), levels, 1, (0,))
            for more in places:
                after = privbayes.score(np.array([*chosen, more], np.int64), levels, 1, (0,))
                largest = max(largest, abs(after - before))
    assert 0.5 < largest < privbayes.SCORE_SENSITIVITY
    many = np.repeat([[0, 0]], 200, axis=0)  # the bound is attained in the limit
    more = np.vstack([many, [[1, 1]]])
    assert privbayes.score(more, levels, 1, (0,)) - privbayes.score(many, levels, 1, (0,)) > 1.95


def test_a_network_learns_a_dependence_with_a_large_budget_only() -> None:
    generator = np.random.default_rng(7)
    first = generator.integers(0, 4, 4000)
    codes = np.stack([first, generator.integers(0, 4, 4000), first], axis=1)
    agreement = {}
    for epsilon in (0.001, 20.0):
        network = privbayes.fitted(codes, (4, 4, 4), epsilon, 2, 4000, generator)
        drawn = network.drawn(4000, generator)
        agreement[epsilon] = float(np.mean(drawn[:, 0] == drawn[:, 2]))
    assert agreement[20.0] > 0.97
    assert agreement[0.001] < 0.7
    assert network.rows == pytest.approx(4000, abs=100)


def test_tables_compared_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart from those with fewer parents, for the first columns."""
    generator, compared = np.random.default_rng(11), []
    score = privbayes.score
    monkeypatch.setattr(privbayes, "score", lambda *given: compared.append(given[2:]) or score(*given))
    for degree, first in ((1, 0), (2, 5)):
        compared.clear()
        privbayes.fitted(generator.integers(0, 2, (900, 6)), (2,) * 6, 900.0, degree, 900, generator)
        assert len(compared) == privbayes.candidates_of(6, degree) + first


def simulated_split(rng: np.random.Generator, rows: int) -> Split:
    """A target that follows a label and, less, a number."""
    kind, number = rng.choice(list("abc"), rows), rng.uniform(-2, 2, rows)
    target = np.where((kind == "a") ^ (rng.random(rows) < 0.05), "yes", "no")
    columns = {
        "kind": {"kind": "category", "values": list("abc")},
        "number": {"kind": "number", "lower": -2, "upper": 2},
        "target": {"kind": "category", "values": ["no", "yes"]},
    }
    table = pa.table({"kind": kind, "number": number, "target": target})
    schema = dps.Schema.from_dict({"privacy": {"rows": rows}, "columns": columns})
    return Split("simulated", schema, "target", table, table)


def test_rows_of_privbayes_have_the_features_of_the_split(rng: np.random.Generator) -> None:
    split = simulated_split(rng, 3000)
    target = np.asarray(split.train["target"].to_numpy(zero_copy_only=False) == "yes").astype(float)
    coded = synthetic_models.Coded(split, target, 2, 4)
    features, drawn = coded.drawn(50.0, 2, rng)
    assert features.shape == split.features(split.train).shape
    assert set(np.unique(features[:, :3])) == {0.0, 1.0}
    assert np.abs(features[:, :3].mean(axis=0) - split.features(split.train)[:, :3].mean(axis=0)).max() < 0.05
    assert 0 <= features[:, 3].min() <= features[:, 3].max() <= 1
    assert np.mean(features[:, 0] == drawn) == pytest.approx(
        np.mean(split.features(split.train)[:, 0] == target), abs=0.05
    )
    assert synthetic_models.left_out(split) is None
    found = list(synthetic_models.predictions(split, target, 2, (1.0, 10.0), lambda rows, labels: labels, 1))
    assert len({setting for setting, _, _ in found}) == 9
    assert {epsilon for _, epsilon, _ in found} == {1.0, 10.0}


def test_a_posterior_sample_is_as_private_as_it_says() -> None:
    """Privacy losses of a sample on a pair of neighbours, in one column, at the extreme row."""
    generator = np.random.default_rng(8)
    epsilon, delta, square, residual = 0.7, 0.02, 6.0, 2.0
    rate = linear_baselines.posterior_rate(1 / square, residual, epsilon, delta)
    more, moved = square + 1, residual / (square + 1)  # a row x = 1 with this residual at the mean 0
    for mean, precision, sign in ((0.0, square, 1), (moved, more, -1)):
        drawn = mean + generator.normal(size=200_000) / np.sqrt(rate * precision)
        logs = 0.5 * np.log(square / more) - 0.5 * rate * (square * drawn**2 - more * (drawn - moved) ** 2)
        beyond = float(np.mean(sign * logs > epsilon))
        assert beyond <= delta
    with pytest.raises(ValueError, match="ridge"):
        linear_baselines.posterior_rate(100.0, 1.0, 0.1, 1e-6)


def test_samples_in_a_ball_have_the_truncated_distribution() -> None:
    from scipy.stats import truncnorm

    generator = np.random.default_rng(9)
    drawn = [linear_baselines._ball_sample(np.array([4.0]), np.array([8.0]), 1.5, generator)[0] for _ in range(60)]
    expected = truncnorm(-7, -1, loc=2.0, scale=0.5)  # N(2, 1/4) within ±1.5
    assert np.mean(drawn) == pytest.approx(expected.mean(), abs=4 * expected.std() / np.sqrt(60))
    wide = linear_baselines._ball_sample(np.ones(5), np.full(5, 100.0), 1.0, generator)
    assert np.linalg.norm(wide) <= 1 + 1e-9


def line(rng: np.random.Generator, rows: int = 4000) -> tuple[Any, Any]:
    features = rng.random((rows, 3))
    return features, 0.6 * (2 * features[:, 0] - 1) - 0.3 * (2 * features[:, 2] - 1) + rng.normal(size=rows) * 0.01


@pytest.mark.parametrize(
    ("fit", "large"),
    [
        (lambda x, y, t, e: linear_baselines.ops(x, y, t, e, 1.0, 1), 100.0),
        (lambda x, y, t, e: linear_baselines.ada_ops(x, y, t, e, 1e-6, 1), 100.0),
        (lambda x, y, t, e: linear_baselines.objective_squares(x, y, t, e, 0.0, 1.0, 1), 100.0),
        (lambda x, y, t, e: linear_baselines.objective_squares(x, y, t, e, 1e-6, 1.0, 1), 100.0),
    ],
)
def test_regressions_find_the_line_with_a_large_budget_only(fit: Any, large: float, rng: np.random.Generator) -> None:
    features, target = line(rng)
    test, truth = line(rng, 500)
    errors = [
        float(np.mean((fit(features, target, test, epsilon) - truth) ** 2) / np.var(truth)) for epsilon in (large, 0.01)
    ]
    assert errors[0] < 0.05
    assert errors[1] > 0.3


def test_objective_perturbation_ranks_classes_with_a_large_budget(rng: np.random.Generator) -> None:
    features = rng.random((2000, 2))
    labels = (features[:, 0] > features[:, 1]).astype(float)
    for delta in (0.0, 1e-6):
        scores = linear_baselines.objective_logistic(features, labels, features, 50.0, delta, 0.0, 2)
        assert np.mean((scores > 0) == (labels > 0)) > 0.95


def test_objective_perturbation_pays_half_for_the_determinant() -> None:
    generator = np.random.default_rng(10)
    lengths = []
    for _ in range(2000):
        noise, ridge = linear_baselines._perturbation(3, 2.0, 0.75, 0.8, 0.0, generator)
        lengths.append(np.linalg.norm(noise))
    assert np.log(1 + 0.75 / ridge) == pytest.approx(0.4)
    assert np.mean(lengths) == pytest.approx(3 * 2.0 / 0.4, rel=0.05)  # density exp(−‖b‖·(ε/2)/steepest)
    _, ridge = linear_baselines._perturbation(3, 2.0, 0.75, 0.8, 1e-6, generator)
    assert np.log(1 + 0.75 / ridge) <= 0.4


def test_the_best_setting_has_the_best_mean() -> None:
    for higher, setting in ((False, "a"), (True, "b")):
        found = Settings(higher)
        for name, figures in {"a": (1.0, 3.0), "b": (0.5, 5.0)}.items():
            for each in figures:
                found.add("method", 1.0, 0.0, name, each)
        ((key, best),) = found.best()
        assert (key, best.setting) == (("method", 1.0, 0.0), setting)


def test_what_is_infeasible_is_named_with_its_size(rng: np.random.Generator) -> None:
    said = list(kde_baselines.infeasible(problem(rng.random((300, 8)), 8)))
    assert said[0].startswith("  Bernstein, M=4 and more: not run: 3.91e+05 lattice points, 2.98 MiB")
    named = [each.split()[0].rstrip(":,") for each in said]
    assert named == ["Bernstein"] * 2 + ["trigonometric"] * 2 + ["Fourier", "PFDA", "mean"]
    assert said[1].startswith("  Bernstein, M=10 one width apart: 2.14e+08 lattice points, 1.6 GiB")
    assert list(kde_baselines.infeasible(problem([0.5]))) == []
    assert kde_baselines.size_text(8.0 * 3**54).endswith(" PiB")
    assert [kde_baselines.time_text(each) for each in (5, 120, 7200, 2e5, 1e9)] == [
        "5 s",
        "2 minutes",
        "2 hours",
        "2.31 days",
        "31.7 years",
    ]


def test_figures_have_every_method(tmp_path: Path) -> None:
    panels = [("a", {"dpsketch": {0.1: 1.0, 1.0: 0.1}, "OLS, not private": {0.1: 0.05, 1.0: 0.05}})]
    curves.draw(panels, tmp_path / "figure.png", "error")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert curves.style("OLS, not private", ["OLS, not private"])["linestyle"] == "--"
    assert shown(0.005) == "0.005"


def test_curves_are_kept_in_words(tmp_path: Path) -> None:
    curve = {0.1: 0.25, 1.0: 1.5e-5}
    (tmp_path / "kde.txt").write_text("\n".join(curves.line_of("a, σ = 5", name, curve) for name in ("x", "y, not z")))
    assert curves.kept_curves(tmp_path, "kde") == {"a, σ = 5": {"x": curve, "y, not z": curve}}
    (tmp_path / "kde-a.txt").write_text(curves.line_of("a, σ = 5", "x", {1.0: 0.5}))
    assert curves.kept_curves(tmp_path, "kde") == {"a, σ = 5": {"x": {1.0: 0.5}}}
    assert curves.kept_curves(tmp_path, "regression") == {}


def test_errors_of_figure_8_are_kept_in_words(tmp_path: Path) -> None:
    lines = [
        "a command",
        "  n=1e+06 δ=1e-08 ε=0.1 CL-OMPR m=32: 2.000 m=64: 1.000",
        "  n=1e+06 δ=0 ε=1 ours    m=32: 1.500",
    ]
    (tmp_path / "tables-1000000.txt").write_text("\n".join(lines))
    found = phase.kept_errors(tmp_path)
    assert found == {(10**6, 1e-8, 0.1, "CL-OMPR"): [2.0, 1.0], (10**6, 0.0, 1.0, "ours"): [1.5]}


def test_faults_say_whether_they_are_cured() -> None:
    assert faults.line("count", True, "4,039 ± 20") == "  count: 4,039 ± 20: PASS"
    assert faults.line("count", False, "6,033 ± 20").endswith("SHORT")


def test_both_decoders_get_the_sums_that_they_are_made_for() -> None:
    assert OURS.recipe(32).parts[1].map == dps.Fourier(size=32, radii=(5.0, 80.0))
    assert CLOMPR.recipe(32).parts[1].map.kernel == "gaussian"
    assert CLOMPR.model().n_init == 10
    assert _edges((1, 10, 100)) == pytest.approx([10**-0.5, 10**0.5, 10**1.5, 10**2.5])
