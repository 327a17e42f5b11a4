"""Models as files: the same model again, or a refusal; every flip, every truncation, and well-sealed lies."""

from __future__ import annotations

import hashlib
import json
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

import dpsketch as dps
from dpsketch.errors import FileError, QueryError
from dpsketch.learn.estimators.radial_kernels import Radial
from dpsketch.maps.hashed.hashes import HashFamily
from dpsketch.sketch import container
from planted_clusters import SCHEMA, matrix, planted

ROWS = {"a": [-4.0, 3.0, None, 99.0], "b": [0.0, 2.5, -1.0, -99.0], "c": [9.0, None, 20.0, 21.0]}


def released(*maps: Any, columns: tuple[str, ...] = ("a", "b", "c", "label")) -> dps.View:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.1), *(dps.Part(each, 0.9 / len(maps)) for each in maps)])
    facts = SCHEMA.to_dict()
    facts["columns"] = {name: facts["columns"][name] for name in columns}
    raw = dps.accumulate(pa.table(dict(planted())), dps.Schema.from_dict(facts), recipe)
    return dps.View(dps.release(raw, dps.Budget(2.0), dps.Ledger("sqlite://"), "planted"))


def warned(model: Any, view: dps.View) -> Any:
    with pytest.warns(dps.FitWarning):
        return model.fit(view)


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """One model of every kind."""
    fourier = released(dps.Fourier(("a", "b", "c"), size=48, radii=(2, 40)))
    moments = released(dps.SecondMoments(("a", "b", "c")), dps.Marginals())
    joint = released(dps.Marginals(), dps.Pairs(pool=True), columns=("c", "label"))
    hashed = released(dps.Race(("b", "a"), 40, 64, hash=dps.Euclidean(0.2)), dps.Marginals(), columns=("a", "b"))
    table = released(dps.Histogram(2, ("a", "c"), 16))
    hash = dps.Product((dps.Factor(dps.Euclidean(0.5), ("a",)), dps.Factor(dps.SignedProjection(2), ("b", "c"))))
    product = released(dps.Race(rows=20, width=64, hash=hash))
    classes = released(dps.Grouped(dps.Race(("a", "b"), 30, 16, hash=dps.SignedProjection(4)), "label"))
    grid = released(dps.Grid(("a", "label"), width=256, levels=(2, 4)))
    return {
        "kmeans": dps.KMeans(np.int64(2)).fit(fourier),  # type: ignore[arg-type]
        "clompr": warned(dps.KMeans(2, "clompr"), fourier),
        "mixture": dps.GaussianMixture(2, "full").fit(fourier),
        "pca": dps.PCA(2).fit(moments),
        "second moments": dps.PCA(1, ["c", "a"], "second_moments").fit(moments),
        "linear": dps.LinearRegression("c", ["label"]).fit(joint),
        "no errors": dps.LinearRegression("c", penalty=0.1).fit(joint, uncertainty=False),
        "from moments": dps.LinearRegression("c").fit(moments),
        "logistic": dps.LogisticRegression("label").fit(joint),
        "density": dps.KernelDensity(dps.Euclidean(0.2), columns=["a", "b"]).fit(hashed),
        "density of a table": dps.KernelDensity("gaussian", {"a": 3, "c": 5.5}, ("c", "a")).fit(table),
        "density of products": dps.KernelDensity().fit(product),
        "anomaly": dps.AnomalyScorer(0.05, ["a", "b"]).fit(hashed),
        "anomaly of a table": dps.AnomalyScorer(0.02).fit(table),
        "anomaly without threshold": dps.AnomalyScorer().fit(product),
        "classifier": dps.DensityClassifier("label", "ml").fit(classes),
        "likelihood": dps.DensityClassifier("label", method="likelihood").fit(classes),
        "grid": dps.GridDensity().fit(grid),
        "grid counters": dps.GridDensity("normalised", 2, "median").fit(grid),
    }


KINDS = (
    *("kmeans", "clompr", "mixture", "pca", "second moments", "linear", "no errors", "from moments", "logistic"),
    *("density", "density of a table", "density of products"),
    *("anomaly", "anomaly of a table", "anomaly without threshold"),
    *("classifier", "likelihood", "grid", "grid counters"),
)
METHODS = ("predict", "transform", "predict_proba", "score_samples", "decision_function", "density", "log_odds")


