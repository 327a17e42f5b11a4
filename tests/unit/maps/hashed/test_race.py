from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.encoding.records import IdSets, Records
from dpsketch.errors import RecipeError
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.schema.relation import Relation

COLUMNS = {f"c{j}": {"kind": "number", "lower": -1, "upper": 1} for j in range(3)}
SCHEMA = dps.Schema.from_dict(
    {
        "privacy": {"rows": 1000},
        "columns": COLUMNS
        | {
            "label": {"kind": "category", "values": ["a", "b"]},
            "tags": {"kind": "set", "universe": 40},
            "money": {"kind": "number", "lower": 1, "upper": 1000, "transform": "log"},
        },
    }
)
NUMBERS = ["c0", "c1", "c2"]


def table(
    points: np.ndarray, labels: list[str] | None = None, tags: list[list[int]] | None = None
) -> dict[str, object]:
    count = len(points)
    return {name: points[:, j] for j, name in enumerate(NUMBERS)} | {
        "label": labels or ["a"] * count,
        "tags": tags or [[]] * count,
        "money": [10.0] * count,
    }


def kernel_sums(race: dps.Race, data: dict[str, object], points: object, method: str = "mean") -> np.ndarray:
    import pyarrow as pa

    raw = dps.accumulate(pa.table(data), SCHEMA, dps.Recipe([dps.Part(race, 1.0)]))
    return dps.View(dps.release(raw, dps.Budget(float("inf")))).kernel_sum(points, method).value


def test_euclidean_estimates_its_kernel(rng: np.random.Generator) -> None:
    points = rng.uniform(-1, 1, (400, 3))
    queries = points[:20]
    for power, bandwidth in ((1, 0.3), (3, 1.0)):
        family = dps.Euclidean(bandwidth=bandwidth, power=power, scaled=False)
        exact = family.kernel(np.linalg.norm(points[:, None] - queries, axis=2)).sum(axis=0)
        for width in (50, 5000):  # debiasing makes the width irrelevant
            found = kernel_sums(dps.Race(NUMBERS, 4000, width, hash=family), table(points), queries)
            assert np.abs(found - exact).mean() < 0.03 * exact.mean()


def test_scaled_bandwidths_are_in_widths_of_the_bounds(rng: np.random.Generator) -> None:
    points = rng.uniform(-1, 1, (50, 3))
    own = dps.Race(NUMBERS, 30, 100, hash=dps.Euclidean(bandwidth=0.5, scaled=False)).bind(SCHEMA)
    scaled = dps.Race(NUMBERS, 30, 100, hash=dps.Euclidean(bandwidth=0.25)).bind(SCHEMA)
    codes = np.zeros((5, 50), np.int16)
    codes[:3] = (points.T * 32767).astype(np.int16)
    assert (own.features(Records(codes)) == scaled.features(Records(codes))).all()


def test_the_euclidean_kernel_is_the_collision_probability() -> None:
    """Against a direct simulation of floor(a·x + b)."""
    rng = np.random.default_rng(0)
    slopes, offsets = rng.normal(size=400_000), rng.random(400_000)
    for distance in (0.1, 1.0, 5.0):
        same = np.floor(offsets) == np.floor(slopes * distance + offsets)
        assert abs(same.mean() - dps.Euclidean(bandwidth=1.0).kernel(np.array(distance))) < 0.004


def test_signed_projection_estimates_the_angular_kernel(rng: np.random.Generator) -> None:
    points = rng.uniform(-1, 1, (300, 3))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    family = dps.SignedProjection(bits=4)
    exact = family.kernel(np.arccos(np.clip(unit @ unit[:10].T, -1, 1))).sum(axis=0)
    for width in (16, 50):  # as many counters as codes, and mixed
        found = kernel_sums(dps.Race(NUMBERS, 3000, width, hash=family), table(points), points[:10])
        assert np.abs(found - exact).mean() < 0.03 * exact.mean()


