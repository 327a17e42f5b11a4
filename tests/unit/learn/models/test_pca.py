"""Principal components of releases against those of the table; noise is seeded here, which the library's cannot be."""

from __future__ import annotations

import csv
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.decomposition import PCA as Exact

import dpsketch as dps
from command_line import called
from dpsketch.errors import QueryError
from dpsketch.learn.models.spectrum import oriented, projected

ROWS, COLUMNS = 5000, 5
LOW, HIGH = -80.0, 100.0
STUDY = dps.Budget(float("inf"))


def schema(columns: int = COLUMNS, **more: dict[str, Any]) -> dps.Schema:
    numbers = {f"x{place}": {"kind": "number", "lower": LOW, "upper": HIGH} for place in range(columns)}
    return dps.Schema.from_dict({"privacy": {"rows": ROWS}, "columns": numbers | more})


def points(columns: int = COLUMNS) -> np.ndarray:
    random = np.random.default_rng(3)
    axes = np.linalg.qr(random.normal(size=(columns, columns)))[0]
    return (random.normal(size=(ROWS, columns)) * (12 / 2.0 ** np.arange(columns))) @ axes.T + 4 * np.arange(columns)


def table(numbers: np.ndarray) -> pa.Table:
    return pa.table({f"x{place}": column for place, column in enumerate(numbers.T)})


def view_of(map_: Any, budget: dps.Budget = STUDY, numbers: np.ndarray | None = None) -> dps.View:
    numbers = points() if numbers is None else numbers
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.05), dps.Part(map_, 0.95)])
    raw = dps.accumulate(table(numbers), schema(numbers.shape[1]), recipe)
    return dps.View(dps.release(raw, budget, dps.Ledger("sqlite://") if budget.private else None, "t"))


RADIUS = COLUMNS**0.5
WHOLE = dps.SecondMoments(radius=RADIUS, means=True)


def test_without_noise_components_are_those_of_scikit_learn() -> None:
    exact, found = Exact(3).fit(points()), dps.PCA(3).fit(view_of(WHOLE))
    assert found.components_ == pytest.approx(exact.components_, abs=2e-3)
    assert found.explained_variance_ == pytest.approx(exact.explained_variance_, rel=2e-3)
    assert found.explained_variance_ratio_ == pytest.approx(exact.explained_variance_ratio_, rel=2e-3)
    assert found.mean_ == pytest.approx(exact.mean_, abs=1e-2)
    assert found.noise_variance_ == pytest.approx(exact.noise_variance_, rel=1e-2)
    assert found.transform(table(points()[:9])) == pytest.approx(exact.transform(points()[:9]), abs=0.1)
    assert found.score(table(points())) == pytest.approx(exact.score(points()), abs=1e-2)
    assert list(found.feature_names_in_) == ["x0", "x1", "x2", "x3", "x4"]
    assert found.converged_
    assert found.how_ == "second moments"


def test_uncentred_moments_are_of_columns_scaled_by_their_bounds() -> None:
    numbers = (points() - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2)
    values, vectors = np.linalg.eigh(numbers.T @ numbers / ROWS)
    found = dps.PCA(2, of="second_moments").fit(view_of(dps.SecondMoments(radius=RADIUS)))
    assert found.explained_variance_ == pytest.approx(values[::-1][:2], rel=2e-3)
    assert found.components_ == pytest.approx(oriented(vectors.T[::-1][:2]), abs=2e-3)
    assert found.mean_ == pytest.approx(np.full(COLUMNS, 10.0))
    assert found.transform(table(points()[:5])) == pytest.approx(numbers[:5] @ found.components_.T, abs=1e-2)


def test_enough_squares_of_projections_determine_the_matrix() -> None:
    found = dps.PCA(3, of="second_moments").fit(view_of(dps.Quadratic(size=40, radius=RADIUS)))
    exact = dps.PCA(3, of="second_moments").fit(view_of(dps.SecondMoments(radius=RADIUS)))
    assert found.how_.startswith("least squares on 40")
    assert found.components_ == pytest.approx(exact.components_, abs=2e-3)
    assert found.explained_variance_ == pytest.approx(exact.explained_variance_, rel=1e-3)


