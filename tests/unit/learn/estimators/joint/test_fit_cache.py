"""Fits that are kept for the next process: found again, and never trusted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load, save

import dpsketch as dps
from conftest import SEED, seeded_noise
from dpsketch.learn.estimators.joint import fit_cache as cache
from dpsketch.learn.estimators.joint import from_release as released_products
from dpsketch.learn.estimators.joint import joint_fit
from dpsketch.learn.estimators.joint.joint_fit import Products

COLUMNS = ("x", "y", "z")
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 2000},
        "columns": {
            "x": {"kind": "number", "lower": 0, "upper": 1},
            "y": {"kind": "number", "lower": 0, "upper": 1},
            "z": {"kind": "category", "values": ["a", "b"]},
        },
    }
)
RECIPE = dps.Recipe(
    [dps.Part(dps.Count(), 0.1), dps.Part(dps.Marginals(bins=4), 0.4), dps.Part(dps.Pairs(bins=4, pool=True), 0.5)]
)
WHERE = "x < 0.5 and z = 'a'"


def released(rows: int = 2000) -> dps.ReleasedSketch:
    random = np.random.default_rng(SEED)
    x = random.random(rows)
    table = pa.table({"x": x, "y": x**2, "z": np.where(x < 0.3, "a", "b")})
    with seeded_noise(rows):
        return dps.release(dps.accumulate(table, SCHEMA, RECIPE), dps.Budget(1.0), dps.Ledger("sqlite://"), "a")


@pytest.fixture(scope="module")
def sketch() -> dps.ReleasedSketch:
    return released()


@pytest.fixture(scope="module")
def models(sketch: dps.ReleasedSketch) -> tuple[Products, ...]:
    """With their mixtures."""
    fitted = released_products.fit_released(sketch)
    assert len(fitted.mixtures) == len(fitted.models)
    return fitted.models


@pytest.fixture(scope="module")
def answer(sketch: dps.ReleasedSketch) -> dps.Answer:
    return dps.View(sketch).fraction(WHERE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "fits"
    folder.mkdir()
    monkeypatch.setattr(cache, "user_folder", lambda _name: folder)
    return folder


@pytest.fixture
def path(sketch: dps.ReleasedSketch, tmp_path: Path) -> Path:
    path = tmp_path / "sketches" / "a.sketch"
    path.parent.mkdir()
    sketch.save(path)
    return path


def assert_same(one: dps.Answer, other: dps.Answer) -> None:
    """But for the last bits, in which sums differ with the place of their numbers in memory."""
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert one.stderr == pytest.approx(other.stderr, rel=1e-9)


def never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "fit_released", lambda _: pytest.fail("fitted again"))


def test_a_fit_is_found_again(folder: Path, path: Path, answer: dps.Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same(dps.open(path).fraction(WHERE), answer)
    [kept] = folder.iterdir()
    assert kept.stat().st_size < 1_000_000
    never(monkeypatch)
    assert_same(dps.open(path).fraction(WHERE), answer)


def test_nothing_is_read_or_written_beside_a_sketch(folder: Path, path: Path, answer: dps.Answer) -> None:
    """Whoever can write there, or made the folder, would choose the answers."""
    dps.open(path).fraction(WHERE)
    assert [each.name for each in path.parent.iterdir()] == ["a.sketch"]
    [kept] = folder.iterdir()
    path.with_name("a.sketch.fit").write_bytes(kept.read_bytes()[::-1])
    assert_same(dps.open(path).fraction(WHERE), answer)


def test_a_view_without_a_file_keeps_nothing(folder: Path, sketch: dps.ReleasedSketch) -> None:
    dps.View(sketch).fraction(WHERE)
    assert not list(folder.iterdir())


def test_rows_wait_for_no_refits(folder: Path, path: Path, answer: dps.Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors do: refits are made for the first of them, and kept with the fit."""
    with monkeypatch.context() as without:
        without.setattr(released_products, "refits", lambda *_: pytest.fail("refitted"))
        drawn = dps.open(path).sample(1000)
        never(monkeypatch)
        assert dps.open(path).sample(1000).equals(drawn)
    assert_same(dps.open(path).fraction(WHERE), answer)
    monkeypatch.setattr(released_products, "refits", lambda *_: pytest.fail("refitted again"))
    assert_same(dps.open(path).fraction(WHERE), answer)
    assert dps.open(path).sample(1000).equals(drawn)