def test_inner_products_depend_on_lengths(rng: np.random.Generator) -> None:
    points = rng.uniform(-0.5, 0.5, (300, 3))
    queries = np.array([[0.9, 0, 0], [0.1, 0, 0], [-0.9, 0, 0], [0, 0.3, 0.3]])
    family = dps.InnerProduct(bits=3)
    exact = family.kernel(points @ queries.T).sum(axis=0)
    found = kernel_sums(dps.Race(NUMBERS, 4000, 8, hash=family), table(points), queries)
    assert np.abs(found - exact).max() < 0.06 * exact.mean()
    assert found[0] != pytest.approx(found[1], rel=1e-3)


def test_minhash_estimates_the_jaccard_similarity(rng: np.random.Generator) -> None:
    tags = [sorted({int(i) for i in rng.integers(0, 45, rng.integers(0, 9))}) for _ in range(300)]
    inside = [{min(i, 40) for i in row} for row in tags]  # ids outside the universe are one overflow id
    exact = np.array([sum(1.0 if not a | b else len(a & b) / len(a | b) for a in inside) for b in inside[:20]])
    for power in (1, 2):
        expected = exact if power == 1 else None
        race = dps.Race(rows=3000, width=200, hash=dps.MinHash(power=power))
        found = kernel_sums(race, table(np.zeros((300, 3)), tags=tags), tags[:20])
        if expected is None:
            expected = np.array(
                [sum(1.0 if not a | b else (len(a & b) / len(a | b)) ** 2 for a in inside) for b in inside[:20]]
            )
        assert np.abs(found - expected).mean() < 0.05 * expected.mean()


def test_products_multiply_kernels(rng: np.random.Generator) -> None:
    points = rng.uniform(-1, 1, (300, 3))
    tags = [sorted({int(i) for i in rng.integers(0, 6, 3)}) for _ in range(300)]
    near, alike = dps.Euclidean(bandwidth=1.0, scaled=False), dps.MinHash()
    product = dps.Product([dps.Factor(near, ["c0"]), dps.Factor(alike, ["tags"])])
    jaccard = np.array([[len(set(a) & set(b)) / len(set(a) | set(b)) for b in tags[:10]] for a in tags])
    exact = (near.kernel(np.abs(points[:, None, 0] - points[:10, 0])) * jaccard).sum(axis=0)
    found = kernel_sums(
        dps.Race(rows=4000, width=300, hash=product),
        table(points, tags=tags),
        {"c0": points[:10, 0], "tags": tags[:10]},
    )
    assert np.abs(found - exact).mean() < 0.05 * exact.mean()


def test_weights_give_sums_and_differences_of_kernels(rng: np.random.Generator) -> None:
    points = rng.uniform(-1, 1, (400, 3))
    labels = ["a" if x > 0 else "b" for x in points[:, 0]]
    family = dps.Euclidean(bandwidth=0.8, scaled=False)
    kernel = family.kernel(np.linalg.norm(points[:, None] - points[:20], axis=2))
    race = dps.Race(NUMBERS, 4000, 500, hash=family, weight="label", weights=[1, -2, 0])
    exact = (kernel * np.where(points[:, :1] > 0, 1, -2)).sum(axis=0)
    assert np.abs(kernel_sums(race, table(points, labels), points[:20]) - exact).mean() < 0.04 * np.abs(exact).mean()
    by_number = dps.Race(NUMBERS, 4000, 500, hash=family, weight="c1")
    exact = (kernel * points[:, 1:2]).sum(axis=0)
    assert np.abs(kernel_sums(by_number, table(points), points[:20]) - exact).mean() < 2.0


@pytest.mark.parametrize(
    ("weights", "l1", "l2_squared"),
    [(None, (1, 2), (1, 2)), ([1, -1, 0], (1, 2), (1, 4)), ([3, 2, 0], (3, 6), (9, 18)), ([-3, 2, 1], (3, 6), (9, 25))],
)
def test_bounds_are_attained(weights: list[int] | None, l1: tuple[int, int], l2_squared: tuple[int, int]) -> None:
    """By one record alone, by two in different counters, and by two of opposite weights in the same counter."""
    weight = None if weights is None else "label"
    bound = dps.Race(["c0"], 7, 1000, weight=weight, weights=weights).bind(SCHEMA)
    codes = np.zeros((5, 6), np.int16)
    codes[0] = [-32767, -32767, -32767, 32767, 32767, 32767]
    codes[3] = [-32767, 0, 32767] * 2  # the labels a, b and other
    features = bound.features(Records(codes))
    change = features[:, None] - features[None, :]
    found = [
        (np.abs(features).sum(axis=1).max(), (features**2).sum(axis=1).max()),
        (np.abs(change).sum(axis=2).max(), (change**2).sum(axis=2).max()),
    ]
    for (one, two), relation, place in zip(found, Relation, (0, 1), strict=True):
        limit = bound.sensitivity(relation)
        assert (limit.l1, limit.l2_squared) == (7 * l1[place], 7 * l2_squared[place])
        assert (one, two) == (limit.l1, limit.l2_squared)


