"""Masks: fresh, secret, unbiased, within the bounds; and what goes wrong with public ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

import dpsketch as dps
from conftest import MIXED, SEED, TestStream, mixed_table
from dpsketch.calibration import noise_variance
from dpsketch.encoding.records import Records, Words
from dpsketch.errors import LedgerError, RecipeError
from dpsketch.maps.base import BoundMap, Sensitivity, Sums
from dpsketch.maps.fourier.fourier import LARGEST_L1, LARGEST_L2_SQUARED
from dpsketch.maps.registry import map_from_dict
from dpsketch.maps.subsampled import BoundSubsampled
from dpsketch.noise.keystream import Keystream
from dpsketch.privacy.events import Noise, Release
from dpsketch.privacy.masks import Masks
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.schema.relation import Relation
from dpsketch.sketch.privacy_statement import statement_text

SCHEMA = dps.Schema.from_dict(MIXED)
COLUMNS = len(SCHEMA.scalars)
ALPHA = 1e-6
FOURIER = dps.Fourier(size=12, seed=1)
EXAMPLES = [
    dps.Subsampled(inner, size, scheme)
    for scheme in ("block", "uniform", "poisson")
    for inner, size in (
        (FOURIER, 4),
        (dps.OneBitFourier(size=12, seed=2), 3),
        (dps.Quadratic(size=16, seed=3), 4),
        (dps.Quadratic(size=16, directions="hadamard"), 4),
        (dps.Fourier(size=3), 3),
    )
]
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=repr)


def codes_of(rows: int, seed: int = SEED) -> np.ndarray:
    return np.random.default_rng(seed).integers(-32768, 32768, (COLUMNS, rows)).astype(np.int16)


def sums_of(bound: BoundMap, codes: np.ndarray, secret: Words) -> Sums:
    sums = np.zeros(bound.size, np.int64)
    bound.accumulate(Records(np.ascontiguousarray(codes), {}, secret), sums)
    return sums


@every_example
def test_one_stream_gives_the_same_sums_for_any_batches(
    example: dps.Subsampled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks are drawn record by record: the sum of batches with one continuing stream is the sum of all."""
    bound, codes = example.bind(SCHEMA), codes_of(700)
    whole = sums_of(bound, codes, TestStream())
    stream = TestStream()
    parts = [sums_of(bound, codes[:, part], stream) for part in np.split(np.arange(700), [1, 50, 512, 513])]
    assert (np.sum(parts, axis=0) == whole).all()
    monkeypatch.setattr("dpsketch.maps.subsampled._STEP", 100)
    assert (sums_of(bound, codes, TestStream()) == whole).all()


@every_example
def test_the_sums_are_masked_features(example: dps.Subsampled) -> None:
    """Record by record, every frequency or direction is either whole or absent, and as many as the scheme says."""
    bound, codes = example.bind(SCHEMA), codes_of(60)
    stream, full = TestStream(), np.zeros(bound.size, np.int64)
    for i in range(60):
        row = np.ascontiguousarray(codes[:, i : i + 1])
        full[:] = 0
        bound.inner.accumulate(Records(row), full)
        masked = sums_of(bound, row, stream).reshape(example.features, -1)
        whole = full.reshape(example.features, -1)
        taken = (masked == whole).all(axis=1) & (whole != 0).any(axis=1)
        assert (masked[~taken] == 0).all()
        if example.scheme != "poisson" and (whole != 0).any(axis=1).all():
            assert taken.sum() == example.size
        if example.scheme == "block":
            assert len(set(np.flatnonzero(taken) // example.size)) <= 1


@every_example
def test_the_expectation_is_that_of_the_features(example: dps.Subsampled) -> None:
    """One record many times: each feature is taken in a binomial number of them with probability size/all."""
    draws = 20_000
    bound, codes = example.bind(SCHEMA), np.tile(codes_of(1), draws)
    once = np.zeros(bound.size, np.int64)
    bound.inner.accumulate(Records(codes[:, :1].copy()), once)
    sums = sums_of(bound, codes, TestStream())
    times = sums[once != 0] / once[once != 0]
    low, high = scipy.stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], draws, example.rate)
    assert ((low <= times) & (times <= high)).all()
    expected = bound.features(Records(codes[:, :1].copy()))[0] * bound.grid
    rounding = 2 * bound.largest**0.5 + 1 if isinstance(example.map, dps.Quadratic) else 1
    assert np.abs(expected - example.rate * once).max() <= rounding


