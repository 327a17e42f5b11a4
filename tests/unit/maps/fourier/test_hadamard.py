"""Structured frequencies: the specified integers, the same kernel as the dense ones, the same files as before."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.linalg
import scipy.special
import scipy.stats

import dpsketch as dps
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.fourier import hadamard
from dpsketch.maps.fourier.fourier import Dense, Fourier, chosen_structure, draw, draw_lengths
from dpsketch.maps.fourier.hadamard import Hadamard, draw_hadamard
from dpsketch.maps.registry import map_from_dict
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import SPAN
from dpsketch.schema.schema import Schema

ALPHA = 1e-6
UNIT = 2**32 / (2 * math.pi * SPAN)  # of a radius of 1
VECTOR_PLACES = [0, 1, 2]
VECTOR_MULTIPLIERS = [1117, 1800, 1219]
VECTOR_SHIFTS = [0, 0, 1]
VECTOR_FREQUENCIES = [[134040, 134040], [43200, -72000], [-4876, 34132]]


def wide_schema(columns: int) -> Schema:
    return Schema.from_dict({"columns": {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(columns)}})


def drawn(dimension: int, size: int, seed: int = 1, radii: tuple[float, float] = (2.0, 30.0)) -> Hadamard:
    made = draw(Fourier(size=size, seed=seed, radii=radii, structure="hadamard"), dimension)
    assert isinstance(made, Hadamard)
    return made


def random_codes(rng: np.random.Generator, dimension: int, count: int) -> Codes:
    return rng.integers(-32768, 32768, (dimension, count)).astype(np.int16)


def exact_block(made: Hadamard, block: int) -> np.ndarray:
    """T as a product of matrices; float64 is exact for integers of this size, and fast."""
    matrix = scipy.linalg.hadamard(made.width).astype(np.float64)
    first, second, third = made.signs[block].astype(np.float64)
    return (matrix * third) @ (matrix * second) @ (matrix * first)


def slow_phases(made: Hadamard, codes: Codes) -> tuple[np.ndarray, int]:
    """The definition, with products of matrices and 64 bits, and the largest number at the end of a stage."""
    matrix = scipy.linalg.hadamard(made.width).astype(np.float64)
    phases, largest = [], 0
    for block, signs in enumerate(made.signs):
        tile = np.zeros((made.width, codes.shape[1]), np.int64)
        tile[: made.dimension] = codes
        for sign, bits in zip(signs, (*made.roundings, 0), strict=True):
            tile = (matrix @ (sign[:, None] * tile.astype(np.float64))).astype(np.int64)
            largest = max(largest, int(np.abs(tile).max()))
            tile = (tile + (1 << bits >> 1)) >> bits
        own = slice(made.edges[block], made.edges[block + 1])
        shifts = made.shifts[own, None].astype(np.int64)
        rounded = (tile[made.places[own]] + ((1 << shifts) >> 1)) >> shifts
        phases.append(rounded * made.multipliers[own, None])
    return np.concatenate(phases).T, largest


def hard_codes(made: Hadamard) -> Codes:
    """Records of the greatest length, which pile up in one number after one, two and three stages."""
    matrix = scipy.linalg.hadamard(made.width).astype(np.float64)
    first, second, third = made.signs[0].astype(np.float64)
    one = matrix[3] * first
    two = (matrix[5] * second) @ matrix * first
    three = ((matrix[7] * third) @ matrix * second) @ matrix * first
    worst = [np.where(row[: made.dimension] > 0, 32767, -32768) for row in (one, two, three)]
    return np.array([*worst, np.full(made.dimension, -32768)], np.int16).T


@pytest.mark.parametrize(("dimension", "size"), [(1, 5), (3, 100), (6, 64), (64, 130), (100, 100), (300, 40)])
def test_columns_of_a_block_are_the_product_of_its_stages(dimension: int, size: int) -> None:
    made = drawn(dimension, size)
    for block in range(len(made.signs)):
        columns = hadamard.block_columns(made.signs[block : block + 1], slice(0, dimension))[0]
        assert (columns == exact_block(made, block)[:, :dimension]).all()


@pytest.mark.parametrize(
    ("dimension", "size"), [(1, 5), (3, 100), (64, 130), (200, 300), (256, 9), (600, 20), (1024, 1100), (2048, 5)]
)
def test_phases_and_sums_are_the_specified_integers(rng: np.random.Generator, dimension: int, size: int) -> None:
    made = drawn(dimension, size)
    codes = np.concatenate([random_codes(rng, dimension, 20), hard_codes(made)], axis=1)
    expected, largest = slow_phases(made, codes)
    assert largest < hadamard._LIMIT
    phases = made.phases(codes)
    assert ((phases - expected) % 2**32 == 0).all()
    sums = np.zeros(2 * size, np.int64)
    made.accumulate(np.ascontiguousarray(codes[::-1]), np.arange(dimension)[::-1].copy(), np.empty(0, np.int32), sums)
    radians = phases * (2 * np.pi / 2**32)
    assert np.abs(sums[0::2] - np.cos(radians).sum(axis=0) * 32768).max() <= 24 * 0.53
    assert np.abs(sums[1::2] - np.sin(radians).sum(axis=0) * 32768).max() <= 24 * 0.53


@pytest.mark.parametrize("dimension", [1, 255, 256, 1000, 2048, 16_384])
def test_the_bound_of_every_stage_is_below_an_int32(dimension: int) -> None:
    width, (first, second) = hadamard.padded_width(dimension), hadamard.stage_roundings(dimension)
    length = 2**15 * math.sqrt(dimension * width) / 2**first + math.sqrt(width) / 2
    assert length * math.sqrt(width) + 2**second < 2**31
    assert (length * math.sqrt(width) / 2**second + math.sqrt(width) / 2) * math.sqrt(width) + 2**20 <= 2**31


@pytest.mark.parametrize("dimension", [255, 256, 1000, 2048])
def test_no_number_of_a_stage_leaves_an_int32(rng: np.random.Generator, dimension: int) -> None:
    """Records that come near the proven bound: the largest first, second or third stage of some row."""
    made = drawn(dimension, 4)
    target = made.matrix
    codes = np.where(target > 0, 32767, -32768).astype(np.int16).T
    wide = made.phases(codes).astype(np.int64)
    linear = codes.T.astype(np.float64) @ target.T
    away = (wide - linear + 2**31) % 2**32 - 2**31  # a wrap would show as a phase that has nothing to do with this
    assert np.abs(away).max() <= 2**10 + 10 * hadamard.precision(dimension) * 30 * UNIT


@pytest.mark.parametrize("dimension", [5, 64, 200, 300, 1000, 1024, 3000])
def test_phases_are_those_of_the_published_frequencies(rng: np.random.Generator, dimension: int) -> None:
    """Root mean square over a block within `precision`, plus half a multiplier for the last rounding."""
    made = drawn(dimension, hadamard.padded_width(dimension), radii=(30.0, 30.0))
    codes = random_codes(rng, dimension, 50)
    linear = codes.T.astype(np.float64) @ made.matrix.T
    away = (made.phases(codes) - linear + 2**31) % 2**32 - 2**31
    error = np.sqrt((away**2).mean(axis=1)) / (30 * UNIT)
    assert error.max() <= 1.05 * hadamard.precision(dimension) + 2**10 / (30 * UNIT)


def test_precision_is_at_most_that_of_the_codes() -> None:
    errors = [hadamard.precision(dimension) for dimension in range(1, hadamard.MOST_COLUMNS + 1)]
    assert max(errors) <= 0.501
    assert max(errors[:1024]) <= 0.01564
    assert max(errors[:255]) == 0
    assert hadamard.precision(hadamard.MOST_COLUMNS + 1) > 0.6


@pytest.mark.parametrize("dimension", [1, 3, 64, 100, 700])
def test_lengths_are_those_of_dense_frequencies(dimension: int) -> None:
    """Every stratum of radius once, in an order that has nothing to do with the rows' places."""
    description = Fourier(size=1000, seed=2)
    made = draw_hadamard(2, draw_lengths(description, dimension), dimension)
    lengths = np.linalg.norm(made.matrix, axis=1)
    assert np.allclose(np.sort(lengths), draw_lengths(description, dimension), rtol=2**-11)
    assert scipy.stats.spearmanr(lengths, made.places).pvalue > ALPHA
    assert scipy.stats.spearmanr(lengths, np.arange(1000)).pvalue > ALPHA