def test_two_columns_need_no_mixture(
    folder: Path, path: Path, answer: dps.Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three do: mixtures are made for the first of them, and kept with the fit."""
    with monkeypatch.context() as without:
        without.setattr(joint_fit, "fit_mixture", lambda *_: pytest.fail("mixture fitted"))
        assert_same(dps.open(path).fraction(WHERE), answer)
    never(monkeypatch)
    three = dps.open(path).fraction(f"{WHERE} and y < 0.5")
    monkeypatch.setattr(joint_fit, "fit_mixture", lambda *_: pytest.fail("mixture fitted again"))
    assert_same(dps.open(path).fraction(f"{WHERE} and y < 0.5"), three)
    assert_same(dps.open(path).fraction(WHERE), answer)


def test_a_flipped_bit_is_noticed_and_the_file_replaced(
    folder: Path, path: Path, answer: dps.Answer, models: tuple[Products, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "fit_released", lambda sketch: cache.with_fit(sketch, models[0], lambda: models[1:]))
    dps.open(path).fraction(WHERE)
    [kept] = folder.iterdir()
    good = kept.read_bytes()
    places = np.random.default_rng(SEED).integers(0, 8 * len(good), 20)
    for damaged in (*(_flipped(good, int(place)) for place in places), b"", good[:40], good[:-1], good + b"0"):
        kept.write_bytes(damaged)
        assert_same(dps.open(path).fraction(WHERE), answer)
        assert kept.read_bytes() == good


def _flipped(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


@pytest.mark.parametrize("change", ["shape", "nan", "group", "fewer", "none", "number", "text", "dimensions", "whole"])
def test_a_fit_with_wrong_numbers_is_not_used(
    folder: Path,
    path: Path,
    answer: dps.Answer,
    models: tuple[Products, ...],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """Whatever its digest says."""
    cache._write(folder / "a", b"", models)
    tensors = load((folder / "a").read_bytes()[32:])
    (folder / "a").unlink()
    if change == "shape":
        tensors["0.0.within"] = tensors["0.0.within"][:-1].copy()
    elif change in ("nan", "group"):
        name = "0.0.components" if change == "nan" else "0.0.groups"
        tensors[name] = np.full_like(tensors[name], np.nan)
    elif change == "fewer":
        tensors = {name: each for name, each in tensors.items() if not name.startswith("1.")}
    elif change == "none":
        tensors = {}
    elif change == "number":
        tensors["0.0.smoothing"] = np.empty(0)
    elif change == "text":
        tensors["0.x.groups"] = np.zeros(1)
    elif change == "dimensions":
        tensors["0.weights"] = np.array(1.0)
    elif change == "whole":
        tensors["0.0.offsets"] = tensors["0.0.offsets"].astype(np.int8)
    content, key = save(tensors), cache._key(dps.open(path).released)
    forged = folder / f"{hashlib.sha256(key).hexdigest()}.fit"
    forged.write_bytes(cache._sealed(key, content) + content)
    fitted: list[dps.ReleasedSketch] = []

    def fit(sketch: dps.ReleasedSketch) -> released_products.ReleasedProducts:
        fitted.append(sketch)
        return cache.with_fit(sketch, models[0], lambda: models[1:])

    monkeypatch.setattr(cache, "fit_released", fit)
    assert_same(dps.open(path).fraction(WHERE), answer)
    assert len(fitted) == 1


def test_the_fit_of_another_release_is_not_used(folder: Path, path: Path, tmp_path: Path) -> None:
    dps.open(path).fraction(WHERE)
    [first] = folder.iterdir()
    other = released(1000)
    other.save(tmp_path / "b.sketch")
    expected = dps.open(tmp_path / "b.sketch").fraction(WHERE)
    [second] = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert_same(dps.open(tmp_path / "b.sketch").fraction(WHERE), expected)


def test_a_sketch_may_be_gone_before_the_fit(folder: Path, path: Path, answer: dps.Answer) -> None:
    opened = dps.open(path)
    path.unlink()
    path.parent.rmdir()
    assert_same(opened.fraction(WHERE), answer)


@pytest.mark.parametrize("obstacle", ["none", "gone", "a folder"])
def test_questions_need_no_cache(
    obstacle: str,
    folder: Path,
    path: Path,
    answer: dps.Answer,
    models: tuple[Products, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "fit_released", lambda sketch: cache.with_fit(sketch, models[0], lambda: models[1:]))
    if obstacle == "none":
        monkeypatch.setattr(cache, "user_folder", lambda _name: None)
    elif obstacle == "gone":
        folder.rmdir()
    else:
        dps.open(path).sample(1)
        [kept] = folder.iterdir()
        kept.unlink()
        kept.mkdir()
    assert_same(dps.open(path).fraction(WHERE), answer)


def test_only_the_latest_fits_stay(folder: Path, models: tuple[Products, ...]) -> None:
    for number in range(cache.KEPT + 3):
        path = folder / f"{number}.fit"
        cache._write(path, b"", models[:1])
        os.utime(path, (number, number))
    kept = {each.name for each in folder.iterdir()}
    assert kept == {f"{number}.fit" for number in range(3, cache.KEPT + 3)}
