from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch.errors import QueryError

Rows = dict[str, np.ndarray]


def squares(theta: np.ndarray, rows: Rows) -> np.ndarray:
    return (rows["height"] - theta[0] - theta[1] * rows["weight"]) ** 2


def slopes(theta: np.ndarray, rows: Rows) -> np.ndarray:
    left = rows["height"] - theta[0] - theta[1] * rows["weight"]
    return -2 * left[:, None] * np.column_stack([np.ones(len(left)), rows["weight"]])


def test_squares_give_the_regression(view: dps.View) -> None:
    found = dps.fit_loss(view, squares, [0.0, 0.0])
    known = dps.LinearRegression("height", ["weight"], penalty=0).fit(view, uncertainty=False)
    assert found.success
    assert found.x == pytest.approx([known.intercept_, known.coef_[0]], abs=1e-3)
    assert (found.stderr > 0).all()
    assert dps.fit_loss(view, squares, [0.0, 0.0], gradient=slopes).x == pytest.approx(found.x, abs=1e-3)


def test_rows_are_in_the_user_s_units(view: dps.View) -> None:
    seen: Rows = {}

    def loss(theta: np.ndarray, rows: Rows) -> np.ndarray:
        seen.update(rows)
        return (theta[0] - rows["age"]) ** 2

    found = dps.fit_loss(view, loss, 0.0)
    assert found.x[0] == pytest.approx(54, abs=1)
    assert set(seen["city"]) <= {"north", "south", "west", "other", None}
    assert seen["since"].dtype == np.dtype("datetime64[us]")
    assert set(seen["member"][~np.isnan(seen["member"])]) == {0.0, 1.0}
    assert np.isnan(seen["income"]).mean() == pytest.approx(0.1, abs=0.03)


def raises(theta: np.ndarray, rows: Rows) -> np.ndarray:
    return rows["no such column"]


@pytest.mark.parametrize(
    ("loss", "theta0", "fact"),
    [
        (raises, [0.0], "the loss raised KeyError"),
        (lambda theta, rows: (rows["income"] - theta[0]) ** 2, [0.0], "not finite where the search starts"),
        (lambda theta, rows: float(theta[0] ** 2), [0.0], "must return an array of shape"),
        (squares, [], "theta0"),
        (squares, [np.nan, 0.0], "theta0"),
    ],
)
def test_bad_losses_are_refused(view: dps.View, loss: Any, theta0: Any, fact: str) -> None:
    with pytest.raises(QueryError, match=fact):
        dps.fit_loss(view, loss, theta0)


def test_a_bad_gradient_or_column_is_refused(view: dps.View) -> None:
    with pytest.raises(QueryError, match="gradient must return"):
        dps.fit_loss(view, squares, [0.0, 0.0], gradient=lambda theta, rows: np.zeros(2))
    with pytest.raises(QueryError, match="no column 'length'"):
        dps.fit_loss(view, squares, [0.0, 0.0], columns=["length"])


def test_losses_with_a_kink_and_large_losses_are_minimised(view: dps.View) -> None:
    for scale, loss in ((1.0, np.abs), (1e3, np.square)):
        found = dps.fit_loss(view, lambda theta, rows, f=loss, s=scale: s * f(theta[0] - rows["age"]), [1.0], ["age"])
        assert found.success, found.message
        assert found.x[0] == pytest.approx(54, abs=1.5)
