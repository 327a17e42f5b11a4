"""The reader under attack: every flip, every truncation, and well-sealed lies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

import dpsketch as dps
from dpsketch.errors import FileError
from dpsketch.sketch import file


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    facts = {"privacy": {"rows": 10}, "columns": {"x": {"kind": "boolean"}}}
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Histogram(), 0.5)])
    raw = dps.accumulate(pa.table({"x": [True, False]}), dps.Schema.from_dict(facts), recipe)
    path = tmp_path_factory.mktemp("small") / "a.sketch"
    dps.release(raw, dps.Budget(1.0), dps.Ledger("sqlite://"), "a").save(path)
    return path.read_bytes()


def same_or_refused(data: bytes, original: bytes, path: Path) -> None:
    path.write_bytes(data)
    try:
        sketch = dps.ReleasedSketch.load(path)
    except FileError:
        return
    path.write_bytes(original)
    assert sketch.statement == dps.ReleasedSketch.load(path).statement
    assert [p.sums.tolist() for p in sketch.parts] == [p.sums.tolist() for p in dps.ReleasedSketch.load(path).parts]


def test_every_single_byte_flip(small: bytes, tmp_path: Path) -> None:
    for place in range(len(small)):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(small)
            changed[place] ^= flip
            same_or_refused(bytes(changed), small, tmp_path / "a.sketch")


def test_every_truncation_and_some_additions(small: bytes, tmp_path: Path) -> None:
    for length in range(len(small)):
        same_or_refused(small[:length], small, tmp_path / "a.sketch")
    same_or_refused(small + b"\0", small, tmp_path / "a.sketch")
    same_or_refused(small + small, small, tmp_path / "a.sketch")


@given(st.binary(max_size=300))
def test_arbitrary_bytes(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sketch"
        for content in (data, data + hashlib.sha256(data).digest()):
            path.write_bytes(content)
            with pytest.raises(FileError):
                dps.ReleasedSketch.load(path)


def sealed(header: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """A file with a correct digest, whatever it says."""
    text = header if isinstance(header, str) else json.dumps(header)
    data = save({**tensors, "sha256": np.zeros(32, np.uint8)}, metadata={"dpsketch": text})
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


def header_and_tensors(small: bytes, tmp_path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    path = tmp_path / "good.sketch"
    path.write_bytes(small)
    sums = file.read(path, "released").sums
    return file.read_header(path), {f"part.{i}": part for i, part in enumerate(sums)}


def put(*keys: Any, value: Any) -> Callable[[dict[str, Any], dict[str, np.ndarray]], None]:
    def change(header: dict[str, Any], _tensors: dict[str, np.ndarray]) -> None:
        inner: Any = header
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


def drop(*keys: Any) -> Callable[[dict[str, Any], dict[str, np.ndarray]], None]:
    def change(header: dict[str, Any], _tensors: dict[str, np.ndarray]) -> None:
        inner: Any = header
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]

    return change


def tensor(name: str, value: np.ndarray | None) -> Callable[[dict[str, Any], dict[str, np.ndarray]], None]:
    def change(_header: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value

    return change


NO_NOISE = {"mechanism": "discrete Laplace", "sensitivity": 0, "scale": "0"}
LIES = {
    "format": put("format", value=3),
    "kind": put("kind", value="cooked"),
    "no schema": drop("schema"),
    "schema is a list": put("schema", value=[]),
    "unknown kind of column": put("schema", "columns", "x", "kind", value="pickle"),
    "unknown map": put("recipe", "parts", 1, "map", value="os.system"),
    "unknown parameter": put("recipe", "parts", 1, "evil", value=1),
    "old map version": put("recipe", "parts", 1, "version", value=0),
    "parts is a number": put("recipe", "parts", value=3),
    "huge bins": put("recipe", "parts", 1, "bins", value=10**30),
    "huge ways": put("recipe", "parts", 1, "ways", value=8),
    "shares above one": put("recipe", "parts", 1, "share", value=0.9),
    "share is text": put("recipe", "parts", 1, "share", value="much"),
    "other map": put("recipe", "parts", 1, value={"map": "fourier", "version": 1, "size": 10**7, "share": 0.5}),
    "fingerprints": put("fingerprints", value=["0", "1"]),
    "no release": drop("release"),
    "release is text": put("release", value="trust me"),
    "epsilon is negative": put("release", "releases", 0, "budget", "epsilon", value=-1.0),
    "epsilon is zero": put("release", "releases", 0, "budget", "epsilon", value=0),
    "epsilon is infinite": put("release", "releases", 0, "budget", "epsilon", value=1e999),
    "epsilon is text": put("release", "releases", 0, "budget", "epsilon", value="1"),
    "delta is large": put("release", "releases", 0, "budget", "delta", value=0.5),
    "a budget of both kinds": put("release", "releases", 0, "budget", "rho", value=1.0),
    "unknown budget": put("release", "releases", 0, "budget", "mu", value=1.0),
    "no budget": put("release", "releases", value=[{}]),
    "releases are text": put("release", "releases", value="11"),
    "releases are many": put("release", "releases", value=["1"] * 100_000),
    "format 1, epsilon is zero": put("release", value={"epsilons": ["0"]}),
    "unknown mechanism": put("release", "releases", 0, "noises", 0, "mechanism", value="none"),
    "a disc for a count": put("release", "releases", 0, "noises", 0, "mechanism", value="rounded disc"),
    "no noises": put("release", "releases", 0, "noises", value=[]),
    "scale over zero": put("release", "releases", 0, "noises", 0, "scale", value="1/0"),
    "scale is zero": put("release", "releases", 0, "noises", 0, "scale", value="0"),
    "scale is negative": put("release", "releases", 0, "noises", 0, "scale", value="-1"),
    "scale is huge": put("release", "releases", 0, "noises", 0, "scale", value="9" * 5000),
    "scale is a number": put("release", "releases", 0, "noises", 0, "scale", value=1),
    "sensitivity is negative": put("release", "releases", 0, "noises", 0, "sensitivity", value=-1),
    "sensitivity is true": put("release", "releases", 0, "noises", 0, "sensitivity", value=True),
    "rate is above one": put("release", "releases", 0, "rate", value="2"),
    "rate without sampling": put("release", "releases", 0, "rate", value="1/2"),
    "noise above the budget": put("release", "releases", 0, "budget", "epsilon", value=0.001),
    "no noise": put("release", "releases", 0, "noises", 0, value=NO_NOISE),
    "laplace noise for rho": put("release", "releases", 0, "budget", value={"rho": 100.0}),
    "scale above all": put("release", "releases", 0, "noises", 0, "scale", value="1" + "0" * 399),
    "scale below all": put("release", "releases", 0, "noises", 0, "scale", value="1/1" + "0" * 399),
    "format 1, epsilon is huge": put("release", value={"epsilons": ["9" * 399]}),
    "parts are many": put("recipe", "parts", value=[{"map": "count", "version": 1, "share": 1e-9}] * 100_000),
    "lineage is empty": put("release", "lineage", value=[]),
    "lineage is odd": put("release", "lineage", value=["../../etc"]),
    "created": put("release", "created", value="yesterday"),
    "missing tensor": tensor("part.1", None),
    "extra tensor": tensor("part.2", np.zeros(1, np.int64)),
    "short tensor": tensor("part.1", np.zeros(2, np.int64)),
    "float tensor": tensor("part.0", np.zeros(1)),
    "matrix": tensor("part.0", np.zeros((1, 1), np.int64)),
    "four bytes for a count": tensor("part.0", np.zeros(1, np.int32)),
    "four bytes for a histogram": tensor("part.1", np.zeros(3, np.int32)),
    "unsigned tensor": tensor("part.0", np.zeros(1, np.uint64)),
    "two bytes": tensor("part.0", np.zeros(1, np.int16)),
}


@pytest.mark.parametrize("lie", LIES)
def test_well_sealed_lies(lie: str, small: bytes, tmp_path: Path) -> None:
    header, tensors = header_and_tensors(small, tmp_path)
    LIES[lie](header, tensors)
    path = tmp_path / "a.sketch"
    path.write_bytes(sealed(header, tensors))
    with pytest.raises(FileError):
        dps.ReleasedSketch.load(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "null", '{"format": NaN}', "{}", "not json", '{"format":1e999}'])
def test_odd_headers(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sketch"
    path.write_bytes(sealed(text, {}))
    with pytest.raises(FileError):
        dps.ReleasedSketch.load(path)


def test_the_helper_makes_good_files(small: bytes, tmp_path: Path) -> None:
    """So that the lies above are refused for what they say."""
    header, tensors = header_and_tensors(small, tmp_path)
    path = tmp_path / "a.sketch"
    path.write_bytes(sealed(header, tensors))
    assert dps.ReleasedSketch.load(path).private


def test_a_wide_fourier_part_is_refused_before_it_is_drawn(small: bytes, tmp_path: Path) -> None:
    header, _ = header_and_tensors(small, tmp_path)
    header["schema"]["columns"] = {f"c{i}": {"kind": "boolean"} for i in range(1000)}
    header["recipe"]["parts"] = [{"map": "fourier", "version": 1, "size": 100_000, "share": 1.0}]
    path = tmp_path / "a.sketch"
    path.write_bytes(sealed(header, {"part.0": np.zeros(200_000, np.int64)}))
    with pytest.raises(FileError, match="100000 frequencies of 1000 columns are more than"):
        dps.ReleasedSketch.load(path)


def contained(facts: dict[str, Any], data: bytes) -> bytes:
    """A sealed file with any container header: `data` ends in room for the digest."""
    head = json.dumps(facts).encode()
    head += b" " * (-len(head) % 8)
    body = len(head).to_bytes(8, "little") + head + data[:-32]
    return body + hashlib.sha256(body).digest()


def place(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(facts: dict[str, Any]) -> None:
        facts[name] |= changes

    return change


# The small file: part.0 at 0 to 8, part.1 at 8 to 32, the digest at 32 to 64.
PLACES = {
    "honest": lambda facts: None,
    "overlap": place("part.1", data_offsets=[0, 24]),
    "same place": place("part.0", data_offsets=[8, 16]),
    "beyond the end": place("part.1", data_offsets=[64, 88]),
    "over the digest": place("part.1", data_offsets=[40, 64]),
    "far away": place("part.1", data_offsets=[2**62, 2**62 + 24]),
    "negative": place("part.1", data_offsets=[-24, 0]),
    "backwards": place("part.1", data_offsets=[32, 8]),
    "fractions": place("part.1", data_offsets=[8.0, 32.0]),
    "text": place("part.1", data_offsets=["8", "32"]),
    "three": place("part.1", data_offsets=[8, 32, 64]),
    "none": place("part.1", data_offsets=None),
    "wrong size": place("part.1", shape=[3, 1]),
    "other type": place("part.1", dtype="F64"),
    "four bytes": place("part.1", dtype="I32", shape=[6]),
    "no such type": place("part.1", dtype="I65"),
    "type is a list": place("part.1", dtype=["I64"]),
    "digest first": lambda facts: facts.update(
        {"sha256": facts["part.1"] | {"dtype": "U8", "shape": [32], "data_offsets": [0, 32]}}
        | {
            "part.0": facts["part.0"] | {"data_offsets": [32, 40]},
            "part.1": facts["part.1"] | {"data_offsets": [40, 64]},
        }
    ),
    "no digest": lambda facts: facts.pop("sha256"),
    "digest by another name": lambda facts: facts.update({"part.2": facts.pop("sha256")}),
    "no metadata": lambda facts: facts.pop("__metadata__"),
    "metadata is text": lambda facts: facts.update({"__metadata__": "dpsketch"}),
    "metadata is empty": lambda facts: facts.update({"__metadata__": {}}),
}


@pytest.mark.parametrize("lie", PLACES)
def test_well_sealed_lies_about_places(lie: str, small: bytes, tmp_path: Path) -> None:
    length = 8 + int.from_bytes(small[:8], "little")
    facts, data = json.loads(small[8:length]), small[length:]
    assert [facts[name]["data_offsets"] for name in ("part.0", "part.1", "sha256")] == [[0, 8], [8, 32], [32, 64]]
    PLACES[lie](facts)
    path = tmp_path / "a.sketch"
    path.write_bytes(contained(facts, data))
    if lie == "honest":
        assert dps.ReleasedSketch.load(path).private
        return
    with pytest.raises(FileError):
        dps.ReleasedSketch.load(path)


def test_unaligned_sums_are_refused(small: bytes, tmp_path: Path) -> None:
    length = 8 + int.from_bytes(small[:8], "little")
    head = small[8:length].rstrip() + b" "
    head += b" " * ((5 - len(head)) % 8)
    body = len(head).to_bytes(8, "little") + head + small[length:-32]
    path = tmp_path / "a.sketch"
    path.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(FileError, match="not valid"):
        dps.ReleasedSketch.load(path)


def test_a_small_table_of_counters_may_have_four_bytes(tmp_path: Path) -> None:
    """The writer keeps eight below a size; a reader takes both."""
    facts = {"privacy": {"rows": 10}, "columns": {"x": {"kind": "boolean"}}}
    recipe = dps.Recipe([dps.Part(dps.Grid(rows=2, width=16), 1.0)])
    raw = dps.accumulate(pa.table({"x": [True, False]}), dps.Schema.from_dict(facts), recipe)
    path = tmp_path / "a.raw"
    raw.save(path)
    sums = raw.parts[0].sums.astype(np.int32)
    path.write_bytes(sealed(file.read_header(path), {"part.0": sums}))
    again = dps.RawSketch.load(path).parts[0].sums
    assert again.dtype == np.int32
    assert (again == sums).all()


def counted(declared: int, epsilon: float, path: Path, rows: int = 100) -> tuple[dps.ReleasedSketch, str]:
    """A release of a table of counters, saved, and the type of its sums in the file."""
    facts = {"privacy": {"rows": declared}, "columns": {"x": {"kind": "boolean"}, "y": {"kind": "boolean"}}}
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.5), dps.Part(dps.Pairs(), 0.5)])
    table = pa.table({"x": [True] * rows, "y": [False] * rows})
    raw = dps.accumulate(table, dps.Schema.from_dict(facts), recipe)
    released = dps.release(raw, dps.Budget(epsilon), dps.Ledger("sqlite://"), "a")
    released.save(path, force=True)
    head = path.read_bytes()
    tensors = json.loads(head[8 : 8 + int.from_bytes(head[:8], "little")])
    assert tensors["part.0"]["dtype"] == "I64"
    return released, tensors["part.1"]["dtype"]


@pytest.mark.parametrize(("declared", "epsilon", "kind"), [(100, 1.0, "I32"), (2**31, 1.0, "I64"), (100, 1e-9, "I64")])
def test_released_counters_have_four_bytes_where_public_numbers_fit(
    declared: int, epsilon: float, kind: str, tmp_path: Path
) -> None:
    released, found = counted(declared, epsilon, tmp_path / "a.sketch")
    assert found == kind
    again = dps.ReleasedSketch.load(tmp_path / "a.sketch")
    for before, after in zip(released.parts, again.parts, strict=True):
        assert after.sums.dtype == np.int64
        assert (before.sums == after.sums).all()


def test_more_rows_than_were_declared_are_not_cut_off(tmp_path: Path) -> None:
    released, _ = counted(100, 1.0, tmp_path / "a.sketch")
    released.parts[1].sums[0] = 2**31
    released.save(tmp_path / "b.sketch")
    with pytest.raises(FileError, match="larger than possible"):
        dps.ReleasedSketch.load(tmp_path / "b.sketch")
    released.parts[0].sums[0] = 2**31
    released.save(tmp_path / "c.sketch")
    assert dps.ReleasedSketch.load(tmp_path / "c.sketch").parts[1].sums[0] == 2**31


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.sketch"):
        with pytest.raises(FileError, match="cannot be read"):
            dps.open(path)
