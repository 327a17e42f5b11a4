"""Every map answers readers' questions truthfully, and none forgets an answer that its features give."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import dpsketch as dps
from conftest import SEED
from dpsketch.encoding.records import Records
from dpsketch.maps.base import BoundMap
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import MISSING
from dpsketch.schema.relation import Relation
from map_examples import EXAMPLES, SCHEMA, records_of

ROWS = 200
COLUMNS = [column.name for column in SCHEMA.scalars]
BOUND = [example.bind(SCHEMA) for example in EXAMPLES]
every_map = pytest.mark.parametrize("bound", BOUND, ids=lambda bound: repr(bound.description))
every_core = pytest.mark.parametrize(
    "bound", [bound for bound in BOUND if bound.core is bound], ids=lambda bound: repr(bound.description)
)


@pytest.fixture
def codes() -> Codes:
    codes = np.random.default_rng(SEED).integers(-32767, 32768, (len(COLUMNS), ROWS)).astype(np.int16)
    codes[:, :5] = MISSING
    return codes


def features(bound: BoundMap, records: Records) -> Floats:
    """Of the sums, in their integer units."""
    return bound.features(records) * bound.grid


@every_map
def test_wrappers_answer_as_the_map_inside(bound: BoundMap, codes: Codes) -> None:
    core, one, records = bound.core, bound.ungrouped, records_of(codes)
    assert core.core is core
    assert one.grouped_by is None
    assert (one.groups, one.size, bound.size) == (1, core.size, bound.groups * core.size)
    for question in ("separates_points", "counter_table", "title", "term", "sums_per_term"):
        assert getattr(bound, question) == getattr(core, question)
    assert (bound.grouped_by is not None) == (bound.groups > 1) == (one is not bound)
    assert bound.grouped_by is None or bound.grouped_by in bound.columns
    assert np.allclose(one.features(records), bound.rate * core.features(records))
    groups = bound.group_numbers(records)
    own = features(bound, records).reshape(ROWS, bound.groups, -1)
    assert (own[np.arange(ROWS), groups] == features(one, records)).all()
    assert np.count_nonzero(own) == np.count_nonzero(features(one, records))
    if bound.grouped_by is not None:
        assert (bound.group_of(codes[SCHEMA.index(bound.grouped_by)]) == groups).all()


@every_map
def test_blocks_hold_every_sum_once_and_depend_on_their_columns_alone(bound: BoundMap, codes: Codes) -> None:
    blocks = list(bound.sum_blocks())
    edges = [blocks[0].first, *(block.last for block in blocks)]
    assert edges[0] == 0
    assert edges[-1] == bound.size // bound.groups
    assert all(one.last == two.first for one, two in pairwise(blocks))
    assert bound.size % bound.sums_per_term == 0
    records = records_of(codes)
    before = features(bound, records).reshape(ROWS, bound.groups, -1)
    for block in blocks:
        assert set(block.columns) <= set(bound.columns)
        others = codes.copy()
        free = [row for row, name in enumerate(COLUMNS) if name not in block.columns]
        others[free] = codes[free][:, ::-1]
        after = features(bound, Records(others, records.sets)).reshape(before.shape)
        assert (after[:, :, block.first : block.last] == before[:, :, block.first : block.last]).all()


@every_map
def test_sparse_entries_are_the_features(bound: BoundMap, codes: Codes) -> None:
    records, inner = records_of(codes), bound.ungrouped
    for block in bound.sum_blocks():
        entries = inner.sparse_entries(records, block, inner.size)
        if entries is None:
            continue
        assert bound.sparse
        indices, values = entries
        assert bound.counter_table or indices.shape[1] <= inner.entries_per_record
        found = np.zeros((ROWS, inner.size))
        np.add.at(found, (np.arange(ROWS)[:, None], indices), values)
        own = slice(block.first, block.last)
        assert np.allclose(found[:, own], inner.features(records)[:, own], atol=1e-12)


@every_map
def test_the_number_of_records_is_in_the_sums(bound: BoundMap, codes: Codes) -> None:
    sums = features(bound, records_of(codes))
    count = bound.record_count
    if count is not None:
        assert sums[:, : count.sums].sum() == pytest.approx(count.times * ROWS)
    if bound.only_counts:
        assert count is not None
        assert (sums == 1).all()
    first = sums[:, : next(bound.sum_blocks()).last].sum(axis=1)
    each_once = (first == first[0]).all() and bound.groups == 1 and (sums >= 0).all() and first[0] > 0
    # A table of columns counts its records too, but marginals beside it know their number with less noise.
    assert count is not None or not each_once or isinstance(bound.description, dps.Pairs | dps.Triples)


@every_core
def test_the_sums_of_columns_are_those_of_their_codes(bound: BoundMap, codes: Codes) -> None:
    own = features(bound, records_of(codes))
    present = np.where(codes == MISSING, 0, codes).astype(np.float64)
    for name, index in bound.column_totals.items():
        assert np.allclose(own[:, index], present[SCHEMA.index(name)])
    known = set(bound.column_totals.values())
    for values in present:
        assert set(np.flatnonzero((np.abs(own.T - values) < 1e-6).all(axis=1)).tolist()) <= known


@every_core
def test_maps_that_separate_points_say_so(bound: BoundMap, codes: Codes) -> None:
    """Squares, products and the like are the same for a record and its mirror image; a sum alone says too little.
    Means beside products tell the two apart, but still fit many distributions.
    """
    if getattr(bound.description, "means", False):
        assert not bound.separates_points
        return
    mirrored = np.where(codes == MISSING, MISSING, -codes.astype(np.int64)).astype(np.int16)
    records = records_of(codes)
    one, two = bound.features(records), bound.features(Records(mirrored, records.sets))
    for block in bound.sum_blocks():
        if not set(block.columns) & set(COLUMNS) or block.last - block.first == 1:
            continue
        own = slice(block.first, block.last)
        apart = (np.abs(one[:, own] - two[:, own]) > 1e-9).any(axis=1)
        assert bound.separates_points == (apart.mean() > 0.25)


@every_map
def test_noise_has_a_coordinate_for_each_sum_unless_the_map_says_why_not(bound: BoundMap) -> None:
    alone = bound.noise_coordinates([bound])
    assert alone == (1 if bound.counter_table else bound.size)
    beside = [dps.Marginals(bins=1).bind(SCHEMA), bound]
    assert bound.noise_coordinates(beside) == alone or bound.read_as_tables(beside)


@every_map
def test_a_release_shows_a_map_as_it_is_unless_something_is_left_to_choose(bound: BoundMap) -> None:
    shown = bound.noised()
    assert bound.adaptive or shown is bound
    for relation in Relation:
        assert shown.sensitivity(relation).l1 <= bound.sensitivity(relation).l1
    if not bound.adaptive:
        sums = np.arange(4)
        assert bound.settle([], 1.0) is bound
        assert bound.coarsen(sums, bound) is sums
        assert not any(bound.depends_on(example.bind(SCHEMA)) for example in EXAMPLES)
    assert bound.description.unsettled().unsettled() == bound.description.unsettled()
    settled = isinstance(bound.description, dps.Pairs | dps.Triples | dps.Contrasts | dps.CellCounts) or bound.size == 0
    if not settled:
        assert bound.description.unsettled() is bound.description