def test_blocks_of_rows_and_narrow_counters_give_the_same_table(rng: np.random.Generator) -> None:
    codes = rng.integers(-32768, 32768, (5, 1300)).astype(np.int16)
    offsets = np.arange(0, 1301 * 3, 3, dtype=np.int64)
    records = Records(codes, {"tags": IdSets(offsets, rng.integers(0, 41, 3900).astype(np.int32))})
    product = dps.Product([dps.Factor(dps.MinHash(), ["tags"]), dps.Factor(dps.Euclidean(), ["c0"])])
    for family in (dps.Euclidean(power=2), dps.MinHash(), product, dps.SignedProjection(5)):
        bound = dps.Race(rows=301, width=32, hash=family).bind(SCHEMA)
        whole = np.zeros(bound.size, np.int64)
        bound.accumulate(records, whole)
        narrow = np.zeros(bound.size, np.int32)
        prepared = bound.prepare(records)
        for first, last in ((0, 1), (1, 130), (130, 301)):
            bound.accumulate_rows(prepared, narrow, first, last)
        assert (narrow == whole).all()
        assert (whole.reshape(301, 32).sum(axis=1) == 1300).all()


def test_few_and_many_queries_agree(rng: np.random.Generator) -> None:
    points = rng.uniform(-1, 1, (200, 3))
    for family in (dps.Euclidean(power=2, bandwidth=0.4), dps.SignedProjection(4), dps.InnerProduct(4)):
        race = dps.Race(NUMBERS, 50, 16, hash=family)
        for method in ("mean", "median"):
            many = kernel_sums(race, table(points), points[:40], method)
            assert np.allclose(many[:3], kernel_sums(race, table(points), points[:3], method))


def reference_places(bound: BoundRace, inputs: np.ndarray) -> np.ndarray:
    """The documented hash in plain Python integers."""
    projection, places = bound.projected[0], []
    for row in range(bound.rows):
        key = int(bound.salts[row])
        for slopes, offset in zip(projection.coefficients[row], projection.offsets[row], strict=True):
            phase = (int(offset) + sum(int(a) * int(x) for a, x in zip(slopes, inputs, strict=True)) + 2**31) % 2**32
            key ^= ((phase - 2**31) >> projection.shift) % 2**32
            key ^= key >> 16
            key = key * 0x7FEB352D % 2**32
            key ^= key >> 15
            key = key * 0x846CA68B % 2**32
        places.append(key * bound.width >> 32)
    return np.array(places)


def test_places_follow_the_documented_hash(rng: np.random.Generator) -> None:
    bound = dps.Race(NUMBERS, 9, 700, hash=dps.Euclidean(bandwidth=0.02, power=2)).bind(SCHEMA)
    for _ in range(20):
        codes = rng.integers(-32767, 32768, (5, 1)).astype(np.int16)
        found = np.flatnonzero(bound.features(Records(codes))[0]) - np.arange(9) * 700
        assert (found == reference_places(bound, codes[:3, 0])).all()


def test_codes_are_mixed_evenly(rng: np.random.Generator) -> None:
    """Far points share a counter with probability 1/W: what debiasing takes away."""
    bound = dps.Race(["c0"], 2000, 10, hash=dps.Euclidean(bandwidth=1e-4)).bind(SCHEMA)
    codes = np.zeros((5, 2), np.int16)
    codes[0] = [-20000, 20000]
    places = bound.features(Records(codes)).reshape(2, 2000, 10).argmax(axis=2)
    assert abs((places[0] == places[1]).mean() - 0.1) < 0.03
    assert np.bincount(places[0]).min() > 150


