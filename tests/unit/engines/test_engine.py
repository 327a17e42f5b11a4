from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.engines.engine import Pass, Share
from dpsketch.errors import MergeError, SourceError
from toy_engine import Shuffled

UNITS = {
    "privacy": {"rows": 100, "unit": "id", "max_rows_per_unit": 2},
    "columns": {"x": {"kind": "integer", "lower": 0, "upper": 9}},
}
RECIPE = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Fourier(size=4), 0.5)])
TABLE = pa.table({"id": [str(row % 20) for row in range(100)], "x": np.arange(100) % 10})
(BATCH,) = TABLE.to_batches()


def unit_pass() -> Pass:
    return Pass(dps.Schema.from_dict(UNITS), RECIPE)


def row_pass(sampling: dps.RowSampling | None = None) -> Pass:
    schema = dps.Schema.from_dict(UNITS | {"privacy": {"rows": 100, "unit": "row"}})
    return Pass(schema, dps.Recipe(RECIPE.parts, sampling=sampling))


def rows_of(one_pass: Pass, share: Share) -> pa.RecordBatch:
    return BATCH.take(pa.array(np.flatnonzero(one_pass.row_shares(BATCH, share.count) == share.index)))


def test_what_must_be_brought_together() -> None:
    count = row_pass(dps.RowSampling(count=5))
    assert [each.needs_whole_units for each in (row_pass(), unit_pass(), count)] == [False, True, False]
    assert [each.needs_whole_table for each in (row_pass(), unit_pass(), count)] == [False, False, True]


def test_any_rows_merge_where_a_unit_is_a_row() -> None:
    one_pass = row_pass()
    parts = [one_pass.partial([BATCH.slice(start, 25)]) for start in range(0, 100, 25)]
    total = parts[3].merge(parts[0]).merge(parts[2].merge(parts[1]))
    raw = one_pass.sketch(total)
    assert raw.parts[0].sums.tolist() == [100]
    assert raw.parts[1].sums.tobytes() == one_pass.partial([BATCH]).sums[1].tobytes()


def test_a_unit_is_in_one_share_and_counts_once() -> None:
    one_pass = unit_pass()
    shares = one_pass.row_shares(BATCH, 4)
    assert set(shares.tolist()) == {0, 1, 2, 3}
    assert all(len(set(shares[unit::20].tolist())) == 1 for unit in range(20))
    whole = one_pass.partial([BATCH])
    assert whole.sums[0].tolist() == [40]
    parts = [one_pass.partial([rows_of(one_pass, Share(index, 4))], Share(index, 4)) for index in range(4)]
    total = parts[0].merge(parts[1]).merge(parts[2].merge(parts[3]))
    assert total.sums[1].tobytes() == whole.sums[1].tobytes()


def test_a_unit_cannot_count_twice() -> None:
    """Whatever an engine does: rows of another share, the same share twice, other divisions, no division at all."""
    one_pass, share = unit_pass(), Share(0, 2)
    with pytest.raises(SourceError, match="a row belongs to another share"):
        one_pass.partial([BATCH], share)
    half = one_pass.partial([rows_of(one_pass, share)], share)
    third = one_pass.partial([rows_of(one_pass, Share(1, 3))], Share(1, 3))
    for other in (half, third, one_pass.partial([BATCH.slice(0, 5)])):
        with pytest.raises(MergeError, match="may hold rows of the same units"):
            half.merge(other)


def test_rows_without_a_unit_are_in_any_share() -> None:
    batch = pa.record_batch({"id": pa.array([None, None], pa.string()), "x": [1, 2]})
    assert all(not unit_pass().partial([batch], Share(index, 2)).sums[0].any() for index in range(2))


def test_a_fixed_count_is_drawn_from_one_share() -> None:
    one_pass = row_pass(dps.RowSampling(count=5))
    first, rest = one_pass.partial([BATCH], Share(0, 2)), one_pass.partial([BATCH.slice(0, 0)], Share(1, 2))
    assert first.merge(rest).sums[0].tolist() == [5]
    with pytest.raises(SourceError, match="from the first share alone"):
        one_pass.partial([BATCH], Share(1, 2))
    with pytest.raises(MergeError, match="may hold rows of the same units"):
        first.merge(one_pass.partial([BATCH], Share(0, 2)))


def test_partial_sums_of_different_passes_do_not_mix() -> None:
    one, two = row_pass(), row_pass()
    with pytest.raises(MergeError, match="of different passes"):
        one.partial([BATCH]).merge(two.partial([BATCH]))
    with pytest.raises(MergeError, match="of a different pass"):
        one.sketch(two.partial([BATCH]))
    with pytest.raises(MergeError, match="different map parameters"):
        one.partial([BATCH]).merge(replace(one.partial([BATCH]), fingerprints=("0", "1")))


def test_a_pass_travels_without_its_maps_and_keeps_its_id() -> None:
    one_pass = row_pass()
    assert len(one_pass.maps) == 2
    copy = pickle.loads(pickle.dumps(one_pass))
    assert "maps" not in vars(copy)
    assert copy.fingerprints == one_pass.fingerprints
    assert copy.lineage == one_pass.lineage


def test_partial_sums_travel_and_do_not_show_their_sums() -> None:
    partial = unit_pass().partial([BATCH])
    copy = pickle.loads(pickle.dumps(partial))
    assert [sums.tobytes() for sums in copy.sums] == [sums.tobytes() for sums in partial.sums]
    assert copy.shares == partial.shares
    assert repr(partial) == "PartialSums(2 parts): exact sums, NOT PRIVATE until released"


WORKER = """
import pickle, sys
from toy_engine import folded
sys.stdout.buffer.write(pickle.dumps([folded(*job) for job in pickle.load(sys.stdin.buffer)]))
"""


class InAnotherProcess(Shuffled):
    def map(self, jobs):  # type: ignore[no-untyped-def]
        tests = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", WORKER], input=pickle.dumps(jobs), cwd=tests, capture_output=True, check=True
        )
        return pickle.loads(done.stdout)


def test_another_process_folds_the_same_bytes() -> None:
    schema = dps.Schema.from_dict(UNITS)
    raw = dps.accumulate(TABLE, schema, RECIPE, engine=InAnotherProcess())
    expected = dps.accumulate(TABLE, schema, RECIPE)
    assert [part.sums.tobytes() for part in raw.parts] == [part.sums.tobytes() for part in expected.parts]
