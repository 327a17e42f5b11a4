"""Simulated records in the counters of a release: they make errors smaller, and never make answers wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import FileError
from dpsketch.learn.estimators.control_variate import DRAWN, Control
from dpsketch.learn.estimators.kernel_sums import KernelSums
from dpsketch.learn.models.density.hashed import Hashed, hashed_counters
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Floats

ROWS, COLUMNS = 20_000, 6
NAMES = tuple(f"x{place}" for place in range(COLUMNS))
SCHEMA = dps.Schema.from_dict(
    {"privacy": {"rows": ROWS}, "columns": {name: {"kind": "number", "lower": -8, "upper": 8} for name in NAMES}}
)
KERNEL = dps.Euclidean(0.05)


def simulated(seed: int, rows: int) -> Floats:
    """Columns that depend on each other a little, one of them narrow."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(rows, COLUMNS)) * [1, 1, 2, 0.5, 1.5, 1] + 0.7 * rng.normal(size=(rows, 1))
    return np.clip(own, -8, 8)


RECORDS = simulated(1, ROWS)
POINTS = simulated(2, 200)


def mean_kernel(points: Floats, records: Floats) -> Floats:
    scaled, other = points / 16, records / 16
    return np.array([KERNEL.kernel(np.linalg.norm(other - point, axis=1)).mean() for point in scaled])


EXACT = mean_kernel(POINTS, RECORDS)


def released(*others: dps.FeatureMap, rows: int = 200, seed: int = 0) -> dps.View:
    maps = [dps.Race(NAMES, rows, 1000, seed=seed, hash=KERNEL), *others]
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.04), *(dps.Part(each, 0.96 / len(maps)) for each in maps)])
    raw = dps.accumulate(pa.table(dict(zip(NAMES, RECORDS.T, strict=True))), SCHEMA, recipe)
    return dps.View(dps.release(raw, dps.Budget(2.0, 1e-6), dps.Ledger("sqlite://"), "simulated"))


@pytest.fixture(scope="module")
def view() -> dps.View:
    return released(dps.Marginals(NAMES))


@pytest.fixture(scope="module")
def model(view: dps.View) -> dps.KernelDensity:
    return dps.KernelDensity().fit(view)


def control_of(model: dps.KernelDensity) -> tuple[Hashed, Control]:
    hashed = model._source
    assert isinstance(hashed, Hashed)
    assert hashed.control is not None
    return hashed, hashed.control


def test_the_sums_of_simulated_records_are_exact(model: dps.KernelDensity) -> None:
    hashed, control = control_of(model)
    own = control.points(DRAWN)
    everyone = np.stack([own[name] for name in NAMES], axis=1)
    found = control.at(hashed.records(POINTS))
    assert found == pytest.approx(mean_kernel(POINTS, everyone) * DRAWN * control.scale, rel=1e-4)
    assert everyone.std(axis=0) == pytest.approx(RECORDS.std(axis=0), rel=0.1)
    assert control.counters.sum() == pytest.approx(hashed.race.rows * ROWS, rel=0.05)


@pytest.mark.usefixtures("seeded")
def test_errors_fall_and_are_told(model: dps.KernelDensity) -> None:
    """Over several sets of hashes, as all points share theirs."""
    plain, corrected, inside = [], [], []
    for seed in range(6):
        one = released(dps.Marginals(NAMES), seed=seed)
        (hashed,) = hashed_counters(one.released)
        plain.append(np.mean(np.abs(hashed.at(POINTS).value / ROWS - EXACT) / EXACT))
        answer = dps.KernelDensity().fit(one).density(POINTS)
        corrected.append(np.mean(np.abs(answer.value - EXACT) / EXACT))
        inside.append(np.mean(np.abs(answer.value - EXACT) < answer.stderr))
    assert np.mean(corrected) < 0.6 * np.mean(plain)
    assert 0.55 < np.mean(inside) < 0.85
    assert model.how_ == "200 rows of hashed counters, corrected by simulated records"


def test_any_simulated_records_leave_answers_right(view: dps.View) -> None:
    """Uniform ones are nothing like the records: errors are larger, not the truth farther away."""
    (race,) = (part for part in view.released.parts if isinstance(part.map, BoundRace))
    assert isinstance(race.map, BoundRace)
    codes = np.random.default_rng(3).integers(-32767, 32768, (COLUMNS, DRAWN)).astype(np.int16)
    sums = KernelSums(SCHEMA, race.map, race.sums, race.noise_variance, Control(SCHEMA, race.map, codes, ROWS / DRAWN))
    answer = sums.at(POINTS)
    assert np.mean(((answer.value - EXACT * ROWS) / answer.stderr) ** 2) < 4
    assert (np.abs(answer.value - EXACT * ROWS) <= sums.at(POINTS).bound(0.05)).all()
    wrong = Control(SCHEMA, race.map, codes, ROWS / DRAWN)
    wrong.counters = wrong.counters * 2  # a planted error: twice what the exact sums are of
    off = KernelSums(SCHEMA, race.map, race.sums, race.noise_variance, wrong).at(POINTS)
    assert np.mean(((off.value - EXACT * ROWS) / off.stderr) ** 2) > 4


def test_cells_that_a_release_chose_are_marginals_as_well() -> None:
    model = dps.KernelDensity().fit(released(dps.Levels(NAMES), dps.AdaptiveMarginals(NAMES)))
    own = control_of(model)[1].points(DRAWN)
    assert [own[name].std() for name in NAMES] == pytest.approx(RECORDS.std(axis=0), rel=0.1)


def test_without_marginals_or_a_kernel_of_distance_counters_stay_as_they_are() -> None:
    assert dps.KernelDensity().fit(released()).how_ == "200 rows of hashed counters"
    some = released(dps.Marginals(NAMES[:3]))
    assert dps.KernelDensity().fit(some).how_ == "200 rows of hashed counters"


def test_a_saved_model_keeps_its_correction(model: dps.KernelDensity, tmp_path: Path) -> None:
    dps.save_model(model, tmp_path / "density.model")
    again = dps.load_model(tmp_path / "density.model")
    assert isinstance(again, dps.KernelDensity)
    one, other = model.density(POINTS), again.density(POINTS)
    assert (one.value == other.value).all()
    assert (one.stderr == other.stderr).all()


@pytest.mark.parametrize(
    "codes", [np.zeros((2, 5), np.int16), np.zeros((COLUMNS, 5), np.int64), np.zeros(COLUMNS, np.int16)]
)
def test_a_changed_correction_is_refused(
    model: dps.KernelDensity, codes: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, _ = control_of(model)[1].to_saved()
    monkeypatch.setattr(Control, "to_saved", lambda self: (facts, {"control": codes}))
    dps.save_model(model, tmp_path / "density.model")
    with pytest.raises(FileError):
        dps.load_model(tmp_path / "density.model")


def test_modes_start_from_simulated_records_without_another_fit(
    view: dps.View, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object) -> None:
        raise AssertionError("a joint distribution takes many times as long")

    monkeypatch.setattr(dps.View, "sample", refused)
    found = dps.find_modes(view, 1)
    assert found.how.endswith("corrected by simulated records")
    assert np.abs([found.points[name][0] for name in NAMES]).max() < 1.5
