from __future__ import annotations

from itertools import combinations

import numpy as np

from dpsketch.encoding.records import Records
from dpsketch.maps.tables.cells import EVERY_CODE, HistogramCells
from dpsketch.maps.tables.histogram import Histogram
from dpsketch.schema.columns import HIGHEST, LOWEST, MISSING, Boolean, Category, Integer, Number
from dpsketch.schema.schema import Schema


def test_bins_cover_every_code_and_keep_the_bounds_apart() -> None:
    for column in (
        Number("x", 0, 1),
        Integer("x", 0, 120),
        Integer("x", 0, 9),
        Category("x", ("a", "b")),
        Boolean("x"),
    ):
        cut = HistogramCells(column, 16)
        cells = cut.cells(EVERY_CODE)
        assert cells.max() == cut.missing
        assert cells[0] == cut.missing, "missing has the last bin"
        assert len(np.unique(cells)) == cut.count
        assert (cut.cells(cut.firsts[:-1]) == np.arange(cut.missing)).all()
        if column.levels > 18:
            alone = [np.sum(cells == cells[code - MISSING]) for code in (LOWEST, HIGHEST)]
            assert max(alone) <= 65536 // column.levels + 1


def test_tables_match_a_direct_count(rng: np.random.Generator, schema: Schema) -> None:
    bound = Histogram(ways=2, columns=["age", "sex", "member"], bins=5).bind(schema)
    assert bound.tables == tuple(combinations(["age", "sex", "member"], 2))
    levels = [rng.integers(-1, column.levels, 700) for column in schema.scalars]
    codes = np.stack([column.codes_of(level) for column, level in zip(schema.scalars, levels, strict=True)])
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    assert (bound.features(Records(codes)).sum(axis=0) == sums).all()
    for table, names in enumerate(bound.tables):
        expected = np.zeros(bound.shape(table), np.int64)
        bins = [bound.column_cells[n].cells(codes[schema.index(n)]) for n in names]
        np.add.at(expected, tuple(bins), 1)
        start, stop = bound.offsets[table], bound.offsets[table + 1]
        assert (sums[start:stop] == expected.ravel()).all()
