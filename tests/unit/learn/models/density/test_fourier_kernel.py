"""Densities from Fourier sums of a kernel against means of that kernel over the records themselves."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError
from dpsketch.learn.models.density.fourier_kernel import FourierKernel, fourier_kernels
from dpsketch.numerics.arrays import Floats

ROWS, SEEDS = 3000, 60
LOW, WIDE = np.array([0.0, -5.0]), np.array([10.0, 10.0])
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": ROWS},
        "columns": {
            "a": {"kind": "number", "lower": 0, "upper": 10},
            "b": {"kind": "number", "lower": -5, "upper": 5},
            "label": {"kind": "category", "values": ["x", "y"]},
        },
    }
)
PLACES = np.array([[0.3, 0.4], [0.7, 0.6], [0.1, 0.9]])
WIDTH = 0.12


@cache
def places() -> Floats:
    rng = np.random.default_rng(1)
    which = rng.random(ROWS) < 0.4
    return np.clip(np.where(which[:, None], [0.3, 0.4], [0.7, 0.6]) + 0.1 * rng.normal(size=(ROWS, 2)), 0, 1)


def table() -> pa.Table:
    values = LOW + places() * WIDE
    return pa.table({"a": values[:, 0], "b": values[:, 1], "label": np.where(places()[:, 0] > 0.5, "x", "y")})


def exact(kernel: str, width: float = WIDTH) -> Floats:
    """Mean kernel values of the records at PLACES."""
    distances = np.linalg.norm(places()[:, None, :] - PLACES, axis=2)
    values = np.exp(-(distances**2) / (2 * width**2)) if kernel == "gaussian" else np.exp(-distances / width)
    return np.asarray(values.mean(axis=0))


def view(*maps: dps.FeatureMap, epsilon: float = 1.0, sampling: dps.RowSampling | None = None) -> dps.View:
    shares = [0.98 / len(maps)] * len(maps)
    parts = [dps.Part(dps.Count(), 0.02), *(dps.Part(each, share) for each, share in zip(maps, shares, strict=True))]
    budget = dps.Budget(epsilon)
    raw = dps.accumulate(table(), SCHEMA, dps.Recipe(parts, sampling=sampling))
    return dps.View(dps.release(raw, budget, *((dps.Ledger("sqlite://"), "d") if budget.private else ())))


def fourier(kernel: str = "gaussian", width: float = WIDTH, size: int = 300, seed: int = 0) -> dps.Fourier:
    return dps.Fourier(("a", "b"), size=size, seed=seed, kernel=kernel, width=width)


@pytest.mark.parametrize("epsilon", [float("inf"), 60.0], ids=["no noise", "noise"])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("kind", [dps.Fourier, dps.OneBitFourier])
def test_standard_errors_cover_noise_and_features(kind: type, kernel: str, epsilon: float) -> None:
    """Over 60 seeds in one release, so ε = 1 each. Errors of half the size would have a root mean square of 2."""
    maps = [kind(("a", "b"), size=80, seed=seed, kernel=kernel, width=WIDTH) for seed in range(SEEDS)]
    released = view(*maps, epsilon=epsilon).released
    scores, truth = [], exact(kernel)
    for _, source in fourier_kernels(released):
        value, stderr = source.at(PLACES)
        scores.append((value / ROWS - truth) / (stderr / ROWS))
    assert len(scores) == SEEDS
    assert 0.8 < np.sqrt(np.mean(np.square(scores))) < 1.2
    assert np.abs(np.mean(scores, axis=0)).max() < 0.55  # 4 standard deviations of a mean of 60


def test_noise_is_most_of_the_error_where_the_budget_is_small() -> None:
    """And the spread between frequencies has it as well."""
    ((_, noisy),) = fourier_kernels(view(fourier(), epsilon=0.02).released)
    ((_, plain),) = fourier_kernels(view(fourier(), epsilon=float("inf")).released)
    assert plain.noise == 0
    assert noisy.at(PLACES)[1] == pytest.approx(np.full(3, noisy.least_error), rel=0.15)
    assert noisy.at(PLACES)[1].min() > 3 * plain.at(PLACES)[1].max()


def test_few_frequencies_have_wider_errors() -> None:
    """Student's t with two frequencies: 12.7 instead of 1.96 standard deviations."""
    source = FourierKernel(("a",), np.array([[0.0], [0.0]]), np.array([1.0 + 0j, 3.0]), 0.0)
    value, stderr = source.at(np.array([[0.5]]))
    assert value[0] == 2.0
    assert stderr[0] == pytest.approx(np.sqrt(2) / np.sqrt(2) * 12.706 / 1.95996, rel=1e-4)