def told(model: Any, method: str, rows: Any) -> Any:
    """What a method says, with errors if it has them; or in what words it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dps.FitWarning)
        try:
            found = getattr(model, method)(rows)
        except QueryError as error:
            return str(error)
    return np.stack([found.value, found.stderr]) if isinstance(found, dps.Answer) else found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray | np.generic):
        equal_nan = left.dtype.kind == "f"
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=equal_nan)
    if isinstance(left, Radial | HashFamily):
        return bool(left == right)
    return bool(json.dumps(left) == json.dumps(right))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_the_same_model(kind: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    model = fitted[kind]
    dps.save_model(model, tmp_path / "a.model")
    again = dps.load_model(tmp_path / "a.model")
    assert type(again) is type(model)
    public = [name for name in vars(model) if not name.startswith("_")]
    assert "statement_" in public
    for name in public:
        if name not in ("columns", "n_clusters"):
            assert same(getattr(model, name), getattr(again, name)), name
    rows = ROWS | {"label": ["x", "y", None, "z"]}
    for method in METHODS:
        if hasattr(model, method):
            assert same(told(model, method, rows), told(again, method, rows)), method
    if hasattr(model, "columns"):
        assert (model.columns is None) == (again.columns is None)
        assert list(model.columns or ()) == list(again.columns or ())
    dps.save_model(again, tmp_path / "b.model")
    assert (tmp_path / "a.model").read_bytes() == (tmp_path / "b.model").read_bytes()
    if hasattr(again, "plot") and kind != "density of products":
        again.plot(tmp_path / "a.png")


def test_the_statement_of_the_release_goes_with_the_model(fitted: dict[str, Any], tmp_path: Path) -> None:
    dps.save_model(fitted["kmeans"], tmp_path / "a.model")
    statement = dps.load_model(tmp_path / "a.model").statement_
    assert statement["epsilon"] == "2"
    assert statement["parts"][1]["map"] == "fourier"


def test_a_model_finds_the_planted_clusters_after_a_round_trip(fitted: dict[str, Any], tmp_path: Path) -> None:
    dps.save_model(fitted["kmeans"], tmp_path / "a.model")
    table = planted(2)
    found = dps.load_model(tmp_path / "a.model").predict(matrix(table))
    assert np.mean((found == 1) == (table["label"] == "y")) > 0.99


def test_what_cannot_be_saved(fitted: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="not fitted"):
        dps.save_model(dps.KMeans(2), tmp_path / "a.model")
    with pytest.raises(QueryError, match="a dict cannot be saved"):
        dps.save_model({}, tmp_path / "a.model")  # type: ignore[arg-type]
    dps.save_model(fitted["pca"], tmp_path / "a.model")
    with pytest.raises(FileError, match="exists already"):
        dps.save_model(fitted["pca"], tmp_path / "a.model")
    dps.save_model(fitted["pca"], tmp_path / "a.model", force=True)
    with pytest.raises(FileError, match="is not a folder"):
        dps.save_model(fitted["pca"], tmp_path / "none" / "a.model")


def test_models_and_sketches_are_told_apart(fitted: dict[str, Any], tmp_path: Path) -> None:
    dps.save_model(fitted["pca"], tmp_path / "a.model")
    with pytest.raises(FileError, match=r"is a model, not a sketch\nHint: .*dpsketch score"):
        dps.open(tmp_path / "a.model")
    released(dps.Marginals()).released.save(tmp_path / "a.sketch")
    with pytest.raises(FileError, match=r"is a sketch, not a model\nHint: .*dpsketch fit"):
        dps.load_model(tmp_path / "a.sketch")
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(ROWS))
    with pytest.raises(FileError, match="damaged or not a model file"):
        dps.load_model(tmp_path / "a.pickle")
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FileError, match="cannot be read"):
            dps.load_model(path)


@pytest.fixture(scope="module")
def small(fitted: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("small") / "a.model"
    dps.save_model(fitted["kmeans"], path)
    return path.read_bytes()


def refused(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(FileError):
        dps.load_model(path)


def test_every_flip_and_truncation(small: bytes, tmp_path: Path) -> None:
    for place in range(0, len(small), 5):
        changed = bytearray(small)
        changed[place] ^= 1 << place % 8
        refused(bytes(changed), tmp_path / "a.model")
    for length in range(0, len(small), 17):
        refused(small[:length], tmp_path / "a.model")
    refused(small + b"\0", tmp_path / "a.model")


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for content in (data, data + hashlib.sha256(data).digest()):
            refused(content, Path(folder) / "a.model")


def sealed(header: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """A file with a correct digest, whatever it says."""
    text = header if isinstance(header, str) else json.dumps(header)
    data = save({**tensors, "sha256": np.zeros(32, np.uint8)}, metadata={"dpsketch": text})
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def opened(data: bytes, path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path.write_bytes(data)
    found = container.checked(path, "model")
    return found.header, {name: array.load() for name, array in found.stored_arrays().items()}


Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


def put(*keys: Any, value: Any) -> Change:
    def change(header: dict[str, Any], _tensors: dict[str, np.ndarray]) -> None:
        inner: Any = header
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def array(name: str, value: np.ndarray | None) -> Change:
    def change(_header: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value

    return change


LIES = {
    "newer": put("format", value=2),
    "kind": put("kind", value="oven"),
    "a sketch": put("kind", value="released"),
    "unknown model": put("model", value="os.system"),
    "a public name that is no model": put("model", value="Ledger"),
    "model is a list": put("model", value=["KMeans"]),
    "another model": put("model", value="PCA"),
    "no facts": put("facts", value=None),
    "facts are text": put("facts", value="trust me"),
    "unknown parameter": put("facts", "parameters", "evil", value=1),
    "too many clusters": put("facts", "parameters", "n_clusters", value=3),
    "clusters are text": put("facts", "parameters", "n_clusters", value="2"),
    "unknown method": put("facts", "parameters", "method", value="pickle"),
    "seed is text": put("facts", "parameters", "random_state", value="0"),
    "unknown column": put("facts", "columns", value=["a", "b", "evil"]),
    "fewer columns": put("facts", "columns", value=["a", "b"]),
    "a category for a number": put("facts", "columns", value=["a", "b", "label"]),
    "schema is a list": put("facts", "schema", value=[]),
    "bounds": put("facts", "schema", "columns", "a", "lower", value=1e999),
    "no statement": put("statement", value={}),
    "statement is text": put("statement", value="private"),
    "statement without budget": put("statement", "epsilon", value=None),
    "words about it are a list": put("statement", "about", value=[]),
    "words about it are numbers": put("statement", "about", value={"name": 5}),
    "groups are text": put("statement", "groups", value=[{"people": 2, "epsilon": "x", "delta": "0"}]),
    "the ledger is text": put("statement", "ledger", value=["spent"]),
    "trust is a number": put("statement", "trust", value={"curator": 5, "readers": 5}),
    "no centres": array("model.places", None),
    "short centres": array("model.places", np.zeros((1, 3))),
    "flat centres": array("model.places", np.zeros(6)),
    "not finite": array("model.places", np.full((2, 3), np.inf)),
    "integers for floats": array("model.places", np.zeros((2, 3), np.int64)),
    "other type": array("model.places", np.zeros((2, 3), np.float32)),
    "atoms": array("model.logits", np.zeros(5)),
    "spreads": array("model.spreads", np.zeros((2, 4))),
    "a foreign tensor": array("part.0", np.zeros(1)),
}


@pytest.mark.parametrize("lie", LIES)
def test_well_sealed_lies(lie: str, small: bytes, tmp_path: Path) -> None:
    header, tensors = opened(small, tmp_path / "good.model")
    LIES[lie](header, tensors)
    refused(sealed(header, tensors), tmp_path / "a.model")


def test_the_helper_makes_good_files(small: bytes, tmp_path: Path) -> None:
    """So that the lies above are refused for what they say."""
    (tmp_path / "a.model").write_bytes(sealed(*opened(small, tmp_path / "good.model")))
    assert dps.load_model(tmp_path / "a.model").n_clusters == 2


def test_a_newer_file_says_what_to_do(small: bytes, tmp_path: Path) -> None:
    header, tensors = opened(small, tmp_path / "good.model")
    (tmp_path / "a.model").write_bytes(sealed(header | {"format": 9}, tensors))
    with pytest.raises(FileError, match=r"up to format 1\nHint: use the library version that wrote the file"):
        dps.load_model(tmp_path / "a.model")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "clompr"])
def test_every_array_of_every_model_is_needed_in_its_shape(kind: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    dps.save_model(fitted[kind], tmp_path / "good.model")
    header, tensors = opened((tmp_path / "good.model").read_bytes(), tmp_path / "good.model")
    for name, good in tensors.items():
        rest = {key: value for key, value in tensors.items() if key != name}
        refused(sealed(header, rest), tmp_path / "a.model")
        refused(sealed(header, rest | {name: np.zeros((*good.shape, 2))}), tmp_path / "a.model")
    for fact in header["facts"]:
        facts = {key: value for key, value in header["facts"].items() if key != fact}
        refused(sealed(header | {"facts": facts}, tensors), tmp_path / "a.model")


LIES_OF_KINDS = [
    ("density", put("facts", "kernel", "bandwidth", value=0.3)),
    ("density", put("facts", "source", value="table")),
    ("density", put("facts", "source", value="oven")),
    ("density", put("facts", "columns", value=["a", "a"])),
    ("density", put("facts", "columns", value=["a"])),
    ("density", put("facts", "rows", value=[0.0, 1.0])),
    ("density", put("facts", "rows", value=[1e999, 1.0])),
    ("density", put("facts", "parameters", "kernel", value=3)),
    ("density", put("facts", "parameters", "evil", value=3)),
    ("density", put("facts", "facts", "variance", value=-1.0)),
    ("density", put("facts", "facts", "map", "rows", value=41)),
    ("density", put("facts", "facts", "map", value={"map": "count", "version": 1})),
    ("density", array("model.sums", np.zeros(40 * 64))),
    ("density of a table", put("facts", "kernel", "spans", value=[1.0])),
    ("density of a table", put("facts", "kernel", "spans", value=[0.0, 1.0])),
    ("density of a table", put("facts", "kernel", "name", value="oven")),
    ("density of a table", put("facts", "integral", value=0.0)),
    ("density of a table", put("facts", "facts", "axes", value=[[16, True]])),
    ("density of a table", array("model.noise", np.full((18, 18), -1.0))),
    ("density of a table", array("model.value", np.full((18, 18), np.nan))),
    ("anomaly", put("facts", "contamination", value=0.7)),
    ("anomaly", put("facts", "offset", value="low")),
    ("anomaly", put("facts", "columns", value=["a", "c"])),
    ("classifier", put("facts", "levels", value=[0])),
    ("classifier", put("facts", "levels", value=[0, 9])),
    ("classifier", put("facts", "levels", value=[1, 0])),
    ("classifier", put("facts", "prior", value="pickle")),
    ("classifier", put("facts", "target", value="evil")),
    ("classifier", array("model.class_count", np.zeros(2))),
    ("grid", put("facts", "parameters", "method", value="sketch")),
    ("grid", put("facts", "parameters", "heavy", value=0)),
    ("grid", put("facts", "columns", value=["a", "evil"])),
    ("grid", array("model.elsewhere", np.array([np.nan]))),
    ("grid counters", put("facts", "position", value=7)),
    ("grid counters", put("facts", "level", value=4)),
    ("grid counters", put("facts", "rows", value=0)),
    ("density", put("facts", "facts", "variance", value=1e308)),
    ("density", array("model.sums", np.zeros(40 * 64, np.int8))),
    ("density", array("model.sums", np.full(40 * 64, -(2**63)))),
    ("classifier", array("model.counters", np.zeros((2, 30, 16), np.int8))),
    ("grid counters", array("model.sums", np.zeros(5 * 256, np.int16))),
]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "clompr"])
def test_absurd_numbers_are_refused_or_scored(kind: str, fitted: dict[str, Any], tmp_path: Path) -> None:
    """As they come: no model may load and then fail on rows."""
    dps.save_model(fitted[kind], tmp_path / "good.model")
    header, tensors = opened((tmp_path / "good.model").read_bytes(), tmp_path / "good.model")
    for name, good in tensors.items():
        if good.dtype == np.float64:
            for value, places in product((1e308, -1e308, 1e99, 1e-308, 0.0), (slice(1), slice(-1, None), slice(None))):
                changed = np.array(good)
                changed.reshape(-1)[places] = value
                (tmp_path / "a.model").write_bytes(sealed(header, tensors | {name: changed}))
                with np.errstate(all="ignore"), suppress(FileError):
                    model = dps.load_model(tmp_path / "a.model")
                    model.scores({key: ROWS.get(key, ["p", "q", None, "p"]) for key in model.input_columns})


@pytest.mark.parametrize(("kind", "lie"), LIES_OF_KINDS)
def test_well_sealed_lies_about_densities(kind: str, lie: Change, fitted: dict[str, Any], tmp_path: Path) -> None:
    dps.save_model(fitted[kind], tmp_path / "good.model")
    header, tensors = opened((tmp_path / "good.model").read_bytes(), tmp_path / "good.model")
    lie(header, tensors)
    refused(sealed(header, tensors), tmp_path / "a.model")


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "null", "{}", "not json", '{"kind":"model","format":1e999}'])
def test_odd_headers(text: str, tmp_path: Path) -> None:
    refused(sealed(text, {}), tmp_path / "a.model")