def test_block_evaluates_only_the_chosen_block(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = dps.Subsampled(FOURIER, 3).bind(SCHEMA)
    evaluated = 0
    honest = type(bound.inner).accumulate

    def counting(self: BoundMap, records: Records, sums: Sums) -> None:
        nonlocal evaluated
        evaluated += len(records) * sums.size
        honest(self, records, sums)

    monkeypatch.setattr(type(bound.inner), "accumulate", counting)
    sums_of(bound, codes_of(1000), TestStream())
    assert evaluated == 1000 * 2 * 3  # of 2·12


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example.rate < 1], ids=repr)
def test_masks_are_fresh(example: dps.Subsampled) -> None:
    bound, codes = example.bind(SCHEMA), codes_of(200)
    stream = Keystream()
    every = [sums_of(bound, codes, stream) for _ in range(3)] + [sums_of(bound, codes, Keystream()) for _ in range(3)]
    assert len({sums.tobytes() for sums in every}) == 6


@pytest.mark.parametrize("threads", [1, 3])
def test_the_engine_draws_other_words_for_every_batch(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []

    class Recording(Keystream):
        def words(self, count: int) -> np.ndarray:
            words = super().words(count)
            drawn.append(words)
            return words

    monkeypatch.setattr("dpsketch.engines.engine.Keystream", Recording)
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Subsampled(FOURIER, 4), 0.5)])
    table = mixed_table(1000)
    for _ in range(2):
        dps.accumulate(table, SCHEMA, recipe, dps.Local(threads, 100))
    assert [len(words) for words in drawn] == [100] * 20
    assert len({words.tobytes() for words in drawn}) == 20
    drawn.clear()
    dps.accumulate(table, SCHEMA, dps.Recipe([dps.Part(FOURIER, 1.0)]))
    assert not drawn


def test_grouped_maps_hand_the_words_on() -> None:
    bound = dps.Grouped(dps.Subsampled(dps.OneBitFourier(size=6), 2), "sex").bind(SCHEMA)
    assert bound.secret
    sums = sums_of(bound, codes_of(500), Keystream())
    assert 0 < np.abs(sums).sum() <= 500 * 4
    assert (bound.features(Records(codes_of(5))) != 0).any()


def test_records_without_words_are_a_bug() -> None:
    bound = dps.Subsampled(FOURIER, 3).bind(SCHEMA)
    with pytest.raises(RuntimeError, match="without secret words"):
        bound.accumulate(Records(codes_of(3)), np.zeros(bound.size, np.int64))


def test_the_sensitivities_are_those_of_the_proof() -> None:
    a, b = LARGEST_L1, LARGEST_L2_SQUARED
    found = {
        (scheme, relation): dps.Subsampled(FOURIER, 4, scheme).bind(SCHEMA).sensitivity(relation)
        for scheme in ("block", "uniform", "poisson")
        for relation in Relation
    }
    for scheme, count in (("block", 4), ("uniform", 4), ("poisson", 12)):
        assert found[scheme, Relation.ADD_REMOVE] == Sensitivity(count * a, count * b)
        assert found[scheme, Relation.REPLACE_ONE] == Sensitivity(2 * count * a, 4 * count * b)
    # Whole orthonormal bases: every block has the same, exact bound (compressive L. 22).
    bases = dps.Quadratic(size=32, directions="hadamard")
    bound = dps.Subsampled(bases, 8).bind(SCHEMA)
    assert bound.sensitivity(Relation.ADD_REMOVE).l1 * 4 == bound.inner.sensitivity(Relation.ADD_REMOVE).l1
    assert bound.sensitivity(Relation.REPLACE_ONE).l2_squared == 2 * bound.sensitivity(Relation.ADD_REMOVE).l2_squared


