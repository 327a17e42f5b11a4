"""Histograms with edges and conditions, and the pictures of a view."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.learn.histogram_bins import drawn_bins
from dpsketch.plots.picture import DATE, LOG, NAMES


def test_edges(view: dps.View) -> None:
    counts = view.histogram("age", edges=[30, 54])
    assert counts.labels == ("below 30", "30 to 54", "54 or more", "missing")
    asked = [view.count(each).value for each in ("age < 30", "age >= 30 and age < 54", "age >= 54")]
    np.testing.assert_allclose(counts.value[:3], asked, rtol=1e-6)
    assert view.histogram("age", edges=[18, 54, 90]).labels == ("18 to 54", "54 to 90", "missing"), "at the bounds"
    days = view.histogram("since", edges=["2001-01-01", "2005-01-01"])
    assert days.labels is not None
    assert days.labels[1] == "2001-01-01 00:00 to 2005-01-01 00:00"
    assert days.value[1] == pytest.approx(4000, rel=0.1)


def test_a_condition(view: dps.View) -> None:
    counts = view.histogram("city", where="age > 70")
    assert counts.labels == ("north", "south", "west", "other", "missing")
    by_condition = view.count("city = 'north' and age > 70")
    assert counts.value[0] == pytest.approx(by_condition.value, rel=1e-6)
    beyond = view.histogram("age", edges=[18, 90], where="age > 200")
    assert not beyond.known.any()


@pytest.mark.parametrize(
    ("column", "edges", "message"),
    [
        ("city", [0, 1], "column 'city' is a category and has no edges\nHint: leave out edges"),
        ("age", [], "edges must be 1 to 10000 rising numbers or dates, got 0 edges instead"),
        ("age", [40, 30], "edges must be 1 to 10000 rising numbers or dates, got 2 edges instead"),
        ("age", [10, 30], "edges must lie within the bounds of column 'age', 18 to 90\nHint: records beyond a bound"),
        ("age", ["a", "b"], "column 'age' holds numbers, got 'a'"),
    ],
)
def test_wrong_edges(view: dps.View, column: str, edges: list[object], message: str) -> None:
    with pytest.raises(dps.QueryError) as raised:
        view.histogram(column, edges=edges)
    assert message in str(raised.value)


def test_bins_of_pictures(view: dps.View) -> None:
    age = drawn_bins(view.schema.column("age"), 32)
    assert age.edges is not None
    np.testing.assert_allclose(np.diff(age.edges), [*[5.0] * 14, 3.0])  # whole values, 73 in all
    assert age.labels[:2] == ("18 to 22", "23 to 27")
    income = drawn_bins(view.schema.column("income"), 3)
    assert income.edges is not None
    np.testing.assert_allclose(income.edges, [1, 10, 100, 1000])
    assert income.axis.scale == LOG
    grade = drawn_bins(view.schema.column("grade"), 32)
    assert (grade.axis.scale, grade.labels) == (NAMES, ("0", "1", "missing"))
    assert drawn_bins(view.schema.column("since"), 4).axis.scale == DATE


def test_pictures_of_columns(view: dps.View) -> None:
    [age] = view.plot("age").pictures
    assert (age.title, age.series[0].kind) == ("age", "steps")
    assert age.series[0].y.sum() == pytest.approx(view.count().value, rel=0.02)
    assert (age.series[0].low <= age.series[0].y).all()
    [north] = view.plot("age", where="city = 'north'").pictures
    assert north.series[0].y[:5].sum() < 0.1 * north.series[0].y.sum()
    every = view.plot()
    assert [each.title for each in every.pictures] == [column.name for column in view.schema.columns]
    assert every.across == 2


def test_a_picture_of_two_columns(view: dps.View) -> None:
    [pair] = view.plot(["weight", "height"]).pictures
    assert pair.cells is not None
    assert pair.x.names[:2] == ("0–0.833", "0.833–1.67")
    values, hatched = pair.cells.values, pair.cells.hatched
    assert np.nansum(values) == pytest.approx(view.count().value, rel=0.05)
    assert not hatched[5, 5]
    assert hatched[0, -1]
    [cities] = view.plot(["city", "age"]).pictures
    assert cities.x.names[:3] == ("north", "south", "west")


def test_what_cannot_be_drawn(view: dps.View, counts_only: dps.View) -> None:
    with pytest.raises(dps.QueryError, match="a picture shows one column or two"):
        view.plot(["age", "city", "grade"])
    with pytest.raises(dps.QueryError, match="this release has no column to draw"):
        counts_only.plot()
    assert "<svg" not in counts_only._repr_html_()


def test_notebooks_show_pictures(view: dps.View) -> None:
    assert view._repr_html_().count("<svg") == 1
    assert "<svg" in view.histogram("city")._repr_html_()
    assert "<svg" in view.corr(["weight", "height"])._repr_html_()
    assert "<svg" in view.sql("select city, count(*) from sketch group by city")._repr_html_()