def kernels(features: Floats) -> Floats:
    """The kernel between the first record and the others."""
    return features[1:] @ features[0] / (features.shape[1] / 2)


def differences(rng: np.random.Generator, dimension: int) -> Codes:
    """A record at the origin, and others along an axis, the diagonal and random directions at several distances."""
    directions = [np.eye(dimension)[dimension // 2], np.ones(dimension), *rng.normal(size=(3, dimension))]
    steps = [32767 * length * u / np.abs(u).max() for u in directions for length in (0.3, 0.6, 1.0)]
    return np.rint(np.array([np.zeros(dimension), *steps])).astype(np.int16).T


@pytest.mark.parametrize("dimension", [1, 2, 3, 6, 20, 64, 100, 130])
def test_the_kernel_is_that_of_isotropic_directions(rng: np.random.Generator, dimension: int) -> None:
    """One radius r: E cos(ω·δ) = ₀F₁(d/2; −(r‖δ‖)²/4), the Fourier transform of the sphere; not that of 1.3·r."""
    size, radius = 4096, 2.0 * math.sqrt(dimension)
    bound = Fourier(size=size, radii=(radius, radius), structure="hadamard").bind(wide_schema(dimension))
    codes = differences(rng, dimension)
    distances = np.linalg.norm(codes[:, 1:] / SPAN, axis=0)
    found = kernels(bound.features(Records(codes)))
    critical = scipy.stats.norm.isf(ALPHA / 2) / math.sqrt(2 * size)  # the deviation of a cosine is at most about 1/√2
    exact = scipy.special.hyp0f1(dimension / 2, -((radius * distances) ** 2) / 4)
    wrong = scipy.special.hyp0f1(dimension / 2, -((1.3 * radius * distances) ** 2) / 4)
    assert np.abs(found - exact).max() < critical
    assert np.abs(found - wrong).max() > critical


@pytest.mark.parametrize("dimension", [20, 100, 300, 1024])
def test_the_kernel_is_the_gaussian_one_of_dense_frequencies(rng: np.random.Generator, dimension: int) -> None:
    size, radius = 2048, 2.0 * math.sqrt(dimension / 20)
    description = {"size": size, "radii": (radius, radius)}
    schema = wide_schema(dimension)
    codes = differences(rng, dimension)
    distances = np.linalg.norm(codes[:, 1:] / SPAN, axis=0)
    gaussian = np.exp(-((radius * distances) ** 2) / (2 * dimension))
    critical = scipy.stats.norm.isf(ALPHA / 2) / math.sqrt(2 * size)
    for structure in ("dense", "hadamard"):
        found = kernels(Fourier(**description, structure=structure).bind(schema).features(Records(codes)))
        assert np.abs(found - gaussian).max() < critical + 1 / dimension


def test_the_whole_law_of_radii_gives_the_kernel_of_dense_frequencies(rng: np.random.Generator) -> None:
    schema, codes = wide_schema(100), differences(rng, 100)
    dense, structured = (
        kernels(Fourier(size=4096, structure=structure).bind(schema).features(Records(codes)))
        for structure in ("dense", "hadamard")
    )
    assert np.abs(dense - structured).max() < scipy.stats.norm.isf(ALPHA / 2) / math.sqrt(4096)


def test_one_bit_features_are_those_that_are_summed(rng: np.random.Generator) -> None:
    bound = dps.OneBitFourier(size=300, structure="hadamard").bind(wide_schema(300))
    codes = random_codes(rng, 300, 600)
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(codes), sums)
    assert (bound.features(Records(codes)).sum(axis=0) == sums).all()


def test_records_are_independent_of_their_batch(rng: np.random.Generator) -> None:
    bound = Fourier(size=600, structure="hadamard").bind(wide_schema(520))
    codes = random_codes(rng, 520, 600)
    whole, parts = np.zeros((2, bound.size), np.int64)
    bound.accumulate(Records(codes), whole)
    order = rng.permutation(600)
    for chosen in np.split(order, [1, 30, 287, 543]):
        bound.accumulate(Records(np.ascontiguousarray(codes[:, chosen])), parts)
    assert (whole == parts).all()


def test_vector() -> None:
    """`Fourier(size=3, seed=7, structure="hadamard")` of two columns, as in docs/formats/draw.md."""
    made = drawn(2, 3, seed=7)
    assert made.places.tolist() == VECTOR_PLACES
    assert made.multipliers.tolist() == VECTOR_MULTIPLIERS
    assert made.shifts.tolist() == VECTOR_SHIFTS
    assert made.matrix.tolist() == VECTOR_FREQUENCIES


def test_auto_takes_the_faster_structure() -> None:
    chosen = {
        (dimension, size): chosen_structure(Fourier(size=size), dimension)
        for dimension, size in [(6, 500), (64, 64), (64, 10_000), (128, 128), (129, 129), (1024, 100), (1024, 1024)]
    }
    assert [key for key, structure in chosen.items() if structure == "hadamard"] == [(128, 128), (1024, 1024)]
    assert chosen_structure(Fourier(size=1000), hadamard.MOST_COLUMNS + 1) == "dense"
    assert isinstance(Fourier(size=128).bind(wide_schema(128))._drawn, Hadamard)
    assert isinstance(Fourier(size=128, structure="dense").bind(wide_schema(128))._drawn, Dense)


@pytest.mark.parametrize("kind", [dps.Fourier, dps.OneBitFourier])
def test_descriptions_without_a_structure_are_dense(kind: type[dps.Fourier | dps.OneBitFourier]) -> None:
    """Files from before the parameter: same words, same map, same fingerprint, however large."""
    facts = {"map": kind.name, "version": 1, "columns": None, "size": 200, "seed": 0, "radii": (2.0, 30.0)}
    old = map_from_dict(facts)
    assert old == kind(structure="dense")
    assert old.to_dict() == facts
    schema = wide_schema(200)
    assert old.bind(schema).fingerprint() == kind(structure="dense").bind(schema).fingerprint()
    assert old.bind(schema).fingerprint() != kind().bind(schema).fingerprint()
    small = wide_schema(3)
    assert old.bind(small).fingerprint() == kind().bind(small).fingerprint()
    assert kind().bind(schema).description.to_dict() == facts | {"structure": "hadamard"}


def test_a_sketch_keeps_the_choice(tmp_path: Path, rng: np.random.Generator) -> None:
    """The rule may change; a file says what was chosen, also inside a group."""
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(130)}
    schema = Schema.from_dict({"columns": columns | {"sex": {"kind": "boolean"}}, "privacy": {"rows": 50}})
    parts = [
        dps.Part(dps.Fourier(size=256), 0.4),
        dps.Part(dps.Fourier(size=20), 0.2),
        dps.Part(dps.Grouped(dps.OneBitFourier(size=256), "sex"), 0.4),
    ]
    table = {name: rng.random(50) for name in columns} | {"sex": rng.random(50) < 0.5}
    raw = dps.accumulate(pa.table(table), schema, dps.Recipe(parts))
    raw.save(tmp_path / "a.raw")
    again = dps.RawSketch.load(tmp_path / "a.raw")
    one, two, three = (part.map for part in again.recipe.parts)
    assert one == dps.Fourier(size=256, structure="hadamard")
    assert two == dps.Fourier(size=20, structure="dense")
    assert three == dps.Grouped(dps.OneBitFourier(size=256, structure="hadamard"), "sex")
    assert all((a.sums == b.sums).all() for a, b in zip(raw.parts, again.parts, strict=True))


