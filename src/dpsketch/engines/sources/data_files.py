"""The CSV and Parquet files that a path, a pattern, a URL or a list of them names, in a fixed order."""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs

from dpsketch.errors import SourceError

CSV, PARQUET = (".csv", ".tsv"), (".parquet", ".pq")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_ENDINGS = (*CSV, *(f".csv{end}" for end in _COMPRESSED), *(f".tsv{end}" for end in _COMPRESSED), *PARQUET)
_WILD = re.compile(r"[*?\[]")
_BUFFER = 1 << 20
_PATIENCE = 20  # seconds
_SAMPLE, _SAMPLES = 1 << 16, 16
_LAKES = {  # folder of a table's log, name of the format, and what identifies it
    "_delta_log": ("a Delta Lake", "_delta_log"),
    ".hoodie": ("a Hudi", ".hoodie"),
    "metadata": ("an Iceberg", "metadata/*.metadata.json*"),
}


@dataclass(frozen=True)
class DataFile:
    """A CSV or Parquet file on this machine or elsewhere.

    `root` is the folder that was named and `name` the file, both as messages show them: without credentials. `folders`
    are those between the two; `identity` is the same for a file and for links to it.
    """

    name: str
    root: str
    folders: tuple[str, ...]
    identity: str
    size: int
    system: pa.fs.FileSystem = field(repr=False)
    path: str = field(repr=False)

    def open(self) -> pa.NativeFile:
        return self.system.open_input_file(self.path)

    @property
    def csv(self) -> bool:
        return not self.name.lower().endswith(PARQUET)

    @property
    def tabs(self) -> bool:
        """Whether cells are separated by tabs."""
        return ".tsv" in "".join(PurePosixPath(self.name.lower()).suffixes[-2:])

    @property
    def folder_columns(self) -> dict[str, str | None]:
        """Columns that a partitioned dataset stores in the names of its folders: key=value, text or missing."""
        pairs = (part.split("=", 1) for part in self.folders if "=" in part)
        return {key: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for key, value in pairs}

    def place(self) -> Iterator[bytes]:
        """Where the file is: enough to recognise another version of it."""
        yield b"place"
        yield self.identity.encode("utf-8", "surrogateescape")

    def samples(self) -> Iterator[bytes]:
        """The size, both ends and blocks in between, or all of a small file, which identify it under another name."""
        yield self.size.to_bytes(8, "big")
        with self.open() as stored:
            last = self.size - _SAMPLE
            if last <= _SAMPLES * _SAMPLE:  # blocks would overlap
                yield stored.read()
                return
            for block in range(_SAMPLES + 1):
                stored.seek(last * block // _SAMPLES)
                yield stored.read(_SAMPLE)

    @contextmanager
    def text(self) -> Iterator[tuple[io.BufferedReader, Callable[[], float]]]:
        """The uncompressed bytes, and a function that returns the fraction of the file that was read."""
        compression = _COMPRESSED.get(PurePosixPath(self.name.lower()).suffix)
        with self.open() as stored:
            stream = stored if compression is None else pa.CompressedInputStream(stored, compression)
            # The buffer's type asks for a raw stream of Python's own; Arrow's files have the same methods.
            yield io.BufferedReader(stream, _BUFFER), lambda: stored.tell() / max(self.size, 1)


def data_files(named: str | Path | Sequence[str | Path]) -> list[DataFile]:
    """All files that are named. Refuses a file that is there twice, and folders of tables with a log."""
    if isinstance(named, str | Path):
        return _each_once(_of_one(named))
    if not named:
        raise SourceError("an empty list names no file", "name at least one CSV or Parquet file")
    return _each_once([file for each in named for file in _of_one(each)])


def _each_once(files: list[DataFile]) -> list[DataFile]:
    seen: set[str] = set()
    for file in files:
        if file.identity in seen:
            name = file.root if file.folder_columns else file.name  # names of folders may be cells
            raise SourceError(f"{name}: a file is there twice", "name each file once: its rows would count twice")
        seen.add(file.identity)
    return files


def shown(named: str | Path) -> str:
    """A path or URL for messages, without user, password and query: these may be secret, and hold any character."""
    text = str(named)
    scheme, mark, rest = text.partition("://")
    return f"{scheme}://{re.split('[?#]', rest.rpartition('@')[2])[0]}" if mark else text


def _of_one(named: str | Path) -> list[DataFile]:
    if "://" in str(named) and not str(named).startswith("file://"):
        return _of_url(str(named))
    path = Path(unquote(str(named).removeprefix("file://"))) if str(named).startswith("file://") else Path(named)
    if _WILD.search(str(path)) and not path.exists():
        root = Path(_WILD.split(str(path))[0] + "x").parent  # folders below may be cells: key=value
        paths = [Path(each) for each in sorted(glob.glob(str(path), recursive=True))]
        found = [each for each in paths if each.name.lower().endswith(_ENDINGS) and each.is_file()]
        for each in found:
            refuse_lakes(each, [])
        return _one_format(str(path), [_local(each, root) for each in found])
    if path.is_dir():
        return _of_folder(path)
    if not path.is_file():
        raise SourceError(f"there is no file {path}", "check the path: a CSV or Parquet file, or a folder of them")
    _check_ending(str(path))
    refuse_lakes(path, [])
    return [_local(path, path)]


def _of_folder(path: Path) -> list[DataFile]:
    entries = sorted(path.rglob("*"))
    refuse_lakes(path, entries)
    files = [each for each in entries if each.name.lower().endswith(_ENDINGS) and each.is_file()]
    visible = [each for each in files if not _hidden(each.relative_to(path).parts)]
    return _one_format(str(path), [_local(each, path) for each in visible])


def _local(path: Path, root: Path) -> DataFile:
    folders = path.relative_to(root).parts[:-1] if path != root else ()
    system, size = pa.fs.LocalFileSystem(), path.stat().st_size
    return DataFile(str(path), str(root), folders, str(path.resolve()), size, system, str(path))


def _of_url(url: str) -> list[DataFile]:
    """Files of S3, Google's or Azure's store. Credentials come from the environment, and messages contain none."""
    name = shown(url)
    fixed = _WILD.split(url)[0]
    start = fixed if fixed == url else fixed.rpartition("/")[0]
    try:
        system, base = pa.fs.FileSystem.from_uri(_impatient(start))
        entry = system.get_file_info(base)
        if entry.type == pa.fs.FileType.File:
            entries = [entry]
        else:
            entries = system.get_file_info(pa.fs.FileSelector(base, recursive=True, allow_not_found=True))
    except (pa.ArrowException, OSError) as error:  # its text may hold a key
        raise SourceError(
            f"{name} cannot be opened ({type(error).__name__})",
            "check the URL, the network and the credentials in the environment; file://, s3://, gs:// and abfs:// work",
        ) from None
    if not entries:  # stores have no empty folders
        raise SourceError(f"there is nothing at {name}", "check the bucket or container and the path")
    paths = {each.path: each for each in entries if each.type == pa.fs.FileType.File}
    if any(part in _LAKES and part != "metadata" for path in paths for part in path.split("/")):
        raise SourceError(f"{name} holds files of a table with a log", f"read it through its log: delta://{name}")
    below = len(base.rstrip("/")) + 1
    pattern = None if fixed == url else _pattern(url.removeprefix(start).lstrip("/"))
    files = []
    for path, each in sorted(paths.items()):
        inside = tuple(path[below:].split("/")) if path != base else ()
        if _hidden(inside) or not path.lower().endswith(_ENDINGS) or (pattern and not pattern.fullmatch(path[below:])):
            continue
        file_name = "/".join([shown(start).rstrip("/"), *inside])
        files.append(DataFile(file_name, shown(start), inside[:-1], file_name, each.size, system, path))
    if len(paths) == 1 and base in paths:
        _check_ending(base)
    return _one_format(name, files)


def _impatient(url: str) -> str:
    """The URL, with a limit to the time for which Google's client tries again: its own is a quarter of an hour."""
    if not url.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={_PATIENCE}"


def _pattern(text: str) -> re.Pattern[str]:
    """`*` and `?` within a folder's or file's name, `**` across folders, as the shell has them."""
    pieces = re.split(r"(\*\*/?|\*|\?)", text)
    meaning = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meaning.get(piece, re.escape(piece)) for piece in pieces))


