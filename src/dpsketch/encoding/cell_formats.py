"""Text cells that people read as numbers or dates and the encoder does not, and how to rewrite them in SQL.

Only for samples that are public: findings depend on the cells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from dpsketch.encoding.arrow import texts
from dpsketch.encoding.layouts import cells_of
from dpsketch.schema.columns import as_moment

CURRENCY, THOUSANDS, DECIMAL_COMMA = "currency sign", "thousands separators", "decimal comma"
SUFFIX, PERCENT, PARENTHESES = "k, M or B for a power of ten", "percent sign", "parentheses for a minus sign"
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # what the encoder reads
_MONEY = r"(?P<{}>[$€£¥]|[A-Z]{{3}}\b)?"
_NUMBER = re.compile(
    r"(?P<open>\()?\s*[+-]?\s*" + _MONEY.format("before") + r"\s*[+-]?(?P<digits>[0-9][0-9.,'\s]*?)\s*"
    r"(?P<suffix>[kKmMbB]n?)?\s*(?P<percent>%)?\s*" + _MONEY.format("after") + r"\s*\)?"
)
_WITH_POINT = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")  # 1,234.5
_WITH_COMMA = re.compile(r"[0-9]{1,3}([.'\s][0-9]{3})+,[0-9]+|[0-9]{1,3}(\.[0-9]{3}){2,}|[0-9]+,[0-9]+")  # 1.234,5
_SPACED = re.compile(r"[0-9]{1,3}(['\s][0-9]{3})+(\.[0-9]+)?")
_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y", "%d-%b-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_LEAST = 0.5  # of the cells of a column must look like numbers, or like dates


@dataclass(frozen=True)
class Finding:
    """A column of text with cells in `formats` that are not read, one of them as an example, and SQL that rewrites it.

    `others` are formats of dates that fit all cells as well: a person must say which one it is.
    """

    column: str
    formats: tuple[str, ...]
    cells: int
    of: int
    example: str
    sql: str
    others: tuple[str, ...] = ()


def find_formats(column: str, arrays: Iterable[pa.Array]) -> Finding | None:
    """What is not read in a column; None where nothing is found, and for columns that are not text."""
    cells = [cell for array in arrays for cell in _cells(array)]
    read = sum(_PLAIN.fullmatch(cell) is not None for cell in cells)
    numbers = [(cell, formats) for cell in cells if (formats := number_formats(cell))]
    if numbers and read + len(numbers) >= _LEAST * len(cells):
        counts = Counter(each for _, formats in numbers for each in formats)
        points = any(_WITH_POINT.fullmatch(cell) and "." in cell for cell, _ in numbers)
        comma = DECIMAL_COMMA in counts and not points
        sql = _number_sql(quoted(column), comma, SUFFIX in counts, PARENTHESES in counts)
        example = max(numbers, key=lambda each: len(each[1]))[0]
        return Finding(column, tuple(name for name, _ in counts.most_common()), len(numbers), len(cells), example, sql)
    dates = [cell for cell in cells if as_moment(cell) is None and (cell[:1].isdigit() or cell[:1].isalpha())]
    if not cells or not dates:
        return None
    fits = Counter(form for cell in dates for form in date_formats(cell))
    if not fits or len(cells) - len(dates) + max(fits.values()) < _LEAST * len(cells):
        return None
    best = max(fits.values())
    first, *others = [form for form in fits if fits[form] == best]
    example = next(cell for cell in dates if first in date_formats(cell))
    return Finding(column, (f"date like {first}",), best, len(cells), example, _date_sql(column, first), tuple(others))


def number_formats(cell: str) -> tuple[str, ...]:
    """What keeps a text from being read as the number that it stands for; nothing if it is read, or is no number."""
    match = _NUMBER.fullmatch(cell)
    if match is None or _PLAIN.fullmatch(cell) or (match["open"] is None) != (not cell.endswith(")")):
        return ()
    digits, found = match["digits"], []
    if _WITH_POINT.fullmatch(digits) or _SPACED.fullmatch(digits):
        found.append(THOUSANDS)
    elif _WITH_COMMA.fullmatch(digits):
        found += [DECIMAL_COMMA] + ([THOUSANDS] if len(re.findall(r"[.,'\s]", digits)) > 1 else [])
    elif not _PLAIN.fullmatch(digits):
        return ()
    named = {CURRENCY: match["before"] or match["after"], SUFFIX: match["suffix"], PERCENT: match["percent"]}
    return (
        tuple(name for name, text in named.items() if text) + tuple(found) + ((PARENTHESES,) if match["open"] else ())
    )


def date_formats(cell: str) -> list[str]:
    """The usual formats of dates that fit a text."""
    return [day + time for day in _DAYS for time in _TIMES if _fits(cell, day + time)]


def rewriting(findings: Sequence[Finding], source: str, output: str) -> str:
    """A statement for DuckDB that writes a table with these columns rewritten, cell by cell."""
    columns = ", ".join(f"{each.sql} as {quoted(each.column)}" for each in findings)
    name = "'" + source.replace("'", "''") + "'"
    read = f"read_parquet({name})" if source.endswith(".parquet") else f"read_csv({name}, all_varchar = true)"
    written = "'" + output.replace("'", "''") + "'"
    return f"copy (select * replace ({columns}) from {read}) to {written} (format parquet)"


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _cells(array: pa.Array) -> list[str]:
    """The texts of a column of text, without missing and empty ones."""
    cells = cells_of(array)
    if not pa.types.is_large_binary(cells.values.type):
        return []
    found = cells.read(lambda values: np.array(texts(values).view(pa.large_binary()).to_pylist(), dtype=object))
    return [cell.decode("utf-8", "replace") for cell in found.tolist() if cell is not None]


def _fits(cell: str, form: str) -> bool:
    try:
        datetime.strptime(cell, form)
    except ValueError:
        return False
    return True


def _number_sql(name: str, comma: bool, suffix: bool, parentheses: bool) -> str:
    number = f"try_cast(regexp_replace({name}, '[^0-9.-]', '', 'g') as double)"
    plain = f"try_cast({name} as double)"
    if comma:  # also in 1.234, but not in 12.5
        cell = f"{name} like '%,%' or regexp_matches({name}, '^[^0-9]*[0-9]{{1,3}}(\\.[0-9]{{3}})+[^0-9]*$')"
        turned = f"try_cast(replace(regexp_replace({name}, '[^0-9,-]', '', 'g'), ',', '.') as double)"
        number = f"case when {cell} then {turned} else {number} end"
        plain = f"case when {cell} then null else {plain} end"
    if suffix:
        powers = " ".join(
            f"when regexp_matches({name}, '[0-9]\\s*[{letters}]') then {power}"
            for letters, power in (("kK", "1e3"), ("mM", "1e6"), ("bB", "1e9"))
        )
        number += f" * case {powers} else 1 end"
    if parentheses:
        number += f" * case when trim({name}) like '(%' then -1 else 1 end"
    return f"coalesce({plain}, {number})"


def _date_sql(column: str, form: str) -> str:
    name = quoted(column)
    return f"coalesce(try_cast({name} as timestamp), try_strptime(trim({name}), '{form}'))"
