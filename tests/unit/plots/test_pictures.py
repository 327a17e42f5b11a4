"""Every kind of picture, as SVG text that was looked at once and is kept in tests/golden/pictures.

A wanted change: DPSKETCH_WRITE_PICTURES=1 writes them anew; look at each before it is committed.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.learn.answer import Answer
from dpsketch.learn.answer_pictures import Binned
from dpsketch.learn.answer_table import Table
from dpsketch.learn.models.clusters.atoms import Atoms
from dpsketch.learn.models.clusters.places import Places
from dpsketch.learn.models.clusters.plot import clusters_drawing
from dpsketch.learn.models.density.density_plot import density_drawing
from dpsketch.learn.models.pca import variances_drawing
from dpsketch.planning.forecast import Forecast
from dpsketch.planning.prediction import Prediction
from dpsketch.planning.task_forecast import region_drawing, simulated_columns
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import ASINH, DATE, LOG, Axis, Picture, Series
from dpsketch.plots.svg import HEIGHT, WIDTH
from dpsketch.recipe.tasks.ratio import RatioPrediction

GOLDEN = Path(__file__).parents[2] / "golden" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
NOT_NEGATIVE = (0.0, np.inf)


def histogram(axis: Axis, edges: np.ndarray, missing: float = 0.0) -> Drawing:
    size = len(edges) - 1
    values = 100 * np.exp(-(((np.arange(size) - size / 2) / (size / 5)) ** 2))
    values = np.append(values, missing)
    labels = tuple(map(str, range(size + 1)))
    return Answer(
        values, np.full(size + 1, 6.0), labels=labels, possible=NOT_NEGATIVE, binned=Binned(axis, edges)
    ).plot()


def numbers() -> Drawing:
    return histogram(Axis("age"), np.linspace(0, 120, 25), missing=40)


def logarithms() -> Drawing:
    return histogram(Axis("income", LOG), np.geomspace(1, 1e6, 21))


def inverse_sines() -> Drawing:
    return histogram(Axis("debt", ASINH), np.sinh(np.linspace(-9, 12, 22)))


def dates() -> Drawing:
    ends = np.array(["2019-06-01", "2024-10-01"], "datetime64[us]").astype(np.int64)
    return histogram(Axis("joined", DATE), np.linspace(*ends, 16))


def gaps() -> Drawing:
    axis, edges = Axis("fare"), np.linspace(0, 50, 6)
    values = np.array([10.0, np.nan, 30.0, 20.0, 5.0])
    unknown = Answer(
        values, np.full(5, 4.0), labels=tuple("abcde"), possible=NOT_NEGATIVE, reason="few", binned=Binned(axis, edges)
    )
    return unknown.plot()


def bars() -> Drawing:
    unknown = Answer(np.nan, 30.0, possible=(0.0, 90.0), reason="too few")
    rows = [
        (name, Answer(value, 3.0))
        for name, value in zip(("north", "south", "a label <that> is & much too long"), (40, 55, 20.0), strict=True)
    ]
    return Table(("city", "mean age"), (*rows, (None, unknown)), ()).plot()


def many_names() -> Drawing:
    rows = tuple((f"district {number}", Answer(30.0 - number, 2.0)) for number in range(20))
    return Table(("district", "n"), rows, ()).plot()


def below_zero() -> Drawing:
    rows = ((False, Answer(-3.0, 1.0)), (True, Answer(2.0, 1.5)))
    return Table(("member", "slope"), rows, ()).plot()


def lines() -> Drawing:
    rows = tuple((age, Answer(10 + 3 * np.sqrt(age), 0.5 + age / 30)) for age in range(60, 17, -3))
    return Table(("age", "income"), (*rows, (None, Answer(10.0, 1.0))), ()).plot()


def panels() -> Drawing:
    rows = tuple((city, Answer(value, 2.0), Answer(10 * value, 9.0)) for city, value in (("a", 3.0), ("b", 9.0)))
    return Table(("city", "n", "m"), rows, ()).plot()


def pairs() -> Drawing:
    rows = [
        (grade, city, Answer(float(20 * (grade == index) + 4 * grade), 2.5))
        for grade in range(3)
        for index, city in enumerate(("north", "south", "west"))
    ]
    rows[4] = (1, "south", Answer(np.nan, 9.0, reason="few"))
    return Table(("grade", "city", "n"), tuple(rows), ()).plot()


def correlations() -> Drawing:
    value = np.array([[1.0, 0.6, -0.02], [0.6, 1.0, -0.4], [-0.02, -0.4, 1.0]])
    error = np.array([[0, 0.05, 0.05], [0.05, 0, 0.05], [0.05, 0.05, 0]])
    return Answer(value, error, labels=("age", "income", "debt"), possible=(-1.0, 1.0)).plot()


def forecast() -> Drawing:
    predictions = [
        Prediction(
            query, "n", dps.Budget(epsilon), 100.0, error / epsilon, error / epsilon / 2, error / epsilon * 2, ""
        )
        for query, error in (("select count(*) from sketch", 1.0), ("select avg(age) from sketch where smoker", 4.0))
        for epsilon in (0.1, 1.0, 10.0)
    ]
    return Forecast(tuple(predictions)).drawing


def places(*names: str) -> Places:
    columns = {
        "fare": {"kind": "number", "lower": 1, "upper": 1000, "transform": "log"},
        "day": {"kind": "datetime", "lower": "2020-01-01", "upper": "2026-01-01"},
    }
    return Places(dps.Schema.from_dict({"columns": {name: columns[name] for name in names}}), names)


def atoms(columns: int) -> tuple[Atoms, np.ndarray, np.ndarray]:
    centres, shares = np.array([[-0.2, 0.1], [0.25, -0.2], [0.3, 0.35]])[:, :columns], np.array([0.6, 0.3, 0.1])
    spreads = np.log(np.array([[0.01, 0.02], [0.005, 0.01], [0.001, 0.003]])[:, :columns])
    return Atoms(np.log(shares), centres, spreads), centres, shares


def clusters_of_two() -> Drawing:
    return clusters_drawing(places("fare", "day"), *atoms(2))


def clusters_of_one() -> Drawing:
    return clusters_drawing(places("fare"), *atoms(1))


class Hill:
    """Stands for a fitted density."""

    def density(self, table: dict[str, np.ndarray]) -> Answer:
        fares = np.log(np.asarray(table["fare"], np.float64))
        years = np.zeros(len(fares))
        if "day" in table:
            years = (table["day"] - np.datetime64("2023-01-01")) / np.timedelta64(365, "D")
        height = np.exp(-((fares - 3) ** 2) / 2 - (years - fares / 5) ** 2)
        return Answer(height, np.full(len(height), 0.02), possible=NOT_NEGATIVE)


def density_of_two() -> Drawing:
    return density_drawing(Hill(), places("fare", "day").schema, ("fare", "day"))  # type: ignore[arg-type]


def density_of_one() -> Drawing:
    return density_drawing(Hill(), places("fare").schema, ("fare",))  # type: ignore[arg-type]


def components() -> Drawing:
    shares = np.array([0.5, 0.25, 0.1, 0.05, 0.02])
    return variances_drawing(shares, np.array([0.03, 0.02, 0.02, np.nan, 0.02]))


def region() -> Drawing:
    budget = dps.Budget(0.1, 1e-6)
    plan = dps.plan_task(simulated_columns(8), "clusters", k=4, rows=100_000, budget=budget)
    assert isinstance(plan, RatioPrediction)
    return region_drawing(plan)


def truth_beside_answers() -> Drawing:
    """As in the demo."""
    [numbers_], [names] = numbers().pictures, below_zero().pictures
    middles = (numbers_.series[0].x[:-1] + numbers_.series[0].x[1:]) / 2
    pairs_ = ((numbers_, middles, numbers_.series[0].y + 4), (names, np.arange(2.0), np.array([-2.5, 1.0])))
    panels_ = [
        replace(each, series=(replace(each.series[0], name="private answer"), Series.exact("points", x, y, "truth")))
        for each, x, y in pairs_
    ]
    return Drawing(tuple(panels_), across=2)


PICTURES = (
    numbers,
    logarithms,
    inverse_sines,
    dates,
    gaps,
    bars,
    many_names,
    below_zero,
    lines,
    panels,
    pairs,
    correlations,
    forecast,
    clusters_of_one,
    clusters_of_two,
    density_of_one,
    density_of_two,
    components,
    region,
    truth_beside_answers,
)


@pytest.mark.parametrize("make", PICTURES)
def test_pictures_are_those_that_were_looked_at(make: object) -> None:
    assert callable(make)
    drawn, path = make().svg, GOLDEN / f"{make.__name__}.svg"
    if os.environ.get("DPSKETCH_WRITE_PICTURES"):
        path.write_text(drawn)
    assert drawn == path.read_text()


def test_every_golden_picture_has_its_maker() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {make.__name__ for make in PICTURES}


@pytest.mark.parametrize("make", PICTURES)
def test_labels_of_the_x_axis_do_not_overlap_and_stay_inside(make: object) -> None:
    """By a width of 6 pixels a letter, in texts that are not turned."""
    assert callable(make)
    root = ET.fromstring(make().svg)
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for panel in root.iter(f"{SVG}g"):
        for text in panel.iter(f"{SVG}text"):
            if text.get("text-anchor") == "middle" and text.get("transform") is None and text.get("style") is None:
                middle, half = float(text.get("x", 0)), 3 * len(text.text or "")
                assert middle - half >= -8
                assert middle + half <= WIDTH + 8
                rows.setdefault((str(panel.get("transform")), str(text.get("y"))), []).append(
                    (middle - half, middle + half)
                )
            assert float(text.get("y", 0)) <= HEIGHT
    for spans in rows.values():
        spans.sort()
        assert all(first[1] < second[0] for first, second in pairwise(spans))


def test_texts_are_escaped() -> None:
    drawn = bars().svg
    assert "&lt;that&gt;" in drawn
    assert "<that>" not in drawn
    hidden = Picture("a\u202eb", Axis("x"), Axis("y"), (Series("line", *(np.arange(3.0),) * 4),))
    assert "\\u202e" in Drawing((hidden,)).svg


def test_files(tmp_path: Path) -> None:
    drawing = bars()
    drawing.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == drawing.svg == drawing._repr_html_()
    drawing.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(dps.FileError, match=r"a.jpg does not end in .svg or .png\nHint: choose one of these endings"):
        drawing.save(tmp_path / "a.jpg")
    assert repr(drawing) == "Drawing(1 picture: save('name.svg') writes it)"


def test_a_png_without_cairo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cairosvg.py").write_text("raise OSError('no library called cairo was found')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cairosvg", raising=False)
    with pytest.raises(dps.MissingExtraError, match=r"needs the Cairo library\nHint: choose a name that ends in .svg"):
        bars().save(tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_answers_and_tables_without_a_picture() -> None:
    for answer in (Answer(1.0, 0.1), Answer(np.ones(100), np.ones(100)), Answer(np.ones((2, 3)), np.ones((2, 3)))):
        with pytest.raises(dps.QueryError, match="there is no picture of this answer"):
            answer.plot()
    number = Answer(1.0, 0.1)
    for table in (
        Table(("n",), ((number,),), ()),
        Table(("a", "b", "c", "n"), ((1, 2, 3, number), (1, 2, 4, number)), ()),
        Table(("name", "n"), tuple((str(index), number) for index in range(200)), ()),
    ):
        assert "<svg" not in table._repr_html_()
        with pytest.raises(dps.QueryError, match="there is no picture of this table"):
            table.plot()
