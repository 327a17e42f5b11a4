from __future__ import annotations

import csv as standard
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsketch.engines import csv
from dpsketch.engines.sources.data_files import DataFile, data_files
from dpsketch.errors import SourceError
from dpsketch.schema.schema import Csv

MULTILINE = Csv(multiline=True)


def file_of(path: Path) -> DataFile:
    (file,) = data_files(path)
    return file


def read(path: Path, names: list[str], layout: Csv = Csv()) -> list[tuple[bytes | None, ...]]:  # noqa: B008
    rows: list[tuple[bytes | None, ...]] = []
    for batch in csv.batches(file_of(path), names, lambda share: None, layout):
        rows += list(zip(*[batch.column(name).to_pylist() for name in names], strict=True))
    return rows


def test_a_broken_line_is_one_missing_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = ["a,b", "1,x", '2,"open', "3,y", "4", "5,y,z", '"6""7",z', '8,"q"z', "", "9,", '10,"a,b"', "11,end"]
    path.write_bytes("\r\n".join(lines).encode())
    missing = (None, None)
    assert read(path, ["a", "b"]) == [
        (b"1", b"x"), missing, (b"3", b"y"), missing, missing, (b'6"7', b"z"), missing, (b"9", None), (b"10", b"a,b"),
        (b"11", b"end"),
    ]  # fmt: skip


def test_header_with_quotes_blanks_and_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"first, name", second\n1,2\n')
    assert csv.header(file_of(path)) == ["first, name", "second"]
    assert read(path, ["second"]) == [(b"2",)]


def test_tabs(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"a\tb\n1,5\t2\n")
    assert read(path, ["a", "b"]) == [(b"1,5", b"2")]


def test_an_empty_file_has_no_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="has no header line"):
        csv.header(file_of(path))


def test_a_very_long_line_is_one_missing_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_BLOCK", 16)
    monkeypatch.setattr(csv, "_LONGEST_LINE", 40)
    path = tmp_path / "t.csv"
    long = "x" * 100
    path.write_text(f"a,b\n1,2\n{long},3\n4,5\n{'y' * 30},6\n7,{long}")
    missing = (None, None)
    assert read(path, ["a", "b"]) == [(b"1", b"2"), missing, (b"4", b"5"), (b"y" * 30, b"6"), missing]


def test_many_short_lines_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_MOST_FIELDS", 9)
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "1,2,3\n" * 10 + "x\n" * 5 + "4,5,6")
    sizes = [batch.num_rows for batch in csv.batches(file_of(path), ["a"], lambda share: None, Csv())]
    assert max(sizes) == 3
    assert sum(sizes) == 16


def test_quoted_line_breaks_are_cells_only_where_declared(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\r\n1,"x\r\ny"\r\n\r\n2,"say ""\n"""\n3,q"r\n')
    assert read(path, ["a", "b"], MULTILINE) == [(b"1", b"x\r\ny"), (b"2", b'say "\n"'), (b"3", b'q"r')]
    assert len(read(path, ["a", "b"])) == 5


def test_a_broken_or_open_quote_of_several_lines_is_one_missing_row(tmp_path: Path) -> None:
    """Text after a closed quote ends at its line; an open quote takes in the rest of the file."""
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1,"x\ny"z,"\n2,2\n3,"3\n4,4\n5,5\n')
    missing = (None, None)
    assert read(path, ["a", "b"], MULTILINE) == [missing, (b"2", b"2"), missing]


def test_a_very_long_record_of_many_lines_is_one_missing_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_BLOCK", 16)
    monkeypatch.setattr(csv, "_LONGEST_LINE", 40)
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,2\n3,"' + "x\n" * 50 + '"\n4,5\n6,"' + "y\n" * 50)
    missing = (None, None)
    assert read(path, ["a", "b"], MULTILINE) == [(b"1", b"2"), missing, (b"4", b"5"), missing]


def test_without_a_header_the_first_line_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"1,2\n3,4\n5\n")
        rows = read(path, ["b", "a"], Csv(columns=("a", "b")))
        assert rows == [(b"2", b"1"), (b"4", b"3"), (None, None)]


field = st.text(st.characters(blacklist_characters="\r\n\x00", blacklist_categories=["Cs"]), max_size=6)


@given(rows=st.lists(st.tuples(field, field, field).filter(any), min_size=1, max_size=10), block=st.integers(1, 40))
def test_well_formed_files_are_read_as_everyone_reads_them(rows: list[tuple[str, ...]], block: int) -> None:
    """Against the standard library, for any size of the blocks in which the file is read."""
    import tempfile

    text = io.StringIO()
    standard.writer(text).writerows([("a", "b", "c"), *rows])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "_BLOCK", block)
        path = Path(folder) / "t.csv"
        path.write_bytes(text.getvalue().encode())
        expected = [tuple(cell.encode() or None for cell in row) for row in rows]
        assert read(path, ["a", "b", "c"]) == expected


broken = st.text(st.sampled_from('a,"\r\n'), max_size=8)


@given(rows=st.lists(st.tuples(broken, broken).filter(any), min_size=1, max_size=8), block=st.integers(1, 40))
def test_files_of_several_lines_a_record_are_read_as_everyone_reads_them(
    rows: list[tuple[str, ...]], block: int
) -> None:
    import tempfile

    text = io.StringIO()
    standard.writer(text, quoting=standard.QUOTE_ALL).writerows([("a", "b"), *rows])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "_BLOCK", block)
        path = Path(folder) / "t.csv"
        path.write_bytes(text.getvalue().encode())
        assert read(path, ["a", "b"], MULTILINE) == [tuple(cell.encode() or None for cell in row) for row in rows]


@given(st.binary(max_size=60))
def test_a_line_never_changes_another(line: bytes) -> None:
    """Whatever a record's line holds, the records around it are read the same."""
    import tempfile

    line = line.replace(b"\n", b"")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(b"a,b\n1,2\n" + line + b"\n3,4\n")
        rows = read(path, ["a", "b"])
    assert rows[0] == (b"1", b"2")
    assert rows[-1] == (b"3", b"4")
    assert len(rows) == (2 if line in (b"", b"\r") else 3)