@pytest.mark.usefixtures("seeded")
def test_three_hadamard_stages_determine_the_matrix() -> None:
    """Eigenvalues 1/j in 20 columns: of one stage only the sum of the diagonal is known, and 7 % of the variance that
    five components could capture is missed.
    """
    random = np.random.default_rng(8)
    turn = np.linalg.qr(random.normal(size=(20, 20)))[0]
    numbers = 10 + 20 * (random.normal(size=(20_000, 20)) / np.sqrt(np.arange(1, 21))) @ turn.T
    scaled = (numbers - 10) / 90
    moments = scaled.T @ scaled / len(scaled)
    best = np.linalg.eigvalsh(moments)[-5:].sum()
    shares = {}
    for directions in ("hadamard", "hadamard3"):
        view = view_of(dps.Quadratic(size=416, radius=1.0, directions=directions), dps.Budget(50.0), numbers)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dps.FitWarning)
            found = dps.PCA(5, of="second_moments").fit(view)
        shares[directions] = np.einsum("ij,jk,ik->", found.components_, moments, found.components_) / best
    assert shares["hadamard3"] >= 0.999
    assert shares["hadamard"] < 0.97


@pytest.mark.parametrize("directions", ["gaussian", "hadamard", "hadamard3"])
@pytest.mark.usefixtures("seeded")
def test_few_squares_of_projections_show_a_matrix_of_low_rank(directions: str) -> None:
    random = np.random.default_rng(5)
    loads = random.normal(size=(2, 16))
    numbers = 10 + random.normal(size=(ROWS, 2)) * [9, 6] @ loads + 0.3 * random.normal(size=(ROWS, 16))
    map_ = dps.Quadratic(size=96, radius=2.0, directions=directions)
    view = view_of(map_, dps.Budget(20.0, 1e-6), numbers)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PCA: these squares", dps.FitWarning)
        found = dps.PCA(2, of="second_moments").fit(view)
    scaled = (numbers - 10) / 90
    moments = scaled.T @ scaled / ROWS
    along = np.einsum("ij,jk,ik->", found.components_, moments, found.components_)
    assert found.how_.startswith("matrix of rank ")
    assert found.converged_
    assert along / np.linalg.eigvalsh(moments)[-2:].sum() > 0.99
    assert found.goodness_of_fit_ < 1.5


@pytest.mark.usefixtures("seeded")
def test_standard_errors_are_as_large_as_errors() -> None:
    exact = np.cov(points().T, bias=True)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.05), dps.Part(WHOLE, 0.95)])
    raw = dps.accumulate(table(points()), schema(), recipe)
    off, off_ratio = [], []
    for _ in range(25):
        view = dps.View(dps.release(raw, dps.Budget(5.0), dps.Ledger("sqlite://"), "t"))
        found = dps.PCA(2).fit(view)
        along = np.einsum("ij,jk,ik->i", found.components_, exact, found.components_)
        off.append((found.explained_variance_ - along) / found.explained_variance_stderr_)
        ratio = along / np.trace(exact)
        off_ratio.append((found.explained_variance_ratio_ - ratio) / found.explained_variance_ratio_stderr_)
        assert (found.components_stderr_ > 0).all()
    for each in (off, off_ratio):
        assert 0.6 < np.sqrt(np.mean(np.square(each))) < 1.5


@pytest.mark.parametrize("directions", ["gaussian", "hadamard3"])
@pytest.mark.usefixtures("seeded")
def test_standard_errors_cover_what_is_not_of_low_rank(directions: str) -> None:
    """160 squares of 20 columns with eigenvalues 1/j, where 210 would determine the matrix: noise is a hundredth of
    what the low-rank fit misses.
    """
    random = np.random.default_rng(8)
    turn = np.linalg.qr(random.normal(size=(20, 20)))[0]
    numbers = 10 + 20 * (random.normal(size=(5000, 20)) / np.sqrt(np.arange(1, 21))) @ turn.T
    scaled = (numbers - 10) / 90
    moments = scaled.T @ scaled / len(scaled)
    off = []
    for seed in range(5):
        map_ = dps.Quadratic(size=160, seed=seed, radius=1.0, directions=directions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dps.FitWarning)
            found = dps.PCA(2, of="second_moments").fit(view_of(map_, dps.Budget(100.0), numbers))
        assert found.how_.startswith("matrix of rank ")
        along = np.einsum("ij,jk,ik->i", found.components_, moments, found.components_)
        off.append((found.explained_variance_ - along) / found.explained_variance_stderr_)
        assert (found.explained_variance_stderr_ < 0.5 * found.explained_variance_).all()
    assert 0.3 < np.sqrt(np.mean(np.square(off))) < 2.0