@pytest.mark.parametrize("directions", ["gaussian", "hadamard"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_quadratic_blocks_have_the_bounds_of_their_directions(directions: str, size: int) -> None:
    """The worst record of a block nearly attains its L1 bound, also in parts of a basis."""
    inner = dps.Quadratic(size=16, seed=4, radius=0.9, directions=directions).bind(SCHEMA)
    for first in range(0, 16, size):
        block = inner.restricted(first, first + size)
        top = np.linalg.eigh(block.directions.T @ block.directions)[1][:, -1]
        codes = np.trunc(top * block.ball).astype(np.int16)[:, None]
        sums = np.zeros(size, np.int64)
        block.accumulate(Records(codes), sums)
        limit = block.sensitivity(Relation.ADD_REMOVE)
        assert 0.995 * limit.l1 <= sums.sum() <= limit.l1
        assert sum(n * n for n in sums.tolist()) <= limit.l2_squared
        whole = np.zeros(16, np.int64)
        inner.accumulate(Records(codes), whole)
        assert (whole[first : first + size] == sums).all()


def test_bounds_of_many_directions_are_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single direction needs no certificate: only the full map's is computed."""
    calls = []
    honest = dps.maps.moments.quadratic.squares_bound  # type: ignore[attr-defined]
    monkeypatch.setattr("dpsketch.maps.moments.quadratic.squares_bound", lambda m: calls.append(len(m)) or honest(m))
    bound = dps.Subsampled(dps.Quadratic(size=500), 20, "uniform").bind(SCHEMA)
    assert bound.sensitivity(Relation.ADD_REMOVE).l1 > 0
    assert calls == [500]


class PublicMasks:
    """A planted error: masks from a public seed by the row's position."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def words(self, count: int) -> np.ndarray:
        return self._rng.integers(0, 2**32, count, dtype=np.uint32)


def test_public_masks_by_position_break_privacy() -> None:
    """Dropping the first row gives every later row the mask of the one before: the sums change by far more than one
    row's sensitivity, and nobody needs to guess. Hence masks come from secret words: averaged over them, the other
    rows' contributions have the same distribution with and without the row.
    """
    bound, codes = dps.Subsampled(FOURIER, 3).bind(SCHEMA), codes_of(500)
    limit = bound.sensitivity(Relation.ADD_REMOVE).l1
    change = sums_of(bound, codes, PublicMasks()) - sums_of(bound, codes[:, 1:], PublicMasks())
    assert np.abs(change).sum() > 10 * limit
    # With the masks coupled record by record, as secret ones can be, one row changes its own features only.
    stream, other = PublicMasks(), PublicMasks()
    first = sums_of(bound, codes[:, :1], stream)
    other.words(1)
    assert np.abs(first).sum() <= limit
    assert (sums_of(bound, codes[:, 1:], stream) == sums_of(bound, codes[:, 1:], other)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dps.Subsampled(FOURIER, 5), "must divide the 12 features"),
        (lambda: dps.Subsampled(FOURIER, 13), "from 1 to 12"),
        (lambda: dps.Subsampled(FOURIER, 0, "poisson"), "from 1 to 12"),
        (lambda: dps.Subsampled(FOURIER, True), "whole number"),
        (lambda: dps.Subsampled(FOURIER, 4, "random"), "one of block, uniform, poisson"),
        (lambda: dps.Subsampled(dps.Count(), 1), "map count cannot be subsampled"),
        (lambda: dps.Subsampled(dps.Race(), 1), "map race cannot be subsampled"),
        (lambda: dps.Subsampled(dps.Grouped(FOURIER, "sex"), 4), "neither grouped nor subsampled"),
        (lambda: dps.Subsampled(dps.Subsampled(FOURIER, 4), 4), "neither grouped nor subsampled"),
        (lambda: dps.Subsampled(dps.Fourier(size=20_000), 4, "uniform"), "20000 blocks are more than 10000"),
        (lambda: dps.Histogram().bind(SCHEMA).restricted(0, 1), "map histogram cannot be subsampled"),
        (lambda: map_from_dict({"map": "subsampled", "version": 1, "size": 3}), "'of' must be another map"),
        (
            lambda: map_from_dict(dps.Subsampled(FOURIER, 4).to_dict() | {"of": dps.Grouped(FOURIER, "sex").to_dict()}),
            "'of' must be another map",
        ),
        (lambda: map_from_dict({"map": "subsampled", "version": 1, "of": FOURIER.to_dict()}), "lacks a parameter"),
    ],
)
def test_bad_input(make: object, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make()  # type: ignore[operator]


def test_a_recipe_file_may_subsample(tmp_path: object) -> None:
    path = tmp_path / "r.toml"  # type: ignore[operator]
    path.write_text(
        '[[parts]]\nmap = "subsampled"\nshare = 1.0\nsize = 20\nof = {map = "fourier", size = 100}\n', encoding="utf-8"
    )
    (part,) = dps.Recipe.load(path).parts
    assert part.map == dps.Subsampled(dps.Fourier(size=100), 20)
    assert isinstance(part.map.bind(SCHEMA), BoundSubsampled)
    assert Fraction(part.map.rate) == Fraction(0.2)


def test_answers_need_no_rescaling() -> None:
    """Joint answers from masked sums lie near those from all of them, with a larger standard error for the masks."""
    rng = np.random.default_rng(SEED)
    x = rng.random(20_000)
    table = {"x": x, "y": np.clip(x + rng.normal(0, 0.1, len(x)), 0, 1)}
    unit = {"kind": "number", "lower": 0, "upper": 1}
    schema = dps.Schema.from_dict({"privacy": {"rows": 20_000}, "columns": {"x": unit, "y": unit}})
    fourier = dps.Fourier(size=100, radii=(1, 10))
    answers = []
    for joint in (fourier, dps.Subsampled(fourier, 20), dps.Subsampled(fourier, 20, "poisson")):
        parts = [dps.Part(dps.Count(), 0.1), dps.Part(dps.Histogram(bins=32), 0.4), dps.Part(joint, 0.5)]
        raw = dps.accumulate(pa.table(table), schema, dps.Recipe(parts))
        answers.append(dps.View(dps.release(raw, dps.Budget(float("inf")))).count("x < 0.5 and y < 0.5"))
    truth = float(((x < 0.5) & (table["y"] < 0.5)).sum())
    for answer in answers:
        assert abs(answer.value - truth) < 600 + 5 * answer.stderr
    assert answers[0].stderr < answers[1].stderr < 3000  # most of it is what 100 frequencies cannot tell


def _noises(schema: dps.Schema, inner: dps.Subsampled, budget: dps.Budget) -> float:
    """The noise variance of estimated sums of 20 of 200 frequencies."""
    bound = dps.Recipe([dps.Part(inner, 1.0)]).bind(schema)
    return noise_variance(bound.calibrated(budget).noises[0], bound.maps[0])


def _masked(scheme: str) -> dps.Subsampled:
    return dps.Subsampled(dps.Fourier(size=200), 20, scheme)


def test_poisson_masks_need_about_the_noise_of_uniform_ones() -> None:
    """Compressive L. 15: their worst mask keeps all of a record, but hardly any record has it. Bounds of the worst mask
    asked for 100 times the variance.
    """
    schema = dps.Schema.from_dict({"privacy": {"rows": 1000}} | {"columns": SCHEMA.to_dict()["columns"]})
    for epsilon in (0.1, 1.0):
        uniform, poisson = (_noises(schema, _masked(scheme), dps.Budget(epsilon)) for scheme in ("uniform", "poisson"))
        assert uniform < poisson < 1.1 * uniform


def test_noise_counts_on_masks_where_that_is_proven_alone() -> None:
    """Not for a row replaced, not for another scheme, not in groups."""
    replaced = dps.Schema.from_dict(SCHEMA.to_dict() | {"privacy": {"rows": 1000, "relation": "replace-one"}})
    added = dps.Schema.from_dict(SCHEMA.to_dict() | {"privacy": {"rows": 1000}})
    budget = dps.Budget(1.0)
    for schema, map_, counts in (
        (added, _masked("poisson"), True),
        (replaced, _masked("poisson"), False),
        (added, _masked("uniform"), False),
        (added, dps.Grouped(_masked("poisson"), "sex"), False),
    ):
        bound = dps.Recipe([dps.Part(map_, 1.0)]).bind(schema)
        event = bound.calibrated(budget, "laplace")
        assert event.once is counts
        assert bound.promised(event)
    sample = dps.Recipe([dps.Part(_masked("poisson"), 1.0)], sampling=dps.RowSampling(count=10)).bind(added)
    assert not sample.calibrated(budget, "laplace").once


def test_a_file_cannot_claim_other_masks() -> None:
    """Smaller features or a lower rate than the map's would make the noise look sufficient."""
    added = dps.Schema.from_dict(SCHEMA.to_dict() | {"privacy": {"rows": 1000}})
    bound = dps.Recipe([dps.Part(_masked("poisson"), 1.0)]).bind(added)
    event = bound.calibrated(dps.Budget(1.0), "laplace")
    (noise,) = event.noises
    masks = bound.maps[0].masks
    assert masks == Masks(LARGEST_L1, Fraction(round(0.1 * 2**32), 2**32)) == noise.masks
    for claimed in (Masks(masks.largest // 2, masks.rate), Masks(masks.largest, masks.rate / 2)):
        scale = claimed.scale(noise.sensitivity, Fraction(1))
        forged = Noise(Mechanism.LAPLACE, noise.sensitivity, min(scale, noise.scale), claimed)
        assert not bound.promised(Release(event.budget, (forged,)))
    wider = Masks(masks.largest + 1, masks.rate)
    safe = Noise(Mechanism.LAPLACE, noise.sensitivity, wider.scale(noise.sensitivity, Fraction(1)), wider)
    assert bound.promised(Release(event.budget, (safe,)))


def test_units_of_several_rows_have_masks_row_by_row() -> None:
    """Λ grows with the rows of a unit, the largest feature does not."""
    facts = SCHEMA.to_dict() | {"privacy": {"rows": 1000, "unit": "id", "max_rows_per_unit": 3}}
    one, three = (
        dps.Recipe([dps.Part(_masked("poisson"), 1.0)]).bind(schema).calibrated(dps.Budget(1.0), "laplace").noises[0]
        for schema in (dps.Schema.from_dict(SCHEMA.to_dict() | {"privacy": {"rows": 9}}), dps.Schema.from_dict(facts))
    )
    assert three.sensitivity == 3 * one.sensitivity
    assert three.masks == one.masks
    assert 2.9 < three.scale / one.scale < 3.05


def test_a_raw_sketch_with_counted_masks_is_released_once() -> None:
    schema = dps.Schema.from_dict(SCHEMA.to_dict() | {"privacy": {"rows": 300}})
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(_masked("poisson"), 0.9)])
    raw = dps.accumulate(mixed_table(300), schema, recipe)
    ledger = dps.Ledger("sqlite://")
    ledger.grant("t", dps.Budget(3.0))
    released = dps.release(raw, dps.Budget(1.0), ledger, "t")
    noise = released.statement["parts"][1]["noise"][0]
    assert noise["masks"]["largest"] == LARGEST_L1
    assert noise["epsilon"] == "0.9"
    with pytest.raises(LedgerError, match="it can be released only once"):
        dps.release(raw, dps.Budget(1.0), ledger, "t")


def test_the_statement_says_that_nothing_else_may_be_released() -> None:
    columns = {"x": {"kind": "number", "lower": 0, "upper": 1}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": columns})
    masked = dps.Subsampled(dps.Fourier(size=20), size=4, scheme="poisson")

    def statement(feature_map: dps.Fourier | dps.Subsampled) -> str:
        raw = dps.accumulate(pa.table({"x": [0.1, 0.7]}), schema, dps.Recipe([dps.Part(feature_map, 1.0)]))
        released = dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a", mechanism="laplace")
        return " ".join(statement_text(released.statement).split())

    premise = "if nothing else was released from the same raw sketch"
    assert premise in statement(masked)
    assert premise not in statement(masked.map)
