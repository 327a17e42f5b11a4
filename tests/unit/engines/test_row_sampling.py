"""Sampled rows: which ones, what they do to sensitivity, statement, merging and answers."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import dpsketch as dps
from conftest import TestStream
from dpsketch.encoding.records import Records
from dpsketch.engines.row_sampling import Reservoir, kept_rows, kept_units
from dpsketch.errors import MergeError, RecipeError
from dpsketch.maps.base import Sensitivity
from dpsketch.schema.relation import Relation
from dpsketch.sketch.privacy_statement import statement_text

ALPHA = 1e-6
COLUMNS = {"x": {"kind": "integer", "lower": 0, "upper": 9}}
SCHEMA = dps.Schema.from_dict({"privacy": {"rows": 5000}, "columns": COLUMNS})
UNITS = dps.Schema.from_dict({"privacy": {"rows": 5000, "unit": "id", "max_rows_per_unit": 4}, "columns": COLUMNS})
PARTS = [dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(bins=16), 0.5)]
TABLE = pa.table({"x": np.arange(4000) % 10, "id": np.arange(4000) // 4})
RATE = dps.RowSampling(rate=0.25)
COUNT = dps.RowSampling(count=300)


def sketch(sampling: dps.RowSampling | None, schema: dps.Schema = SCHEMA, table: pa.Table = TABLE) -> dps.RawSketch:
    return dps.accumulate(table, schema, dps.Recipe(PARTS, sampling=sampling), dps.Local(2, 128))


def sampled(raw: dps.RawSketch) -> int:
    return int(raw.parts[0].sums[0])


class Keys:
    """Chosen 64-bit keys, or 32-bit words, one after another."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, np.uint32)

    def words(self, count: int) -> np.ndarray:
        drawn, self._words = self._words[:count], self._words[count:]
        return drawn


def reservoir(count: int, rows: list[int], keys: list[int], batches: list[int]) -> list[int]:
    """The sample, sorted, of rows that come with keys, in batches."""
    found = Reservoir(count, Keys([word for key in keys for word in divmod(key, 2**32)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpsketch.engines.row_sampling._SLACK", 3)  # select on the way
        for part in np.split(np.array(rows, np.int16), batches):
            found.add(Records(part[None, :]))
        kept = found.kept()
    assert kept is not None
    return sorted(kept.codes[0].tolist())


def test_a_rate_keeps_rows_independently() -> None:
    low, high = scipy.stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], 4000, 0.25)
    found = [sampled(sketch(RATE)) for _ in range(5)]
    assert all(low <= count <= high for count in found)
    assert len(set(found)) > 1
    assert sampled(sketch(dps.RowSampling(rate=1))) == 4000


def test_a_rate_keeps_whole_units() -> None:
    low, high = scipy.stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], 1000, 0.25)
    found = sampled(sketch(RATE, UNITS))
    assert found % 4 == 0
    assert low <= found / 4 <= high
    units = np.repeat(np.arange(50), 3)
    kept = kept_units(units, 2**31, TestStream())
    assert 0 < len(set(units[kept].tolist())) < 50
    assert (np.bincount(units[kept])[np.unique(units[kept])] == 3).all()
    assert sampled(sketch(RATE, UNITS, TABLE.slice(0, 0))) == 0


