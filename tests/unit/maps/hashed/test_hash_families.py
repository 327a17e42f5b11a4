"""Collision rates of hash families follow their kernels, and labels count by equality."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.encoding.frames import read_column
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.hashed.hashes import HashFamily
from dpsketch.maps.hashed.race import BoundRace
from dpsketch.numerics.arrays import Floats
from dpsketch.recipe.recipe_file import recipe_facts

ROWS, WIDTH = 12_000, 1 << 14
LABELS = ["a", "b", "c", "d"]
COLUMNS: dict[str, dict[str, object]] = {
    "x": {"kind": "number", "lower": 0, "upper": 2},
    "y": {"kind": "number", "lower": 0, "upper": 10},
    "label": {"kind": "category", "values": LABELS},
    "yes": {"kind": "boolean"},
}
FIRST = {"x": 0.5, "y": 5.0, "label": "a", "yes": True}
# Records to compare with FIRST, and the distance in each column, in widths of the bounds.
OTHERS = [
    ({}, (0, 0, 0, 0)),
    ({"x": 0.9}, (0.2, 0, 0, 0)),
    ({"x": 1.5, "y": 1.0}, (0.5, 0.4, 0, 0)),
    ({"label": "b"}, (0, 0, 1, 0)),
    ({"label": "d"}, (0, 0, 1, 0)),
    ({"label": None}, (0, 0, 1, 0)),
    ({"label": "nobody's"}, (0, 0, 1, 0)),
    ({"yes": False}, (0, 0, 0, 1)),
    ({"yes": None}, (0, 0, 0, 1)),
    ({"x": 0.7, "label": "c", "yes": False}, (0.1, 0, 1, 1)),
]


def schema_of(labels: Sequence[str] = LABELS) -> dps.Schema:
    columns = COLUMNS | {"label": {"kind": "category", "values": list(labels)}}
    return dps.Schema.from_dict({"privacy": {"rows": 1000}, "columns": columns})


def records_of(schema: dps.Schema, rows: Sequence[dict[str, object]]) -> Records:
    cells = {name: [(FIRST | row)[name] for row in rows] for name in COLUMNS}
    return Records(np.array([read_column(column, cells[column.name]) for column in schema.scalars]))


def collision_rates(family: HashFamily, listed: Sequence[str] = LABELS, labels: str = "equal") -> Floats:
    """How often each of OTHERS has the counter of FIRST."""
    schema = schema_of(listed)
    bound = dps.Race(tuple(COLUMNS), ROWS, WIDTH, hash=family, labels=labels).bind(schema)
    places, _ = bound.entries(records_of(schema, [FIRST, *(row for row, _ in OTHERS)]), ROWS)
    return np.asarray((places[1:] == places[0]).mean(axis=1))


def cosines() -> Floats:
    """Cosines of the angles between FIRST and the others: numbers from −1 to 1, labels as one indicator each."""
    rows = [FIRST | row for row in ({}, *(row for row, _ in OTHERS))]
    points = []
    for row in rows:
        numbers = [float(row["x"]) - 1, float(row["y"]) / 5 - 1]  # type: ignore[arg-type]
        listed = [*LABELS, "nobody's", None]
        points.append(numbers + [float(row["label"] == each) for each in listed] + _yes(row["yes"]))
    table = np.array(points)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    return table[1:] @ table[0]


def _yes(cell: object) -> list[float]:
    return [float(cell is each) for each in (True, False, None)]


def expected(family: HashFamily) -> Floats:
    away = np.array([distances for _, distances in OTHERS], np.float64)
    if isinstance(family, dps.Euclidean):
        return family.kernel(np.sqrt((away**2).sum(axis=1)))
    if isinstance(family, dps.Manhattan):
        return family.kernel(away.sum(axis=1))
    if isinstance(family, dps.Hamming):
        return family.kernel((away == 0).mean(axis=1))
    assert isinstance(family, dps.SignedProjection)
    return family.kernel(np.arccos(np.clip(cosines(), -1, 1)))


FAMILIES = [
    dps.Euclidean(0.8),
    dps.Euclidean(2.0, power=3),
    dps.Manhattan(0.8),
    dps.Manhattan(0.02),
    dps.Manhattan(5.0, power=4),
    dps.Hamming(),
    dps.Hamming(power=3),
    dps.SignedProjection(3),
]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("labels", [LABELS, ["d", "b", "a", "c"]], ids=["listed", "another order"])
def test_collision_rates_are_the_kernel(family: HashFamily, labels: Sequence[str]) -> None:
    """Within 4.5 standard deviations (6·10⁻⁶ each, for 10 records) and the 1/W that collide by accident."""
    rates, exact = collision_rates(family, labels), expected(family)
    assert (np.abs(rates - exact) <= 4.5 * np.sqrt(exact * (1 - exact) / ROWS) + 2 / WIDTH).all()


def test_labels_in_order_stay_available() -> None:
    """The meaning of files written before labels counted by equality: a line from the first label to `other`."""
    rates = collision_rates(dps.Euclidean(0.8), labels="ordered")
    exact = dps.Euclidean(0.8).kernel(np.array([0.25, 0.75, 0.5, 1.0, 0.5]))  # b, d, missing, other, missing boolean
    assert np.abs(rates[[3, 4, 5, 6, 8]] - exact).max() < 4.5 * np.sqrt(0.25 / ROWS)


@pytest.mark.parametrize(("family", "distance"), [(dps.Manhattan, np.abs), (dps.Euclidean, np.abs)])
def test_labels_are_one_unit_apart_without_scaling(
    family: type[dps.Manhattan], distance: Callable[[Floats], Floats]
) -> None:
    bound = dps.Race(("label",), ROWS, WIDTH, hash=family(3.0, scaled=False)).bind(schema_of())
    places, _ = bound.entries(records_of(schema_of(), [{"label": "a"}, {"label": "c"}]), ROWS)
    assert abs((places[0] == places[1]).mean() - family(3.0).kernel(distance(np.array(1.0)))) < 0.02


@pytest.mark.parametrize("family", [dps.Euclidean(), dps.Manhattan(), dps.Hamming(power=2), dps.SignedProjection(2)])
def test_kernel_sums_do_not_depend_on_the_order_of_labels(family: HashFamily, rng: np.random.Generator) -> None:
    cells = {"x": rng.uniform(0, 2, 3000), "y": rng.uniform(0, 10, 3000), "yes": rng.random(3000) < 0.3}
    people = pa.table(cells | {"label": rng.choice(LABELS, 3000, p=[0.4, 0.2, 0.3, 0.1])})
    points = {"x": [0.5, 1.5], "y": [5.0, 5.0], "yes": [True, False], "label": ["c", "a"]}
    answers = []
    for labels in (LABELS, ["a", "d", "b", "c"]):
        raw = dps.accumulate(
            people, schema_of(labels), dps.Recipe([dps.Part(dps.Race(rows=2000, width=500, hash=family), 1.0)])
        )
        answers.append(dps.View(dps.release(raw, dps.Budget(float("inf")))).kernel_sum(points))
    one, two = answers
    assert (np.abs(one.value - two.value) < 4 * np.hypot(one.stderr, two.stderr)).all()


def test_the_manhattan_kernel_is_the_collision_probability() -> None:
    """Against a direct simulation of floor(a·x + b) with a Cauchy number a."""
    rng = np.random.default_rng(0)
    slopes, offsets = rng.standard_cauchy(400_000), rng.random(400_000)
    for distance in (0.1, 1.0, 5.0):
        same = np.floor(offsets) == np.floor(slopes * distance + offsets)
        assert abs(same.mean() - dps.Manhattan(bandwidth=1.0).kernel(np.array(distance))) < 0.004


@pytest.mark.parametrize("distance", [0.3, 1.0, 40.0])
def test_wrapped_cauchy_projections_hardly_change_the_kernel(distance: float) -> None:
    """Bins wrap around modulo 2^32. Farther than the farthest records, the range is at least 256 bins: the exact
    collision probability, a sum over all turns, is at most 6·10⁻⁵ of the kernel above it.
    """
    turns = 256 * max(distance, 1.0) * np.arange(1, 2000)
    fine = np.linspace(-1, 1, 2001)
    weights = (1 - np.abs(fine)) * (fine[1] - fine[0])
    extra = 2 * sum(float(weights @ (distance / (np.pi * ((turn + fine) ** 2 + distance**2)))) for turn in turns)
    assert 0 < extra < 6e-5 * float(dps.Manhattan(1.0).kernel(np.array(distance)))


def test_cauchy_coefficients_wrap_exactly() -> None:
    """Coefficients beyond 64 bits are reduced modulo 2^32 as integers, and fill the whole range."""
    from dpsketch.maps.hashed.hash_parameters import _wrapped

    real = np.array([0.4, -0.6, 2.0**31, -(2.0**31) - 1, 3.0 * 2**80, 1e18 + 4096, -5e11])
    exact = [(round(number) + 2**31) % 2**32 - 2**31 for number in real.tolist()]
    assert _wrapped(real).tolist() == exact
    numbers = PublicStream("example", 7).cauchys(100_000)
    assert np.isfinite(numbers).all()
    assert np.abs(np.quantile(numbers, [0.25, 0.5, 0.75]) - [-1, 0, 1]).max() < 0.03


def test_queries_and_blocks_agree_for_every_family(rng: np.random.Generator) -> None:
    """Few queries are hashed one by one, many records in tiles: the same counters."""
    schema = schema_of()
    codes = rng.integers(-32768, 32768, (4, 700)).astype(np.int16)
    product = dps.Product([dps.Factor(dps.Hamming(), ["label", "yes"]), dps.Factor(dps.Manhattan(0.3), ["x", "y"])])
    for family in (*FAMILIES, product):
        bound = dps.Race(rows=31, width=64, hash=family).bind(schema)
        sums = np.zeros(bound.size, np.int64)
        bound.accumulate(Records(codes), sums)
        assert (sums == np.bincount(bound.entries(Records(codes), 31)[0].ravel(), minlength=bound.size)).all()


def test_parameters_follow_the_documented_draw() -> None:
    """docs/formats/draw.md in plain Python: Cauchy coefficients of a number and of a boolean's three inputs; columns
    of bit sampling.
    """
    bound = dps.Race(("x", "yes"), 40, 8, seed=3, hash=dps.Manhattan(0.25, power=2)).bind(schema_of())
    stream = PublicStream("race projections 0", 3)
    normals = stream.normals(2 * 40 * 2 * 4).tolist()
    bits = min(24, 32 - math.frexp(256 * 8.0)[1])  # x and the boolean are four bandwidths wide each
    exact = []
    for one, two in zip(normals[::2], normals[1::2], strict=True):
        coefficient = round(one / two * (4.0 * 2.0**bits / 65534))
        exact.append((coefficient + 2**31) % 2**32 - 2**31)
    (projection,) = bound.projected
    assert projection.shift == bits
    assert projection.coefficients.ravel().tolist() == exact
    assert projection.offsets.ravel().tolist() == [int(word) >> (64 - bits) for word in stream.words(80)]
    codes = np.array([[5, -32768], [0, 0], [0, 0], [-32767, -32768]], np.int16)
    assert projection.inputs(codes, query=False).T.tolist() == [[5, 32767, 0, 0], [0, 0, 0, 32767]]

    (sampled,) = dps.Race(("x", "y", "yes"), 40, 8, seed=3, hash=dps.Hamming(2)).bind(schema_of()).projected
    words = PublicStream("race projections 0", 3).words(80).tolist()
    assert sampled.coefficients.reshape(80, 3).argmax(axis=1).tolist() == [(word >> 32) * 3 >> 32 for word in words]
    assert sampled.inputs(codes, query=False).tolist() == codes[[0, 1, 3]].tolist()


def test_hamming_hashes_one_code_a_projection() -> None:
    bound: BoundRace = dps.Race(rows=500, width=8, hash=dps.Hamming(power=2)).bind(schema_of())
    (projection,) = bound.projected
    assert projection.shift == 0
    assert (projection.coefficients.sum(axis=2) == 1).all()
    assert (projection.coefficients.reshape(-1, 4).sum(axis=0) > 200).all()


def test_densities_of_labels_follow_the_kernel(rng: np.random.Generator, tmp_path: Path) -> None:
    """By hashed counters that simulated records correct, in any order of the labels."""
    count = 6000
    label = rng.choice(LABELS, count, p=[0.4, 0.2, 0.3, 0.1])
    cells = {"x": rng.uniform(0, 2, count), "y": rng.uniform(0, 10, count), "yes": rng.random(count) < 0.3}
    people = pa.table(cells | {"label": label})
    numbers = np.column_stack([cells["x"] / 2, cells["y"] / 10])
    away = ((numbers - [0.25, 0.5]) ** 2).sum(axis=1) + (label != "c") + ~cells["yes"]
    family = dps.Euclidean(0.4)
    exact = float(family.kernel(np.sqrt(away)).mean())
    for labels in (LABELS, ["a", "d", "b", "c"]):
        schema, budget = schema_of(labels), dps.Budget(10.0, 1e-6)
        recipe = dps.Recipe.density(schema, rows=count, budget=budget, columns=tuple(COLUMNS), hash=family)
        view = dps.View(dps.release(dps.accumulate(people, schema, recipe), budget, dps.Ledger("sqlite://"), "d"))
        model = dps.KernelDensity().fit(view)
        point = {"x": [0.5], "y": [5.0], "label": ["c"], "yes": [True]}
        answer = model.density(point)
        assert "corrected" in model.how_
        assert abs(answer.value[0] - exact) < max(4 * answer.stderr[0], 0.01 * exact)
        dps.save_model(model, tmp_path / f"{labels[1]}.model")
        again = dps.load_model(tmp_path / f"{labels[1]}.model").density(point)
        assert again.value == pytest.approx(answer.value)


def test_anomalies_of_labels_do_not_depend_on_their_order(rng: np.random.Generator) -> None:
    """A rare pair of labels is the anomaly, wherever its labels are listed."""
    label = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 4000)]
    yes = np.isin(label, ["a", "b"])
    people = pa.table({"x": np.full(4000, 1.0), "y": np.full(4000, 5.0), "label": label, "yes": yes})
    for labels in (LABELS, ["c", "a", "d", "b"]):
        schema, budget = schema_of(labels), dps.Budget(4.0)
        recipe = dps.Recipe.anomaly(schema, rows=4000, budget=budget)
        view = dps.View(dps.release(dps.accumulate(people, schema, recipe), budget, dps.Ledger("sqlite://"), "d"))
        points = {"x": [1.0] * 4, "y": [5.0] * 4, "label": ["a", "d", "a", "c"], "yes": [True, False, False, True]}
        scores = dps.AnomalyScorer().fit(view).score_samples(points)
        assert scores[:2].min() > scores[2:].max() + 0.3


@pytest.mark.parametrize("family", [dps.Manhattan(0.25, 2), dps.Hamming(3)])
def test_recipe_files_name_the_new_families(family: HashFamily, tmp_path: Path) -> None:
    parameters = ", ".join(
        f"{name} = {value}" for name, value in family.to_dict().items() if not isinstance(value, bool)
    )
    text = parameters.replace(f"= {family.family}", f'= "{family.family}"')
    path = tmp_path / "recipe.toml"
    path.write_text(f'[[parts]]\nmap = "race"\nrows = 20\nwidth = 30\nshare = 1.0\nhash = {{{text}}}\n')
    recipe = dps.Recipe.from_dict(recipe_facts(path))
    assert recipe.parts[0].map == dps.Race(rows=20, width=30, hash=family)
    assert recipe.parts[0].map.labels == "equal"  # type: ignore[attr-defined]


def test_parts_add_up_to_sums_of_kernels(rng: np.random.Generator) -> None:
    """With weights of either sign, and errors of independent parts."""
    cells = {"x": rng.uniform(0, 2, 4000), "y": rng.uniform(0, 10, 4000), "label": ["a"] * 4000, "yes": [True] * 4000}
    families = (dps.Euclidean(0.2), dps.Manhattan(0.5))
    races = [dps.Race(("x", "y"), 600, 500, seed=seed, hash=family) for seed, family in enumerate(families)]
    recipe = dps.Recipe([dps.Part(race, 0.5) for race in races])
    raw = dps.accumulate(pa.table(cells), schema_of(), recipe)
    view = dps.View(dps.release(raw, dps.Budget(5.0), dps.Ledger("sqlite://"), "d"))
    points = rng.uniform([0, 0], [2, 10], (60, 2))
    across = np.abs(cells["x"] - points[:, :1]) / 2, np.abs(cells["y"] - points[:, 1:]) / 10
    exact = 2 * families[0].kernel(np.hypot(*across)).sum(axis=1) - families[1].kernel(across[0] + across[1]).sum(
        axis=1
    )
    one, two = (view.kernel_sum(points, part=part) for part in (0, 1))
    errors = (2 * one.value - two.value - exact) / np.hypot(2 * one.stderr, two.stderr)
    assert np.sqrt(np.mean(errors**2)) < 2.0
    assert np.abs(2 * one.value - two.value - exact).mean() < 0.15 * exact.mean()


def test_kernel_density_takes_the_new_families(rng: np.random.Generator) -> None:
    people = pa.table(
        {"x": rng.uniform(0, 2, 2000), "y": rng.uniform(0, 10, 2000), "label": ["a"] * 2000, "yes": [True] * 2000}
    )
    family = dps.Manhattan(0.3)
    raw = dps.accumulate(people, schema_of(), dps.Recipe([dps.Part(dps.Race(("x", "y"), 2000, 500, hash=family), 1.0)]))
    model = dps.KernelDensity(family).fit(dps.View(dps.release(raw, dps.Budget(float("inf")))))
    x, y = np.asarray(people["x"]), np.asarray(people["y"])
    exact = family.kernel(np.abs(x - 1) / 2 + np.abs(y - 5) / 10).mean()
    assert model.density([[1.0, 5.0]]).value[0] == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dps.Hamming(power=0), "power must be a whole number"),
        (lambda: dps.Manhattan(bandwidth=-1), "Manhattan: bandwidth must be a number above 0"),
        (lambda: dps.Manhattan(scaled=1), "Manhattan: scaled must be true or false"),  # type: ignore[arg-type]
        (lambda: dps.Race(labels="alphabetical"), "labels must be one of equal, ordered"),
        (lambda: dps.Race(hash=dps.MinHash(), labels="equal"), "ordered for an embedding or sets"),
        (lambda: dps.Race(("x",), hash=dps.Manhattan(1e-9)).bind(schema_of()), "bits are left to resolve one"),
        (
            lambda: dps.Race(hash=dps.Hamming(), embedding=dps.Embedding.from_arrays([([[1.0]], [0])])),
            "an embedding is hashed by a scaled Euclidean or Manhattan",
        ),
        (
            lambda: dps.Race(("label",)).bind(schema_of([f"value {index}" for index in range(3000)])),
            "one indicator for each label, and the columns have 3002, more than 2048",
        ),
    ],
)
def test_wrong_families_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        make()


def test_many_labels_are_hashed_by_hamming() -> None:
    schema = schema_of([f"value {index}" for index in range(3000)])
    assert dps.Race(rows=5, width=50, hash=dps.Hamming()).bind(schema).size == 250


@pytest.mark.parametrize("family", [dps.Euclidean(1e-320), dps.Manhattan(1e-320)])
def test_bandwidths_that_nothing_resolves_are_refused(family: HashFamily) -> None:
    columns = {"x": {"kind": "number", "lower": 0, "upper": 1}}
    schema = dps.Schema.from_dict({"privacy": {"rows": 100}, "columns": columns})
    with pytest.raises(RecipeError, match="use a wider bandwidth"):
        dps.Race(hash=family).bind(schema)
