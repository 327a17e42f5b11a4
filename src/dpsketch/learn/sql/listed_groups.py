"""The groups of a statement: those combinations of labels that its condition allows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.factors import Factor, product_at
from dpsketch.learn.points import Frame
from dpsketch.learn.sql.grouping import MOST_GROUPS, Key
from dpsketch.schema.schema import Schema

_MOST_COMBINATIONS = 1 << 21  # before conditions on several keys


def listed_groups(schema: Schema, keys: Sequence[Key], where: Sequence[Factor]) -> list[tuple[Any, ...]]:
    """The labels of each group that may hold records that meet the condition."""
    allowed = [_allowed(key, where) for key in keys]
    groups = prod(len(places) for places in allowed)
    together = [factor for factor in where if decided(keys, factor)]
    if groups > (_MOST_COMBINATIONS if together else MOST_GROUPS):
        raise _too_many(groups)
    places = np.meshgrid(*allowed, indexing="ij") if keys else []
    chosen = [each.ravel() for each in places]
    if together:
        codes = {key.of.columns[0]: key.codes[each] for key, each in zip(keys, chosen, strict=True) if key.plain}
        meets = product_at(together, Frame(schema, codes))[0] > 0
        chosen = [each[meets] for each in chosen]
        if meets.sum() > MOST_GROUPS:
            raise _too_many(int(meets.sum()))
    if not keys:
        return [()]
    labels = ([key.labels[place] for place in each.tolist()] for key, each in zip(keys, chosen, strict=True))
    return list(zip(*labels, strict=True))


def decided(keys: Sequence[Key], factor: Factor) -> bool:
    """Whether the labels of a group say whether its records meet a condition on several columns."""
    plain = {key.of.columns[0] for key in keys if key.plain}
    return len(factor.columns) > 1 and set(factor.columns) <= plain


def _allowed(key: Key, where: Sequence[Factor]) -> list[int]:
    """The indices of a key's labels that conditions on its column alone allow."""
    own = [factor for factor in where if factor.columns and set(factor.columns) <= set(key.of.columns)]
    if not own:
        return list(range(len(key.labels)))
    frame = Frame(key.schema, {key.of.columns[0]: key.codes}, key.values_at)
    meets = product_at(own, frame)[0] > 0
    found = np.unique(key.of.at(frame)[0][meets]).astype(np.int64)
    return found[(found >= 0) & (found < len(key.labels))].tolist()


def _too_many(groups: int) -> QueryError:
    return QueryError(
        f"group by would make {groups} groups, more than {MOST_GROUPS}",
        "group by fewer columns, or allow fewer labels in where",
    )
