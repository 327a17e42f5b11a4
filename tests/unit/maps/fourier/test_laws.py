"""Frequencies of named kernels: the specified bits, the right distribution, the right kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import dpsketch as dps
from dpsketch.encoding.records import Records
from dpsketch.errors import RecipeError
from dpsketch.maps.draw import PublicStream
from dpsketch.maps.fourier.fourier import draw_frequencies
from dpsketch.maps.fourier.laws import KERNELS, LONGEST, Law
from dpsketch.maps.registry import map_from_dict
from dpsketch.schema.columns import SPAN

ALPHA = 1e-6
UNIT = 2**32 / (2 * math.pi * SPAN)  # of a radius of 1
# Of three frequencies of two columns, seed 7, width 0.1: docs/formats/draw.md.
VECTORS = {
    "gaussian": [[-92227, -30153], [-113453, 191544], [-22153, 12462]],
    "laplacian": [[-108356, -35427], [-67916, 114664], [-15576, 8762]],
    "adapted": [[-186116, -60850], [-39852, 67282], [-295430, 166199]],
}
SCHEMA = dps.Schema.from_dict(
    {"columns": {name: {"kind": "number", "lower": -3, "upper": 5} for name in ("a", "b", "c")}}
)


@pytest.mark.parametrize("kernel", KERNELS)
def test_vectors(kernel: str) -> None:
    described = dps.Fourier(size=3, seed=7, kernel=kernel, width=0.1)
    assert draw_frequencies(described, 2).tolist() == VECTORS[kernel]


def ln(x: float) -> float:
    """The logarithm of docs/formats/draw.md, number by number."""
    m, k = math.frexp(x)
    if m < 0.7071067811865476:
        m, k = 2 * m, k - 1
    z = (m - 1) / (m + 1)
    series = 0.0
    for power in range(23, 0, -2):
        series = series * (z * z) + 1 / power
    return k * 0.6931471805599453 + 2 * z * series


def by_the_page(kernel: str, width: float, count: int, dimension: int, seed: int) -> list[float]:
    """Lengths as docs/formats/draw.md describes them, one candidate at a time."""
    normals, uniforms, cauchy = (
        PublicStream(f"fourier {label}", seed) for label in ("radii normals", "radii uniforms", "cauchy")
    )
    halves = PublicStream("fourier adapted radii", seed).uniforms(100 * count).tolist()
    x = normals.normals(100 * count).tolist()
    u = uniforms.uniforms(100 * count).tolist()
    g = cauchy.normals(count).tolist()
    shape = dimension / 2 - 1 / 3
    slope = 1 / math.sqrt(9 * shape) if dimension > 1 else 0.0
    radii: list[float] = []
    for i in range(100 * count):
        if kernel == "adapted":
            one, two, three, four = halves[4 * i : 4 * i + 4]
            t = -ln(one) - (ln(three) if two < 0.2 else 0.0)
            if four * (1 + 0.25 * t) < math.sqrt(1 + 0.5 * t):
                radii.append(math.sqrt(2 * t))
        elif dimension == 1:
            radii.append(abs(x[i]))
        else:
            root = 1 + slope * x[i]
            cube = root * root * root
            if root > 0 and ln(u[i]) < 0.5 * (x[i] * x[i]) + shape - shape * cube + shape * ln(cube):
                radii.append(math.sqrt(2 * (shape * cube)))
        if len(radii) == count:
            break
    if kernel == "laplacian":
        radii = [radius / abs(each) for radius, each in zip(radii, g, strict=True)]
    return [min(radius * (10430.69667007098 / width), 2.0**30) for radius in radii]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dimension", [1, 2, 9])
def test_lengths_follow_the_specification_bit_by_bit(kernel: str, dimension: int) -> None:
    drawn = Law(kernel, 0.37).lengths(1000, dimension, 11)
    assert drawn.tolist() == by_the_page(kernel, 0.37, 1000, dimension, 11)
    assert drawn[:7].tolist() == Law(kernel, 0.37).lengths(7, dimension, 11).tolist()


def test_the_unit_is_that_of_the_codes() -> None:
    assert Law("gaussian", 1.0).lengths(1, 1, 3)[0] == pytest.approx(
        abs(PublicStream("fourier radii normals", 3).normals(1)[0]) * UNIT, rel=1e-15
    )


def adapted_share(radius: float) -> float:
    def density(r: float) -> float:
        return math.sqrt(r**2 + r**4 / 4) * math.exp(-(r**2) / 2)

    return float(scipy.integrate.quad(density, 0, radius)[0] / scipy.integrate.quad(density, 0, 12)[0])


@pytest.mark.parametrize("dimension", [1, 2, 3, 50])
def test_radii_have_the_distribution_of_the_kernel(dimension: int) -> None:
    """And those of another width have not."""
    shares = {
        "gaussian": lambda r: scipy.stats.chi(dimension).cdf(r),
        "laplacian": lambda r: scipy.stats.f(dimension, 1).cdf(r * r / dimension),
        "adapted": np.vectorize(adapted_share),
    }
    for kernel, share in shares.items():
        radii = Law(kernel, 0.2).lengths(4000, dimension, 1) * 0.2 / UNIT
        assert scipy.stats.kstest(share(radii), "uniform").pvalue > ALPHA
        assert scipy.stats.kstest(share(radii * 1.3), "uniform").pvalue < ALPHA


@pytest.mark.parametrize("structure", ["dense", "hadamard"])
@pytest.mark.parametrize("kind", [dps.Fourier, dps.OneBitFourier])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_features_average_to_the_kernel(kind: type, kernel: str, structure: str) -> None:
    """⟨Φ(x), Φ(y)⟩ of exact records, within the error of the random frequencies. One bit: of ⟨Φ(x), e^iωy⟩."""
    count, width = 20_000, 0.15
    described = kind(columns=["a", "b", "c"], size=count, seed=5, kernel=kernel, width=width, structure=structure)
    bound = described.bind(SCHEMA)
    places = np.array([[0, 0, 0], [0.05, 0, 0], [0.1, -0.1, 0.02], [0.1, 0.2, 0.1], [-0.3, 0.3, 0.0]])
    codes = np.rint(places.T * SPAN).astype(np.int16)
    features = bound.features(Records(codes))
    waves = (features[:, ::2] + 1j * features[:, 1::2]) / bound.amplitude
    if bound.dithers is not None:
        waves = waves * np.exp(-2j * np.pi * bound.dithers / 2**32)
    turns = codes.T @ bound.frequencies.T / 2**32
    products = (waves * np.exp(-2j * np.pi * turns[0])).real
    distances = np.linalg.norm(codes / SPAN, axis=0)
    kernels = {"gaussian": np.exp(-(distances**2) / (2 * width**2)), "laplacian": np.exp(-distances / width)}
    errors = products.std(axis=1) / np.sqrt(count) + 1e-9
    z = (products.mean(axis=1) - kernels[kernel]) / errors
    assert np.abs(z[kind is dps.Fourier :]).max() < scipy.stats.norm.isf(ALPHA)
    other = "laplacian" if kernel == "gaussian" else "gaussian"
    assert np.abs((products.mean(axis=1) - kernels[other]) / errors).max() > 10


def test_no_frequency_passes_the_longest() -> None:
    """Cauchy radii have no bound; phases of longer frequencies would depend on less than a code step."""
    lengths = Law("laplacian", 0.002).lengths(10**6, 1, 1)
    assert lengths.max() == LONGEST
    assert (lengths == LONGEST).mean() < 0.01
    for structure in ("dense", "hadamard"):
        bound = dps.Fourier(("a",), size=20_000, seed=1, kernel="laplacian", width=0.002, structure=structure)
        assert np.abs(bound.bind(SCHEMA).frequencies).max() <= LONGEST * (1 + 2**-10)


def test_descriptions_without_a_kernel_are_those_of_before() -> None:
    assert dps.Fourier(size=7, structure="dense").to_dict() == {
        "map": "fourier",
        "version": 1,
        "columns": None,
        "size": 7,
        "seed": 0,
        "radii": (2.0, 30.0),
    }
    assert dps.Fourier() == dps.Fourier(radii=(2, 30))
    assert map_from_dict({"map": "one_bit_fourier", "version": 1, "size": 5}) == dps.OneBitFourier(
        size=5, structure="dense"
    )


@pytest.mark.parametrize("kind", [dps.Fourier, dps.OneBitFourier])
def test_descriptions_with_a_kernel_come_back(kind: type) -> None:
    described = kind(size=7, kernel="gaussian", width=1)
    assert described.to_dict()["width"] == 1.0
    assert "radii" not in described.to_dict()
    assert map_from_dict(described.to_dict()) == described
    assert (
        described.bind(SCHEMA).fingerprint() != kind(size=7, kernel="gaussian", width=1.01).bind(SCHEMA).fingerprint()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "cosine", "width": 1}, "kernel must be one of gaussian, laplacian, adapted, got 'cosine' instead"),
        ({"kernel": "gaussian"}, "width of a kernel must be a number from 0.002 to 100, got None instead\nHint: give"),
        ({"kernel": "gaussian", "width": 0.001}, "got 0.001 instead"),
        ({"kernel": "gaussian", "width": True}, "got True instead"),
        ({"kernel": "gaussian", "width": math.nan}, "got nan instead"),
        ({"kernel": ["gaussian"], "width": 1}, "got .* instead"),
        ({"width": 0.1}, "width 0.1 is that of a kernel\nHint: pass kernel='gaussian' too, or radii"),
        (
            {"kernel": "adapted", "width": 0.1, "radii": (1, 2)},
            "kernel 'adapted' determines the radii\nHint: leave out",
        ),
    ],
)
def test_bad_laws_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        dps.Fourier(**arguments)