def test_embeddings_are_whole_numbers_and_close_to_the_real_ones(rng: np.random.Generator) -> None:
    first, second = rng.normal(0, 0.3, (5, 3)), rng.normal(0, 0.3, (2, 5))
    bias = rng.normal(0, 0.1, 5)
    embedding = dps.Embedding.from_arrays([(first, bias), (second, np.zeros(2))])
    points = rng.uniform(-1, 1, (3, 500))
    found = embedding((points * 32767).astype(np.int16)) / 32767
    exact = np.clip(second @ np.clip(np.maximum(first @ points + bias[:, None], 0), -1, 1), -1, 1)
    assert np.abs(found - exact).max() < 1e-3
    alone = [embedding((points[:, i : i + 1] * 32767).astype(np.int16)) for i in range(20)]
    assert (np.concatenate(alone, axis=1) == embedding((points * 32767).astype(np.int16))[:, :20]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dps.Race(rows=0), "rows must be a whole number from 1"),
        (lambda: dps.Race(width=0), "width must be a whole number from 2"),
        (lambda: dps.Race(rows=10**6, width=10**6).bind(SCHEMA), "counters are more than"),
        (lambda: dps.Race(["tags"]).bind(SCHEMA), "euclidean cannot hash the set column 'tags'"),
        (lambda: dps.Race(["c0"], hash=dps.MinHash()).bind(SCHEMA), "MinHash hashes one set column"),
        (lambda: dps.Race(["money"], hash=dps.Euclidean(5, scaled=False)).bind(SCHEMA), "is on a log scale"),
        (lambda: dps.Race(NUMBERS, weight="label").bind(SCHEMA), "each needs a weight"),
        (lambda: dps.Race(NUMBERS, weight="label", weights=[1]).bind(SCHEMA), "takes 3 weights, got 1"),
        (lambda: dps.Race(NUMBERS, weights=[1]), "no weight column"),
        (lambda: dps.Race(NUMBERS, hash=dps.Euclidean(1e-9)).bind(SCHEMA), "bits are left to resolve one"),
        (lambda: dps.Race(NUMBERS, hash={"family": "nonsense"}), "there is no hash family called 'nonsense'"),
        (lambda: dps.Race(["c0"], hash=dps.Product([])), "from 1 to 16 factors"),
        (lambda: dps.Race(NUMBERS, hash=dps.Euclidean(1e-200)).bind(SCHEMA), "bits are left to resolve one"),
        (lambda: dps.Race(NUMBERS, hash="euclidean"), "hash must be a family such as"),
        (lambda: dps.Embedding([{"weights": [[-(2**63)]], "bias": [0], "shift": 0}]), "weights must fit 32 bits"),
        (lambda: dps.Embedding([{"weights": [[1]], "bias": [-(2**63)], "shift": 0}]), "weights must fit 32 bits"),
        (lambda: dps.Embedding.from_arrays([(np.ones((512, 512)), np.ones(512))]), "more than 131072 weights"),
        (
            lambda: dps.Race(
                rows=10_000,
                width=2,
                hash=dps.Product([dps.Factor(dps.Euclidean(power=64), [name]) for name in NUMBERS]),
            ).bind(SCHEMA),
            "need more than",
        ),
        (lambda: dps.Euclidean(bandwidth=0), "bandwidth must be a number above 0"),
        (lambda: dps.Embedding.from_arrays([([[1.0, np.nan]], [0])]), "finite matrix"),
        (
            lambda: dps.Race(["c0"], embedding=dps.Embedding.from_arrays([([[1, 1]], [0])])).bind(SCHEMA),
            "the embedding takes 2 columns, got 1",
        ),
    ],
)
def test_wrong_parameters_are_refused(make: object, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make()  # type: ignore[operator]


def test_too_many_columns_for_exact_signs_are_refused() -> None:
    wide = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(10_000)}
    schema = dps.Schema.from_dict({"columns": wide})
    assert dps.Race(rows=2, hash=dps.SignedProjection(1)).bind(schema).size == 2000
    from dpsketch.maps.hashed.hash_parameters import sign_coefficients

    with pytest.raises(RecipeError, match="keep fewer than 2 bits"):
        sign_coefficients(np.ones((1, 1, 20_000)))
