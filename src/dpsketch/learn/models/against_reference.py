"""Coefficients of labels against a reference label of their column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpsketch.errors import QueryError
from dpsketch.learn.answer import Answer
from dpsketch.learn.models.design import Design
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import Category

_SHOWN = 12  # labels in a hint


@dataclass(frozen=True)
class AgainstReference:
    """`coefficients` of the intercept, of numbers, and of labels minus that of their column's `reference`, which has
    none of its own. The intercept is that of records with the reference labels. For several classes one vector comes
    after the other.
    """

    coefficients: Answer
    reference: dict[str, str]


def against_references(
    design: Design,
    means: Floats,
    values: Floats,
    covariance: Floats,
    reference: Mapping[str, object],
    laplace: bool,
) -> AgainstReference:
    """Vectors of intercept and coefficients, one row each, against references, from the covariances of their errors."""
    chosen = references(design, means, reference)
    change = np.eye(len(design.names) + 1)
    for own, place in chosen.values():
        change[0, 1 + place] = 1.0
        change[1 + own.start : 1 + own.stop, 1 + place] -= 1.0
    kept = np.delete(np.arange(len(change)), [1 + place for _, place in chosen.values()])
    change = change[kept]
    value, stderr = values @ change.T, np.full((len(values), len(change)), np.nan)
    for line, each in enumerate(covariance):
        known = np.isfinite(np.diag(each))
        inside = ~change[:, ~known].any(axis=1)
        part = change[np.ix_(inside, known)]
        stderr[line, inside] = np.sqrt(np.einsum("ij,jk,ik->i", part, each[np.ix_(known, known)], part))
    every = ("intercept", *design.names)
    names = tuple(every[place] for place in kept) * len(values)
    flat, errors = value.ravel(), stderr.ravel()
    present = np.isfinite(errors)
    reason = "" if present.all() else "as far as the release shows, no record has the label or its reference"
    if not present.any():
        reason = "the model was fitted without standard errors, or read from a file, which does not keep covariances"
    shown = np.where(present, flat, np.nan)
    answer = Answer(shown, errors, "coefficients", names, raw=flat, reason=reason, laplace=laplace)
    return AgainstReference(
        answer, {name: labels_in(design, name)[place - own.start] for name, (own, place) in chosen.items()}
    )


def references(
    design: Design, means: Floats, reference: Mapping[str, object] | None = None
) -> dict[str, tuple[slice, int]]:
    """The features of each column of labels, and its reference: the one that is named, or the most common label."""
    named, found, start = dict(reference or {}), {}, 0
    for name in design.columns:
        own = slice(start, start + len(Design(design.schema, [name]).names))
        start = own.stop
        if isinstance(design.schema.column(name), Category):
            level = _level(design, name, named.pop(name)) if name in named else int(np.argmax(means[own]))
            found[name] = own, own.start + level
    if named:
        raise QueryError(
            f"'{next(iter(named))}' is no column of labels in this model",
            f"name one of: {', '.join(found)}" if found else "leave out the reference: it has no such columns",
        )
    return found


def labels_in(design: Design, name: str) -> tuple[str, ...]:
    """The labels of a category, in the order of its features."""
    column = design.schema.column(name)
    assert isinstance(column, Category)
    return tuple(map(str, column.labels))


def _level(design: Design, name: str, label: object) -> int:
    labels = labels_in(design, name)
    if str(label) not in labels:
        listed = ", ".join(labels[:_SHOWN]) + (", …" if len(labels) > _SHOWN else "")
        raise QueryError(f"column '{name}' has no label '{label}'", f"name one of: {listed}")
    return labels.index(str(label))