def test_a_density_in_the_columns_units() -> None:
    model = dps.KernelDensity().fit(view(fourier(size=3000)))
    assert model.kernel_.name == "gaussian"
    assert model.how_ == "3000 Fourier frequencies of the kernel"
    answer = model.density(LOW + PLACES * WIDE)
    unit = 2 * np.pi * (WIDTH * 10) ** 2
    assert answer.value == pytest.approx(exact("gaussian") / unit, abs=0.05 / unit)
    assert np.all(np.abs(answer.value - exact("gaussian") / unit) < 4 * answer.stderr)
    same = dps.KernelDensity("gaussian", {"a": 1.2, "b": 1.2}, ["b", "a"]).fit(view(fourier(size=3000)))
    assert list(same.feature_names_in_) == ["b", "a"]
    turned = same.density((LOW + PLACES * WIDE)[:, ::-1])
    assert turned.value == pytest.approx(answer.value, abs=8 * float(answer.stderr.max()))
    assert np.isnan(model.density({"a": [None], "b": [0.0]}).value).all()


def test_a_laplacian_density_integrates_to_one() -> None:
    model = dps.KernelDensity().fit(view(fourier("laplacian", 0.05, 2000), epsilon=float("inf")))
    middles = (np.arange(60) + 0.5) / 60 * 1.6 - 0.3
    square = np.stack(np.meshgrid(middles, middles), axis=2).reshape(-1, 2)
    inside = model._source.at(square)[0] / ROWS / model._integral  # beyond the bounds, which `density` refuses
    assert inside.sum() * (16 / 60) ** 2 == pytest.approx(1.0, abs=0.1)


def test_the_part_of_the_requested_kernel_answers() -> None:
    several = view(fourier(), fourier(width=0.3), fourier("laplacian"), epsilon=float("inf"))
    for kernel, width in (("gaussian", WIDTH), ("gaussian", 0.3), ("laplacian", WIDTH)):
        model = dps.KernelDensity(kernel, width).fit(several)
        value, stderr = model._source.at(PLACES)
        assert np.all(np.abs(value / ROWS - exact(kernel, width)) < 4 * stderr / ROWS)
    assert dps.KernelDensity(bandwidth=0.3).fit(several).kernel_.spans[0] == pytest.approx(1 / 0.3)
    with pytest.raises(
        QueryError, match=r"does not hold bandwidth 0.2\nHint: .* 'gaussian', width 0.12; .*, width 0.3"
    ):
        dps.KernelDensity(bandwidth=0.2).fit(several)


def test_a_table_of_the_same_columns_is_compared() -> None:
    both = view(dps.Histogram(2, ("a", "b"), 32), fourier())
    model = dps.KernelDensity("gaussian", WIDTH).fit(both)
    assert model.how_ == "2-way table, convolved with the kernel"
    assert [how for how, _ in model.considered_][1] == "300 Fourier frequencies of the kernel"
    assert dps.KernelDensity().fit(both).kernel_.name == "euclidean"  # as without the Fourier sums


def test_modes_are_found() -> None:
    modes = dps.find_modes(view(fourier(size=2000), epsilon=float("inf")), 2)
    found = np.stack([modes.points["a"], modes.points["b"]], axis=1)
    assert found[np.argsort(found[:, 0])] == pytest.approx(np.array([[3.0, -1.0], [7.0, 1.0]]), abs=0.5)


@pytest.mark.filterwarnings("ignore::dpsketch.FitWarning")
@pytest.mark.parametrize(
    "map_",
    [dps.Fourier(("a", "b")), fourier("adapted"), dps.Fourier(("a", "label"), kernel="gaussian", width=0.1)],
    ids=["no kernel", "adapted", "labels"],
)
def test_sums_without_a_kernel_have_the_density_of_their_rows(map_: dps.Fourier) -> None:
    model = dps.KernelDensity().fit(view(map_))
    assert model.how_.endswith("rows of the joint distribution")
    assert list(model.feature_names_in_) == [name for name in map_.columns or () if name != "label"]


def test_a_sample_of_the_rows_adds_its_error() -> None:
    sampled = view(fourier(size=3000), epsilon=float("inf"), sampling=dps.RowSampling(0.1))
    ((_, source),) = fourier_kernels(sampled.released)
    assert source.skipped == pytest.approx(0.9)
    value, stderr = source.at(PLACES)
    assert np.all(stderr**2 >= 0.9 * value)


def test_a_saved_model_scores_the_same(tmp_path: Path) -> None:
    model = dps.KernelDensity().fit(view(fourier()))
    dps.save_model(model, tmp_path / "a.model")
    again = dps.load_model(tmp_path / "a.model")
    rows = LOW + PLACES * WIDE
    assert np.array_equal(again.density(rows).value, model.density(rows).value)
    assert np.array_equal(again.density(rows).stderr, model.density(rows).stderr)
