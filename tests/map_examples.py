"""One schema, and examples of every map on it."""

from __future__ import annotations

import numpy as np

import dpsketch as dps
from conftest import MIXED
from dpsketch.encoding.records import IdSets, Records, Words
from dpsketch.maps.base import FeatureMap
from toy_map import Middle

EMBEDDING = dps.Embedding.from_arrays([([[0.5, -0.25], [1, 1], [0.1, 3]], [0.1, 0, -0.2]), ([[1, -1, 0.5]], [0])])
SCHEMA = dps.Schema.from_dict(MIXED | {"columns": MIXED["columns"] | {"friends": {"kind": "set", "universe": 30}}})
EXAMPLES: list[FeatureMap] = [
    dps.Count(),
    dps.Histogram(bins=8),
    dps.Histogram(ways=2, bins=4),
    dps.Histogram(ways=3, columns=["sex", "member", "age"], bins=4),
    dps.Histogram(edges={"age": [18, 40, 65]}),
    dps.Histogram(ways=2, columns=["joined", "age", "sex"], edges={"joined": ["2021-06-30"], "age": [1, 120]}),
    dps.Marginals(bins=8),
    dps.Marginals(columns=["sex", "age", "height"], bins=150),
    dps.Marginals(columns=["income", "joined"], bins=1),
    dps.Marginals(columns=["height"], bins=32768),
    dps.Marginals(bins=8, totals=False),
    dps.Levels(bins=8),
    dps.Levels(columns=["age", "sex", "joined"], bins=2),
    dps.Levels(columns=["height", "sex"], bins=4, dropped=True),
    dps.Levels(bins=3, runs=24),
    dps.AdaptiveMarginals(bins=8),
    dps.AdaptiveMarginals(columns=["sex", "age", "height"], bins=150),
    dps.CellCounts(None, 4, (((1, 2, 60, 61, 90), (60,), (1.5, 0.25, 9)),) + (None,) * 5),
    dps.CellCounts(["sex", "height"], 2, [None, [[1, 7, 8, 33000, 65533], [7, 65533], [0, 1e9, 1]]]),
    dps.Totals(),
    dps.Totals(columns=["income", "height"]),
    dps.Pairs(bins=4),
    dps.Pairs(columns=["member", "age", "sex"], bins=3, pairs=[("age", "sex"), ("member", "age")]),
    dps.Pairs(columns=["height", "sex"], bins=2, groups=[(0, 0, 1, 1, 0), (1, 0, 0, 2)]),
    dps.Pairs(columns=["height", "sex", "age"], bins=2, pool=True, most=2, hints=["sex"]),
    dps.Pairs(bins=4, pool=True, contrasts=True),
    dps.Pairs(bins=4, tapered=True),
    dps.Pairs(bins=4, pool=True, tapered=True),
    dps.Pairs(bins=4, important=[("sex", "age"), ("member", "joined")], times=3),
    dps.Pairs(bins=4, pool=True, important=[("age", "sex")], times=8),
    dps.Pairs(["height", "sex", "age"], 2, pool=True, most=2, important=[("sex", "age")], times=2, hints=["height"]),
    dps.Contrasts(halves=[(0, 1, 1), (0, 1, 1, 0, 1, 0, 1)], columns=["member", "height"], bins=4, tapered=True),
    dps.Contrasts(halves=[(0, 1, 1), (0, 1, 1, 0, 1)], columns=["member", "height"], bins=2),
    dps.Contrasts(
        halves=[(0, 0, 1, 1, 0), (1, 0, 1, 0), (0, 0, 1, 1, 1), (1, 1, 0)],
        columns=["height", "sex", "income", "member"],
        bins=2,
        pairs=[("height", "sex"), ("member", "height")],
    ),
    dps.Triples(bins=2),
    dps.Triples(columns=["height", "sex", "age"], bins=2, groups=[(0, 0, 1, 1, 0), (1, 0, 0, 2), (0, 1, 2, 0, 1)]),
    dps.Triples(columns=["height", "sex", "age"], bins=2, pool=True),
    dps.Fourier(size=7, seed=1),
    dps.Fourier(size=4, seed=2, columns=["height"], radii=(1, 100)),
    dps.Fourier(size=70, seed=3, structure="hadamard"),
    dps.Fourier(size=7, seed=1, kernel="gaussian", width=0.2),
    dps.Fourier(size=5, seed=4, columns=["height"], kernel="laplacian", width=0.002),
    dps.Fourier(size=70, seed=3, kernel="adapted", width=0.1, structure="hadamard"),
    dps.OneBitFourier(size=7, seed=1),
    dps.OneBitFourier(size=4, columns=["height", "age"]),
    dps.OneBitFourier(size=70, seed=3, structure="hadamard"),
    dps.OneBitFourier(size=7, seed=1, kernel="laplacian", width=0.2),
    dps.OneBitFourier(size=70, seed=3, kernel="gaussian", width=0.5, structure="hadamard"),
    dps.Quadratic(size=7, seed=1),
    dps.Quadratic(size=16, seed=2, radius=2.0, directions="hadamard"),
    dps.Quadratic(size=4, columns=["height", "age", "sex"], radius=0.3, directions="hadamard"),
    dps.Quadratic(size=3, columns=["height"], radius=32),
    dps.Quadratic(size=16, seed=2, radius=2.0, directions="hadamard3"),
    dps.SecondMoments(),
    dps.SecondMoments(columns=["height", "age", "sex"], radius=1.5),
    dps.SecondMoments(columns=["height"], radius=0.3),
    dps.SecondMoments(columns=["height", "age"], radius=1.2, means=True),
    dps.Grid(width=64, rows=3),
    dps.Grid(columns=["height", "age"], width=16, rows=2, levels=(1, 2, 16)),
    dps.Race(rows=5, width=50, hash=dps.Euclidean(bandwidth=0.3), labels="ordered"),
    dps.Race(rows=5, width=50, hash=dps.Euclidean(bandwidth=0.3)),
    dps.Race(columns=["height", "age"], rows=4, width=7, hash=dps.Euclidean(bandwidth=20, power=3, scaled=False)),
    dps.Race(rows=5, width=50, hash=dps.Manhattan(bandwidth=2.0, power=2)),
    dps.Race(rows=5, width=50, hash=dps.Hamming(power=2)),
    dps.Race(rows=3, width=8, hash=dps.SignedProjection(bits=3)),
    dps.Race(rows=3, width=9, hash=dps.SignedProjection(bits=11)),
    dps.Race(rows=4, width=16, hash=dps.InnerProduct(bits=4, radius=0.7), labels="ordered"),
    dps.Race(rows=4, width=16, hash=dps.InnerProduct(bits=4, radius=0.7)),
    dps.Race(rows=6, width=40, hash=dps.MinHash()),
    dps.Race(
        rows=130,
        width=11,
        hash=dps.Product(
            [
                dps.Factor(dps.MinHash(power=2), ["friends"]),
                dps.Factor(dps.Euclidean(bandwidth=0.5, power=2), ["age"]),
                dps.Factor(dps.SignedProjection(bits=2), ["height", "sex"]),
            ]
        ),
        labels="ordered",
    ),
    dps.Race(
        rows=9,
        width=11,
        hash=dps.Product(
            [
                dps.Factor(dps.MinHash(), ["friends"]),
                dps.Factor(dps.Hamming(), ["sex", "member"]),
                dps.Factor(dps.Manhattan(bandwidth=0.5), ["joined", "member"]),
            ]
        ),
    ),
    dps.Race(rows=5, width=20, weight="age"),
    dps.Race(columns=["height"], rows=5, width=20, weight="member", weights=[-2, 3]),
    dps.Race(columns=["height", "age"], rows=5, width=20, embedding=EMBEDDING),
    dps.Grouped(dps.Fourier(size=3), "sex"),
    dps.Grouped(dps.Fourier(size=3, structure="hadamard"), "sex"),
    dps.Grouped(dps.Count(), "sex"),
    dps.Grouped(dps.Race(rows=2, width=8, hash=dps.MinHash()), "sex"),
    dps.Grouped(dps.Histogram(ways=2, columns=["age", "member"], bins=3), "sex"),
    dps.Grouped(dps.Marginals(columns=["age", "member"], bins=3), "sex"),
    dps.Grouped(dps.Pairs(columns=["age", "member"], bins=3), "sex"),
    dps.Grouped(dps.Pairs(bins=3, columns=["age", "member", "height"], important=[["age", "member"]], times=4), "sex"),
    dps.Grouped(dps.CellCounts(["age", "member"], 3, (((1, 5), (), (1, 1, 1)), None)), "sex"),
    dps.Grouped(dps.Totals(columns=["age", "height"]), "sex"),
    dps.Subsampled(dps.Fourier(size=12, seed=1), size=4),
    dps.Subsampled(dps.Fourier(size=12, seed=1, kernel="gaussian", width=0.3), size=4),
    dps.Subsampled(dps.Fourier(size=70, seed=3, structure="hadamard"), size=35),
    dps.Subsampled(dps.OneBitFourier(size=70, seed=3, structure="hadamard"), size=2),
    dps.Subsampled(dps.Fourier(size=7, seed=1), size=3, scheme="uniform"),
    dps.Subsampled(dps.Fourier(size=7, seed=1), size=3, scheme="poisson"),
    dps.Subsampled(dps.OneBitFourier(size=6, seed=1), size=2),
    dps.Subsampled(dps.OneBitFourier(size=6, seed=1), size=5, scheme="uniform"),
    dps.Subsampled(dps.Quadratic(size=12, seed=1), size=3),
    dps.Subsampled(dps.Quadratic(size=12, seed=1), size=3, scheme="uniform"),
    dps.Subsampled(dps.Quadratic(size=16, seed=2, radius=2.0, directions="hadamard"), size=8),
    dps.Subsampled(dps.Quadratic(size=16, seed=2, radius=2.0, directions="hadamard"), size=4),
    dps.Subsampled(dps.Quadratic(size=16, seed=2, radius=0.5, directions="hadamard"), size=1),
    dps.Subsampled(dps.Quadratic(size=8, seed=2, directions="hadamard"), size=5, scheme="poisson"),
    dps.Grouped(dps.Subsampled(dps.OneBitFourier(size=6), size=3), "sex"),
    Middle(),
]


def records_of(codes: np.ndarray, secret: Words | None = None) -> Records:
    """Records with these codes; their sets of ids follow from the codes, the overflow id included."""
    sets = [np.unique(np.abs(column.astype(np.int64)) % 31)[: int(column[0]) % 8] for column in codes.T]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in sets])]).astype(np.int64)
    friends = IdSets(offsets, np.concatenate([*sets, np.empty(0)]).astype(np.int32))
    return Records(np.ascontiguousarray(codes, np.int16), {"friends": friends}, secret)
