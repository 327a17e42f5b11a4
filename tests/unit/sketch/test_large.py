"""Large tables: four bytes a counter, chunks of noise, files that are written in blocks and mapped when read."""

from __future__ import annotations

import math
import mmap
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import dpsketch as dps
from conftest import TestStream, mixed_table
from dpsketch.errors import MergeError, RecipeError
from dpsketch.maps.base import LARGE, Sums
from dpsketch.noise.laplace import discrete_laplace
from dpsketch.sketch.raw import RawPart
from dpsketch.sketch.release import noisy_sums

WIDTH = LARGE // 4
RECIPE = dps.Recipe(
    [dps.Part(dps.Grid(rows=5, width=WIDTH), 0.5), dps.Part(dps.Count(), 0.2), dps.Part(dps.Histogram(bins=4), 0.3)]
)
BUDGET = dps.Budget(1.0)


def noise_added(raw: dps.RawSketch) -> tuple[Sums, ...]:
    return noisy_sums(raw.bound.calibrated(BUDGET), raw.bound.maps, [part.sums for part in raw.parts], TestStream())


def sketch(rows: int = 1000, seed: int = 1, recipe: dps.Recipe = RECIPE, threads: int = 2) -> dps.RawSketch:
    facts = {"privacy": {"rows": rows}, "columns": {"height": {"kind": "number", "lower": 1.0, "upper": 2.5}}}
    table = mixed_table(1000, seed).select(["height"])
    return dps.accumulate(table, dps.Schema.from_dict(facts), recipe, dps.Local(threads, batch_rows=100))


def released(raw: dps.RawSketch, epsilon: float = 1.0) -> dps.ReleasedSketch:
    return dps.release(raw, dps.Budget(epsilon), dps.Ledger("sqlite://"), "large")


def with_table(raw: dps.RawSketch, sums: Sums) -> dps.RawSketch:
    return replace(raw, parts=(RawPart(raw.parts[0].map, sums), *raw.parts[1:]))


def mapped(sums: Sums) -> bool:
    """Whether an array's memory is a file's."""
    base: Any = sums
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return isinstance(base, mmap.mmap)


@pytest.fixture(scope="module")
def raw() -> dps.RawSketch:
    return sketch()


def test_four_bytes_follow_from_public_numbers_and_hold_the_same_sums(raw: dps.RawSketch) -> None:
    assert [part.sums.dtype for part in raw.parts] == [np.int32, np.int64, np.int64]
    wide = sketch(rows=2**30)
    assert wide.parts[0].sums.dtype == np.int64
    assert (wide.parts[0].sums == raw.parts[0].sums).all()
    assert sketch(rows=2**30 - 1).parts[0].sums.dtype == np.int32
    assert sketch(recipe=dps.Recipe([dps.Part(dps.Grid(), 1.0)])).parts[0].sums.dtype == np.int64


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_a_table(threads: int, raw: dps.RawSketch) -> None:
    assert sketch(threads=threads).parts[0].sums.tobytes() == raw.parts[0].sums.tobytes()


def test_files_round_trip_and_are_mapped(raw: dps.RawSketch, tmp_path: Path) -> None:
    raw.save(tmp_path / "a.raw")
    again = dps.RawSketch.load(tmp_path / "a.raw")
    noisy = released(again)
    noisy.save(tmp_path / "a.sketch")
    view = dps.open(tmp_path / "a.sketch")
    for before, after in ((raw.parts, again.parts), (noisy.parts, view.released.parts)):
        assert [part.sums.dtype for part in after] == [np.int32, np.int64, np.int64]
        assert all((one.sums == two.sums).all() for one, two in zip(before, after, strict=True))
        assert [mapped(part.sums) for part in after] == [True, False, False]
        assert after[0].sums.flags.aligned
        assert not after[0].sums.flags.writeable
    assert abs(view.count().value - 1000) < 100
    view.released.save(tmp_path / "a.sketch", force=True)
    assert (view.released.parts[0].sums == noisy.parts[0].sums).all(), "the old file stays while it is in use"


def test_the_safetensors_library_reads_our_files(raw: dps.RawSketch, tmp_path: Path) -> None:
    raw.save(tmp_path / "a.raw")
    tensors = load_file(tmp_path / "a.raw")
    digest = tensors.pop("sha256")
    assert digest.tobytes() == (tmp_path / "a.raw").read_bytes()[-32:]
    assert {name: sums.tobytes() for name, sums in tensors.items()} == {
        f"part.{i}": part.sums.tobytes() for i, part in enumerate(raw.parts)
    }
    with safe_open(tmp_path / "a.raw", framework="numpy") as file:
        assert set(file.metadata()) == {"dpsketch"}
        assert file.offset_keys() == ["part.1", "part.2", "part.0", "sha256"], "eight bytes first, the digest last"


def test_large_sums_of_eight_bytes_are_mapped_too(tmp_path: Path) -> None:
    wide = sketch(rows=2**31)
    wide.save(tmp_path / "a.raw")
    sums = dps.RawSketch.load(tmp_path / "a.raw").parts[0].sums
    assert sums.dtype == np.int64
    assert mapped(sums)
    assert (sums == wide.parts[0].sums).all()


def test_chunks_draw_the_same_noise_as_one_call(raw: dps.RawSketch) -> None:
    noisy, stream = noise_added(raw), TestStream()
    for part, sums, stated in zip(raw.parts, noisy, released(raw).parts, strict=True):
        assert sums.dtype == part.sums.dtype
        assert (sums == part.sums + discrete_laplace(part.map.size, stated.noises[0].scale, stream)).all()