def _one_format(name: str, files: list[DataFile]) -> list[DataFile]:
    if not files:
        raise SourceError(f"{name} holds no CSV or Parquet file", "name a folder with .csv or .parquet files")
    if len({file.csv for file in files}) > 1:
        raise SourceError(f"{name} holds both CSV and Parquet files", "name the files of one kind: 'FOLDER/*.parquet'")
    return files


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith((".", "_")) for part in parts)


def _check_ending(name: str) -> None:
    if not name.lower().endswith(_ENDINGS):
        raise SourceError(f"{name}: the name must end in {', '.join(_ENDINGS)}", "rename or convert the file")


def lake_of(folder: Path) -> str | None:
    """The format of the table whose log is in this folder."""
    for log, (name, pattern) in _LAKES.items():
        if (folder / log).is_dir() and next(folder.glob(pattern), None) is not None:
            return name
    return None


def refuse_lakes(path: Path, entries: Sequence[Path]) -> None:
    """Refuse files of tables whose log decides which of their files and rows are still valid."""
    starts = [folder.resolve() for folder in (path, *entries) if folder == path or folder.is_symlink()]
    above = [folder / name for start in starts for folder in (start, *start.parents) for name in _LAKES]
    for entry in [*above, *entries]:
        if entry.name in _LAKES and next(entry.parent.glob(_LAKES[entry.name][1]), None) is not None:
            hint = "name the table's own folder, which is then read through its log"
            if entry.name == ".hoodie":
                hint = "export a snapshot to plain Parquet in another folder: the logs of Hudi tables cannot be read"
            fact = f"{path} holds files of {_LAKES[entry.name][0]} table, which may have been deleted or replaced"
            raise SourceError(fact, hint)