def test_words_are_compared_with_the_exact_rate() -> None:
    sampling = dps.RowSampling(rate=0.1)
    assert sampling.exact_rate == Fraction(429496730, 2**32)
    words = [0, sampling.threshold - 1, sampling.threshold, 2**32 - 1]
    assert kept_rows(4, sampling.threshold, Keys(words)).tolist() == [0, 1]
    assert kept_rows(4, dps.RowSampling(rate=1.0).threshold, Keys(words)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("rows", [0, 1, 299, 300, 301, 4000])
def test_a_count_keeps_so_many(rows: int) -> None:
    assert sampled(sketch(COUNT, table=TABLE.slice(0, rows))) == min(rows, 300)


def test_every_row_is_as_likely_and_rows_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.engines.row_sampling._SLACK", 7)
    stream, times = TestStream(), np.zeros(40, int)
    for _ in range(3000):
        found = Reservoir(10, stream)
        for part in np.split(np.arange(40, dtype=np.int16), [1, 5, 25, 38]):
            found.add(Records(part[None, :]))
        kept = found.kept()
        assert kept is not None
        assert len(set(kept.codes[0].tolist())) == 10
        times[kept.codes[0]] += 1
    low, high = scipy.stats.binom.ppf([ALPHA / 80, 1 - ALPHA / 80], 3000, 0.25)
    assert ((low <= times) & (times <= high)).all()


@given(
    keys=st.lists(st.sampled_from([0, 1, 2, 3, 2**32, 2**63, 2**64 - 1]), min_size=1, max_size=30),
    count=st.integers(1, 12),
    cuts=st.lists(st.integers(0, 30), max_size=3),
    place=st.integers(0, 30),
)
def test_a_row_more_adds_or_replaces_at_most_one(keys: list[int], count: int, cuts: list[int], place: int) -> None:
    """The coupling of the proof, with many equal keys: the same keys for the same rows, whatever the batches."""
    rows, place = list(range(1, len(keys) + 1)), min(place, len(keys))
    before = reservoir(count, rows, keys, sorted(cuts))
    more_rows, more_keys = [*rows[:place], 99, *rows[place:]], [*keys[:place], 2, *keys[place:]]
    after = reservoir(count, more_rows, more_keys, [])
    gone, new = set(before) - set(after), set(after) - set(before)
    assert new <= {99}
    assert len(gone) <= len(new)
    assert len(after) == min(count, len(more_rows))
    assert gone == set() or len(before) == count


def test_the_sensitivity_of_a_count_covers_a_swap() -> None:
    recipe = dps.Recipe([*PARTS[:1], dps.Part(dps.Histogram(bins=16), 0.25), dps.Part(dps.Fourier(size=3), 0.25)])
    counted, rated = (dps.Recipe(recipe.parts, sampling=sampling).bind(SCHEMA) for sampling in (COUNT, RATE))
    count, histogram, fourier = counted.maps
    assert counted.sensitivity(count) == Sensitivity(1, 1)
    assert counted.sensitivity(histogram) == Sensitivity(2, 2)
    assert counted.sensitivity(fourier) == fourier.sensitivity(Relation.REPLACE_ONE)
    for bound in (count, histogram, fourier):
        assert rated.sensitivity(bound) == bound.sensitivity(Relation.ADD_REMOVE)
    # A swap of two different values attains the histogram's bound: the bound of a row added would not do.
    swap = np.zeros(histogram.size, np.int64)
    histogram.accumulate(Records(np.array([[-32767]], np.int16)), swap)
    swap = -swap
    histogram.accumulate(Records(np.array([[32767]], np.int16)), swap)
    assert np.abs(swap).sum() == 2 > histogram.sensitivity(Relation.ADD_REMOVE).l1


def test_noise_and_statement_follow_the_sampling(tmp_path: Path) -> None:
    for sampling, l1, words in (
        (None, 1, None),
        (RATE, 1, "probability 0.25 (= 1/4)"),
        (COUNT, 2, "300 at random without replacement"),
    ):
        path = tmp_path / f"{l1}{words is None}.sketch"
        released = dps.release(sketch(sampling), dps.Budget(1.0), dps.Ledger(tmp_path / "l.db"), repr(sampling))
        released.save(path)
        again = dps.ReleasedSketch.load(path)
        assert again.recipe == released.recipe
        assert again.recipe.sampling == sampling
        (noise,) = again.parts[1].noises
        assert again.statement["parts"][1]["noise"][0]["sensitivity"] == noise.sensitivity == l1
        inner = math.log1p(4 * math.expm1(1)) if sampling == RATE else 1.0
        assert float(noise.scale) == pytest.approx(2 * l1 / inner, rel=1e-9)
        text = statement_text(again.statement)
        assert ("no amplification is claimed" in text) == (sampling == COUNT)
        assert ("records that are not sampled" in text) == (sampling == RATE)
        assert words is None or words in text
        assert ("sampling" in again.recipe.to_dict()) == (sampling is not None)


def test_rates_merge_and_counts_do_not() -> None:
    merged = sketch(RATE).merge(sketch(RATE))
    assert merged.recipe.sampling == RATE
    with pytest.raises(MergeError, match="different recipes"):
        sketch(RATE).merge(sketch(dps.RowSampling(rate=0.5)))
    with pytest.raises(MergeError, match="different recipes"):
        sketch(RATE).merge(sketch(None))
    with pytest.raises(MergeError, match="do not merge"):
        sketch(COUNT).merge(sketch(COUNT))


def test_counts_and_sums_are_of_the_table() -> None:
    for sampling, how in ((RATE, "divided by its rate"), (COUNT, "declared number of rows")):
        view = dps.View(dps.release(sketch(sampling), dps.Budget(float("inf"))))
        total, part, mean = view.count(), view.count("x < 5"), view.mean("x")
        assert how in total.how
        assert how in part.how
        assert how in view.sum("x").how
        assert how not in mean.how
        assert how in view.sql("select count(*) from sketch").how[0]
        assert how in view.sql("select sum(x) from sketch").how[0]
        rows = 4000 if sampling is RATE else 5000
        assert abs(total.value - rows) <= 6 * total.stderr
        assert abs(part.value - rows / 2) < 0.2 * rows
        assert abs(mean.value - 4.5) < 1.2
    assert total.stderr == 0


def test_the_error_of_the_count_covers_noise_and_sampling() -> None:
    rate, rows = 0.25, 4000
    raw = sketch(RATE)
    exact = dps.View(dps.release(raw, dps.Budget(float("inf")))).count()
    assert exact.value == sampled(raw) / rate
    assert exact.stderr == pytest.approx(np.sqrt(sampled(raw) * (1 - rate)) / rate)
    found = [sampled(sketch(RATE)) / rate for _ in range(200)]
    deviation = float(np.std(found, mean=rows))
    low, high = np.sqrt(scipy.stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], 200) / 200)
    assert low <= deviation / np.sqrt(rows * (1 - rate) / rate) <= high
    units = sketch(RATE, UNITS)
    worst = dps.View(dps.release(units, dps.Budget(float("inf")))).count().stderr
    assert worst == pytest.approx(np.sqrt(4 * sampled(units) * (1 - rate)) / rate)