def test_noise_wraps_in_the_ring_of_the_sums(raw: dps.RawSketch) -> None:
    """One record more moves a counter by one modulo 2^32, also where it wraps: the noisy sums show no more of it."""
    size = raw.parts[0].map.size
    below, above = (noise_added(with_table(raw, np.full(size, edge, np.int32)))[0] for edge in (2**31 - 1, -(2**31)))
    assert below.dtype == above.dtype == np.int32
    assert (below < 0).any()
    assert (below > 0).any()
    assert (above - below == 1).all()


def test_noise_without_room_is_refused_before_anything_is_spent(raw: dps.RawSketch) -> None:
    ledger = dps.Ledger("sqlite://")
    with pytest.raises(RecipeError, match="1000 declared rows and the noise do not fit 31 bits") as error:
        dps.release(raw, dps.Budget(1e-7), ledger, "a")
    assert "raise epsilon" in str(error.value)
    assert ledger.accounts() == ()
    assert released(sketch(rows=2**31), 1e-7).parts[0].sums.dtype == np.int64
    assert released(sketch(rows=2**30 - 1), 1e-6).parts[0].sums.dtype == np.int32


def test_a_study_shares_large_sums(raw: dps.RawSketch) -> None:
    study = dps.release(raw, dps.Budget(math.inf))
    assert np.shares_memory(study.sums[0], raw.parts[0].sums)
    assert not study.sums[0].flags.writeable
    assert raw.parts[0].sums.flags.writeable
    assert not np.shares_memory(study.sums[2], raw.parts[2].sums)


def test_mapped_tables_merge_in_four_bytes(raw: dps.RawSketch, tmp_path: Path) -> None:
    other = sketch(seed=2)
    for name, one in (("a", raw), ("b", other)):
        one.save(tmp_path / f"{name}.raw")
        released(one).save(tmp_path / f"{name}.sketch")
    kinds: list[Callable[[Path], Any]] = [dps.RawSketch.load, dps.ReleasedSketch.load]
    for suffix, load in zip(("raw", "sketch"), kinds, strict=True):
        first, second = load(tmp_path / f"a.{suffix}"), load(tmp_path / f"b.{suffix}")
        both = first.merge(second).parts[0].sums
        assert both.dtype == np.int32
        assert (both == first.parts[0].sums + second.parts[0].sums).all()


def test_raw_tables_are_never_widened(raw: dps.RawSketch) -> None:
    """A counter that wrapped would jump by 2^32 for one record."""
    many = sketch(rows=2**30 - 1, seed=2)
    both = many.merge(sketch(rows=2**30 - 1, seed=3))
    assert both.parts[0].sums.dtype == np.int32
    for one, two in ((both, raw), (sketch(rows=2**31, seed=4), raw), (raw, sketch(rows=2**31, seed=4))):
        with pytest.raises(
            MergeError, match=r"declared rows do not fit counters of four bytes(.|\n)*merge their releases"
        ):
            one.merge(two)


def test_eight_bytes_become_four_modulo_2_to_the_32(raw: dps.RawSketch) -> None:
    """A file may hold eight bytes where four do."""
    other = sketch(seed=2)
    sums = np.arange(other.parts[0].map.size) * 2**20
    for one, two in ((with_table(other, sums), raw), (raw, with_table(other, sums))):
        both = one.merge(two).parts[0].sums
        assert both.dtype == np.int32
        assert ((both - raw.parts[0].sums - sums) % 2**32 == 0).all()


def test_released_tables_are_widened_where_they_must(raw: dps.RawSketch) -> None:
    one, two, three = (released(sketch(rows=10**9, seed=seed)) for seed in (2, 3, 4))
    both = one.merge(two)
    assert both.sums[0].dtype == np.int32
    wide = both.merge(three)
    assert wide.sums[0].dtype == np.int64
    assert (wide.sums[0] == both.sums[0].astype(np.int64) + three.sums[0]).all()
    assert wide.merge(released(raw)).sums[0].dtype == np.int64
    noisy = released(raw, 8e-7).merge(released(sketch(seed=5), 8e-7))
    assert noisy.sums[0].dtype == np.int64, "twice the noise does not fit"


PEAK = """
import sys
import pyarrow as pa
import dpsketch as dps

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

def run(width, path):
    facts = {"privacy": {"rows": 1000}, "columns": {"x": {"kind": "number", "lower": 0, "upper": 1}}}
    recipe = dps.Recipe([dps.Part(dps.Grid(rows=4, width=width), 1.0)])
    raw = dps.accumulate(pa.table({"x": [0.1, 0.9]}), dps.Schema.from_dict(facts), recipe)
    raw.parts[0].sums[:] += 1
    before = peak()
    released = dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a")
    released.save(path)
    dps.open(path)
    return peak() - before

run(1 << 20, sys.argv[1] + "/warm.sketch")
print(run(1 << 22, sys.argv[1] + "/large.sketch"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_release_takes_memory_for_one_table(tmp_path: Path) -> None:
    """2^24 counters of four bytes: release, save and open add one table to the raw one, and no second copy."""
    script = subprocess.run([sys.executable, "-c", PEAK, tmp_path], check=True, capture_output=True, text=True)
    table = (1 << 24) * 4 / 1024
    assert 0.8 * table < float(script.stdout) < 1.6 * table
