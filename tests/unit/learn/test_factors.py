from __future__ import annotations

import numpy as np

import dpsketch as dps
from dpsketch.learn.factors import Factor, columns_of, merged, product_at
from dpsketch.learn.points import Frame

SCHEMA = dps.Schema.from_dict({"columns": {name: {"kind": "number", "lower": 0, "upper": 1} for name in "abcd"}})
FRAME = Frame(SCHEMA, {name: np.arange(-2, 3).astype(np.int16) * (1 + place) for place, name in enumerate("abcd")})


def factor(*names: str) -> Factor:
    return Factor(names, lambda frame: np.prod([frame.values(name) for name in names], axis=0)[None, :])


def test_merged_factors_share_no_column_and_keep_the_product() -> None:
    factors = [factor("a"), factor("b", "c"), factor("d"), factor("c"), factor("a")]
    apart = merged(factors)
    assert sorted(tuple(sorted(each.columns)) for each in apart) == [("a",), ("b", "c"), ("d",)]
    assert np.allclose(product_at(apart, FRAME), product_at(factors, FRAME))
    assert columns_of(factors) == ("a", "b", "c", "d")


def test_a_factor_that_links_two_others_merges_both() -> None:
    assert len(merged([factor("a"), factor("b"), factor("a", "b")])) == 1


def test_a_row_is_one_of_the_functions_or_the_only_one() -> None:
    two = Factor(("a",), lambda frame: np.stack([frame.values("a"), 2 * frame.values("a")]))
    assert np.allclose(two.row(1).at(FRAME), 2 * FRAME.values("a"))
    assert np.allclose(factor("a").row(1).at(FRAME), FRAME.values("a"))