def test_kernel_sums_count_sampled_rows_several_times() -> None:
    race = [dps.Part(dps.Race(rows=50, width=50), 1.0)]
    answers = []
    for sampling in (None, RATE, COUNT):
        raw = dps.accumulate(TABLE, SCHEMA, dps.Recipe(race, sampling=sampling))
        answers.append(dps.View(dps.release(raw, dps.Budget(float("inf")))).kernel_sum([[5.0]]))
    assert answers[1].value == pytest.approx(answers[0].value, rel=0.3)
    assert answers[2].value == pytest.approx(answers[0].value * 5000 / 4000, rel=0.4)
    assert "counts 4 times" in answers[1].how


def test_sampling_and_masks_together() -> None:
    masked = dps.Subsampled(dps.OneBitFourier(size=6), 2)
    recipe = dps.Recipe([dps.Part(dps.Grouped(masked, "x"), 1.0)], sampling=dps.RowSampling(rate=0.001))
    for _ in range(3):  # most batches have no row left
        assert np.abs(dps.accumulate(TABLE, SCHEMA, recipe, dps.Local(2, 50)).parts[0].sums).sum() < 4 * 100


def test_a_recipe_file_may_sample(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    for text, expected in (("rate = 0.1", dps.RowSampling(rate=0.1)), ("count = 7", dps.RowSampling(count=7))):
        path.write_text(f'[sampling]\n{text}\n[[parts]]\nmap = "count"\nshare = 1.0\n')
        assert dps.Recipe.load(path) == dps.Recipe([dps.Part(dps.Count(), 1.0)], sampling=expected)
    path.write_text('[sampling]\nshare = 1\n[[parts]]\nmap = "count"\nshare = 1.0\n')
    with pytest.raises(RecipeError, match="rate and count"):
        dps.Recipe.load(path)


def test_the_command_line_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    from dpsketch.cli.app import main

    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "t.parquet")
    Path("s.toml").write_text('[privacy]\nrows = 5000\n[columns.x]\nkind = "integer"\nlower = 0\nupper = 9\n')
    Path("r.toml").write_text('[sampling]\ncount = 300\n[[parts]]\nmap = "count"\nshare = 1.0\n')
    options = ["--schema", "s.toml", "--recipe", "r.toml", "--epsilon", "1", "-o", "t.raw"]
    monkeypatch.setattr("sys.argv", ["dpsketch", "accumulate", "t.parquet", *options])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert sampled(dps.RawSketch.load("t.raw")) == 300


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dps.RowSampling(), "either rate or count"),
        (lambda: dps.RowSampling(rate=0.1, count=3), "either rate or count"),
        (lambda: dps.RowSampling(rate=0), "rate must be from"),
        (lambda: dps.RowSampling(rate=1.5), "rate must be from"),
        (lambda: dps.RowSampling(rate=float("nan")), "rate must be from"),
        (lambda: dps.RowSampling(rate=True), "rate must be from"),
        (lambda: dps.RowSampling(rate="half"), "rate must be from"),  # type: ignore[arg-type]
        (lambda: dps.RowSampling(count=0), "count must be a whole number from 1"),
        (lambda: dps.RowSampling(count=2.5), "count must be a whole number from 1"),  # type: ignore[arg-type]
        (lambda: dps.Recipe(PARTS, sampling=0.1), "sampling must be RowSampling"),  # type: ignore[arg-type]
        (lambda: sketch(COUNT, UNITS), "cannot be sampled with the unit column 'id'"),
    ],
)
def test_bad_input(make: object, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make()  # type: ignore[operator]