def test_bad_structures_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("fast", None, 3, ["dense"]):
        with pytest.raises(RecipeError, match="structure must be one of auto, dense, hadamard, got"):
            Fourier(structure=wrong)  # type: ignore[arg-type]
    monkeypatch.setattr("dpsketch.schema.schema.MOST_COLUMNS", 20_000)
    schema = wide_schema(16_385)
    with pytest.raises(
        RecipeError, match=r"16385 columns would lose precision: .* 0\.85 steps in every code"
    ) as caught:
        Fourier(size=10, structure="hadamard").bind(schema)
    assert "at most 16384 columns, or pass structure='dense'" in str(caught.value)


def test_some_frequencies_alone_give_the_same_sums(rng: np.random.Generator) -> None:
    columns = {f"c{j}": {"kind": "number", "lower": 0, "upper": 1} for j in range(9)}
    schema = dps.Schema.from_dict({"columns": columns})
    codes = rng.integers(-32768, 32768, (9, 300)).astype(np.int16)
    for kind in (dps.Fourier, dps.OneBitFourier):
        bound = kind(size=150, structure="hadamard").bind(schema)
        whole = np.zeros(300, np.int64)
        bound.accumulate(Records(codes), whole)
        for first, last in ((0, 1), (60, 70), (64, 128), (100, 150), (0, 150)):
            part = np.zeros(2 * (last - first), np.int64)
            bound.restricted(first, last).accumulate(Records(codes), part)
            assert (part == whole[2 * first : 2 * last]).all()