@pytest.mark.parametrize(
    ("size", "directions", "components"), [(64, "hadamard", 1), (48, "gaussian", 4)], ids=["diagonal", "all fitted"]
)
@pytest.mark.usefixtures("seeded")
def test_errors_that_nothing_tells_are_not_known(size: int, directions: str, components: int) -> None:
    """One stage does not see the diagonal; 48 squares have no residuals left beside four axes of 16 columns."""
    numbers = 10 + np.random.default_rng(5).normal(size=(ROWS, 16)) * 20 / np.arange(1, 17)
    view = view_of(dps.Quadratic(size=size, radius=1.0, directions=directions), dps.Budget(20.0), numbers)
    with pytest.warns(dps.FitWarning, match=r"standard errors are not known.\nHint: release more directions"):
        found = dps.PCA(components, of="second_moments").fit(view)
    assert np.isnan(found.explained_variance_stderr_).all()
    assert np.isnan(found.explained_variance_ratio_stderr_).all()


def test_covariances_also_come_from_contingency_tables() -> None:
    view = view_of(dps.Histogram(ways=2, bins=64, columns=["x0", "x1", "x2"]))
    found = dps.PCA(2, columns=["x0", "x1", "x2"]).fit(view)
    exact = Exact(2).fit(points()[:, :3])
    assert found.explained_variance_ == pytest.approx(exact.explained_variance_, rel=0.15)
    assert np.abs((found.components_ * exact.components_).sum(axis=1)) == pytest.approx(1, abs=0.01)
    moments = dps.PCA(1, columns=["x0", "x1", "x2"], of="second_moments").fit(view)
    numbers = (points()[:, :3] - 10) / 90
    assert moments.explained_variance_ == pytest.approx(np.linalg.eigvalsh(numbers.T @ numbers / ROWS)[-1:], rel=0.15)


def test_a_transformed_column_counts_as_its_logarithm_and_a_boolean_as_0_or_1() -> None:
    random = np.random.default_rng(1)
    wage, member = np.exp(random.normal(3, 1, ROWS)).clip(1, 1000), random.random(ROWS) < 0.3
    facts = schema(
        0, wage={"kind": "number", "lower": 1, "upper": 1000, "transform": "log"}, member={"kind": "boolean"}
    )
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.SecondMoments(radius=1.5, means=True), 0.9)])
    raw = dps.accumulate(pa.table({"wage": wage, "member": member}), facts, recipe)
    view = dps.View(dps.release(raw, STUDY))
    assert list(dps.PCA(1).fit(view).feature_names_in_) == ["wage"]
    found = dps.PCA(2, columns=["wage", "member"]).fit(view)
    assert found.mean_ == pytest.approx([np.log(wage).mean(), member.mean()], abs=1e-2)
    assert found.explained_variance_ == pytest.approx([np.log(wage).var(), member.var()], rel=2e-2)


def test_the_sum_of_groups_and_masked_features_are_used() -> None:
    grouped = schema(2, city={"kind": "category", "values": ["a", "b"]})
    rows = {"x0": points()[:, 0], "x1": points()[:, 1], "city": np.where(np.arange(ROWS) % 3 == 0, "a", "b")}
    map_ = dps.Grouped(dps.SecondMoments(["x0", "x1"], 1.5, means=True), "city")
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(map_, 0.9)])
    view = dps.View(dps.release(dps.accumulate(pa.table(rows), grouped, recipe), STUDY))
    exact = Exact(2).fit(points()[:, :2])
    assert dps.PCA(2).fit(view).explained_variance_ == pytest.approx(exact.explained_variance_, rel=1e-2)
    masked = view_of(dps.Subsampled(dps.Quadratic(size=60, radius=RADIUS), 30))
    found = dps.PCA(1, of="second_moments").fit(masked)
    whole = dps.PCA(1, of="second_moments").fit(view_of(dps.SecondMoments(radius=RADIUS)))
    assert found.explained_variance_ == pytest.approx(whole.explained_variance_, rel=0.1)


def test_components_point_where_their_largest_entry_is_positive() -> None:
    assert (oriented(np.array([[0.1, -0.9], [-0.4, 0.3]])) == [[-0.1, 0.9], [0.4, -0.3]]).all()


