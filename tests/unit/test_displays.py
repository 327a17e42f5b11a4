"""What a prompt and a notebook display of everything that a user meets: short, and never the sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.displays import MOST_SHOWN, brief, html_table, plain_number, text_table

SEX = dps.Schema.from_dict({"privacy": {"rows": 1000}, "columns": {"sex": {"kind": "category", "values": ["F", "M"]}}})


@pytest.fixture
def released(table: pa.Table, schema: dps.Schema, recipe: dps.Recipe) -> dps.ReleasedSketch:
    ledger = dps.Ledger("sqlite://")
    ledger.grant("people", dps.Budget(1.0))
    return dps.release(dps.accumulate(table, schema, recipe), dps.Budget(1.0), ledger, "people")


def test_budgets() -> None:
    assert repr(dps.Budget(1)) == "Budget(epsilon=1.0)"
    assert repr(dps.Budget(1, 1e-6)) == "Budget(epsilon=1.0, delta=1e-06)"
    assert repr(dps.Budget(rho=0.5)) == "Budget(rho=0.5)"


def test_a_schema_names_its_columns(schema: dps.Schema) -> None:
    assert repr(SEX) == "Schema(1 column: sex, about 1,000 rows, unit row)"
    assert SEX._repr_html_().endswith("<tr><td>sex</td><td>category</td><td>values F, M</td></tr></tbody></table>")
    wide = dps.Schema.from_dict({"columns": {f"x{i}": {"kind": "boolean"} for i in range(9)}})
    assert repr(wide) == "Schema(9 columns: x0, x1, x2, x3, x4, x5, x6, x7, … and 1 more, unit row)"
    assert "<td>lower 0" in schema._repr_html_()


def test_a_recipe_leaves_out_defaults(recipe: dps.Recipe) -> None:
    assert repr(recipe).startswith("Recipe([Part(Count(), 0.1), Part(Histogram(bins=8), 0.3), Part(Histogram(")
    assert "<tr><td>Fourier(size=10, seed=3)</td><td>0.5</td></tr>" in recipe._repr_html_()
    sampled = dps.Recipe([dps.Part(dps.Count(), 1)], sampling=dps.RowSampling(rate=0.5))
    assert repr(sampled) == "Recipe([Part(Count(), 1.0)], sampling=RowSampling(rate=0.5))"
    assert repr(dps.Part(dps.Grouped(dps.Count(), "sex"), 1)) == "Part(Grouped(map=Count(), column='sex'), 1.0)"


def test_sketches_never_show_their_sums(
    table: pa.Table, schema: dps.Schema, recipe: dps.Recipe, released: dps.ReleasedSketch
) -> None:
    raw = dps.accumulate(table, schema, recipe)
    assert (
        repr(raw)
        == "RawSketch(count, histogram, histogram, fourier; 6 columns): exact sums, NOT PRIVATE until released"
    )
    assert repr(released) == "ReleasedSketch(count, histogram, histogram, fourier; 6 columns; epsilon 1)"
    assert "<td>Histogram(bins=8)</td>" in raw._repr_html_()
    assert "<td>Histogram(bins=8)</td>" in released._repr_html_()
    assert "<td>height</td><td>number</td>" in released._repr_html_()
    for text in (
        repr(raw),
        raw._repr_html_(),
        repr(raw.parts),
        repr(released),
        released._repr_html_(),
        repr(released.parts),
    ):
        assert "array" not in text
        for sums in (*(part.sums for part in raw.parts), *released.sums):
            assert not [number for number in sums.tolist() if abs(number) > 130 and f">{number}<" in text]


def test_views_and_answers(released: dps.ReleasedSketch) -> None:
    view = dps.View(released)
    title, header, *columns = repr(view).splitlines()
    assert title.startswith("View(6 columns; epsilon 1): 1,000 declared rows. Good for: ")
    assert header.split() == ["column", "kind", "values"]
    assert columns[2].split(maxsplit=2) == ["income", "number", "0 to 500000, asinh scale"]
    assert len(columns) == 6
    assert "<td>sex</td><td>category</td><td>Female, Male, other</td>" in view._repr_html_()
    answer = view.mean("height")
    assert repr(answer) == f"Answer({answer}, {answer.how})"
    assert str(answer) in answer._repr_html_()
    assert repr(dps.Answer(1.0, 0.5)) == "Answer(1.00 ± 0.5)"
    bars = view.histogram("height", 3)
    assert repr(bars).startswith("Answer(4 values: ")
    assert bars._repr_html_().count("<tr>") == 5
    matrix = dps.Answer(np.eye(2), np.eye(2), "table", ("x", "y"))
    assert repr(matrix) == "Answer(2 × 2 values: x, y; table)"
    assert "<th>x</th><th>y</th>" in matrix._repr_html_()
    answered = view.sql("select sex, count(*) as n from sketch group by sex")
    lines = repr(answered).splitlines()
    assert lines[0].split() == ["sex", "n"]
    assert lines[1].split()[0] == "Female"
    assert "±" in lines[1]
    assert "<th>sex</th><th>n</th>" in answered._repr_html_()


def test_a_ledger_shows_its_accounts_and_no_password(tmp_path: Path) -> None:
    ledger = dps.Ledger(tmp_path / "ledger.db")
    ledger.grant("people", dps.Budget(2, 1e-6))
    assert repr(ledger) == f"Ledger({tmp_path / 'ledger.db'})"
    assert repr(dps.Ledger("sqlite://")) == "Ledger(in memory)"
    row = "<td>people</td><td>epsilon 2 and delta 1e-06</td><td>epsilon 0</td><td>epsilon 2 and delta 1e-06</td>"
    assert row in ledger._repr_html_()


def test_texts_of_others_are_escaped() -> None:
    assert html_table("<b>", ("a\u202e",), [("<script>",)]).count("<") == 16
    assert "\u202e" not in html_table("", ("a\u202e",), [])


def test_long_tables_are_cut() -> None:
    rows = [(str(i), i) for i in range(MOST_SHOWN + 7)]
    assert text_table(("a", "b"), rows).endswith("\n… and 7 more")
    assert "<td>… and 7 more</td>" in html_table("", ("a", "b"), rows)
    assert text_table(("a", "b"), [("long", 1)]) == "a     b\nlong  1"


def test_long_values_are_cut() -> None:
    assert brief(dps.Count()) == "Count()"
    assert len(brief(dps.Histogram(columns=[f"column{i}" for i in range(100)]))) < 120


def test_numbers_have_no_exponents_where_commas_will_do() -> None:
    shown = [plain_number(each) for each in (69_782.4, -1234.5, 999.94, 0.12345, 1.5e20, float("nan"))]
    assert shown == ["69,782", "-1,234", "999.9", "0.1235", "1.5e+20", "nan"]