def test_projection_keeps_the_trace_and_removes_negative_eigenvalues() -> None:
    values, vectors = projected(np.diag([5.0, 1.0, -2.0]))
    assert values == pytest.approx([4.0, 0.0, 0.0])
    assert np.abs(vectors[0]) == pytest.approx([1, 0, 0])
    assert (projected(-np.eye(2))[0] == 0).all()


@pytest.mark.usefixtures("seeded")
def test_clipped_records_and_other_means_are_told() -> None:
    """Means of all of each record, second moments of what the ball leaves of it."""
    recipe = dps.Recipe(
        [
            dps.Part(dps.Count(), 0.1),
            dps.Part(dps.SecondMoments(radius=0.1), 0.5),
            dps.Part(dps.Marginals(bins=4), 0.4),
        ]
    )
    raw = dps.accumulate(table(points() + 30), schema(), recipe)
    view = dps.View(dps.release(raw, dps.Budget(50.0), dps.Ledger("sqlite://"), "t"))
    with pytest.warns(UserWarning, match="raise its radius"):
        dps.PCA(2).fit(view)


def test_covariances_of_records_that_a_ball_shortens_are_told() -> None:
    """Their standard errors do not cover it. Second moments are of clipped records by definition."""
    lengths = np.sqrt((((points() - 10) / 90) ** 2).sum(axis=1))
    short, long = (dps.SecondMoments(radius=float(np.quantile(lengths, each)), means=True) for each in (0.6, 0.999))
    with pytest.warns(dps.FitWarning, match=r"many are clipped.*do not cover this\.\nHint: release with a larger"):
        found = dps.PCA(2).fit(view_of(short))
    assert found.how_.startswith("second moments of records clipped to a ball of 0.")
    with warnings.catch_warnings():
        warnings.simplefilter("error", dps.FitWarning)
        dps.PCA(2, of="second_moments").fit(view_of(short))
        assert "clipped to a ball" in dps.PCA(2).fit(view_of(long)).how_


def test_what_a_release_does_not_tell_is_refused_by_name() -> None:
    with pytest.raises(QueryError, match=r"not the mean of 'x0'.*\nHint: release SecondMoments\(means=True\)"):
        dps.PCA(2).fit(view_of(dps.SecondMoments(radius=RADIUS)))
    with pytest.raises(QueryError, match=r"has no covariances of columns\nHint: release Recipe.pca"):
        dps.PCA(2).fit(view_of(dps.Histogram(bins=8)))
    view = view_of(WHOLE)
    with pytest.raises(QueryError, match="at most the number of columns, 5, got 6"):
        dps.PCA(6).fit(view)
    with pytest.raises(QueryError, match="n_components must be a whole number of at least 1, got 0"):
        dps.PCA(0).fit(view)
    with pytest.raises(QueryError, match="of must be one of covariance, second_moments, got 'x'"):
        dps.PCA(1, of="x").fit(view)
    with pytest.raises(QueryError, match="not fitted"):
        dps.PCA(1).transform({"x0": [1.0]})
    with pytest.raises(QueryError, match="columns must be a list of names"):
        dps.PCA(1, columns="x0").fit(view)
    facts = schema(1, city={"kind": "category", "values": ["a"]})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.SecondMoments(), 0.9)])
    raw = dps.accumulate(pa.table({"x0": [1.0], "city": ["a"]}), facts, recipe)
    with pytest.raises(QueryError, match="'city' is a category: principal components need numbers"):
        dps.PCA(1, columns=["x0", "city"]).fit(dps.View(dps.release(raw, STUDY)))


def test_the_command_writes_components_and_a_scree_plot(tmp_path: Path) -> None:
    view_of(WHOLE, dps.Budget(5.0)).released.save(tmp_path / "t.sketch")
    run = partial(called, tmp_path, "fit", "pca", "t.sketch")
    done = run("--k", "2", "--format", "csv", "--plot", "scree.png")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["component"] for row in rows] == ["1", "2"]
    assert float(rows[0]["explained_variance"]) > float(rows[1]["explained_variance"]) > 0
    assert (tmp_path / "scree.png").read_bytes().startswith(b"\x89PNG")
    done = run("--k", "1", "--columns", "x0,x1", "--format", "json")
    [row] = json.loads(done.stdout)["rows"]
    assert {"x0", "x1"} < set(row)
    done = run("--k", "2", "--plot", "scree.png")
    assert done.returncode == 1
    assert "scree.png exists already" in done.stderr
