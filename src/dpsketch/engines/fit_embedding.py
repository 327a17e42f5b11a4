"""Learn an embedding from public data, to be hashed in place of the columns of a private table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsketch.encoding.records import concatenated
from dpsketch.encoding.rows import encode
from dpsketch.engines.readers import read_batches
from dpsketch.errors import SourceError
from dpsketch.maps.base import check_whole
from dpsketch.maps.hashed.embedding import Embedding
from dpsketch.numerics.arrays import Floats
from dpsketch.schema.columns import HIGHEST, MISSING
from dpsketch.schema.schema import Schema

_KEPT = 99.9  # percentage of the public records whose numbers are not clamped inside the network


def fit_embedding(
    public_table: Any,
    target: str,
    schema: Schema,
    columns: Sequence[str] | None = None,
    outputs: int = 8,
    hidden: Sequence[int] = (),
    seed: int = 0,
) -> Embedding:
    """Train a network that predicts `target` from the other columns, and keep its layers up to the last `outputs`
    units.

    `public_table` is anything that `accumulate` reads, with *public* records and the schema's columns: the result
    contains numbers computed from it and protects nobody in it. Without `hidden`, the embedding is a linear map. Pass
    the result to `Race(columns=…, embedding=…)` with the same columns in the same order.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    check_whole("fit_embedding", "outputs", outputs, 1, 1024)
    names = [column.name for column in schema.scalars if column.name != target] if columns is None else list(columns)
    rows = [schema.index(name) for name in names]
    wanted = schema.stored
    batches = [
        encode(schema, batch)
        for batch in read_batches(public_table, wanted, lambda share: None, [s.name for s in schema.sets], schema.csv)
    ]
    if not batches:
        raise SourceError("the public table has no rows", "pass a table that is like the private one")
    codes = concatenated(batches).codes
    codes = codes[:, codes[schema.index(target)] != MISSING]
    if codes.shape[1] < 10:
        raise SourceError(
            f"the public table has fewer than 10 rows with a value of '{target}'", "use more public records"
        )
    points = np.where(codes[rows] == MISSING, 0, codes[rows]).T / HIGHEST
    targets = codes[schema.index(target)]
    sizes, activation = (*hidden, outputs), "relu" if hidden else "identity"
    model = (MLPRegressor if schema.column(target).numeric else MLPClassifier)(
        hidden_layer_sizes=sizes, activation=activation, random_state=seed, max_iter=200
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points, targets / HIGHEST if schema.column(target).numeric else targets)
    return _scaled(model.coefs_[:-1], model.intercepts_[:-1], points)


def _scaled(matrices: list[Floats], biases: list[Floats], points: Floats) -> Embedding:
    """Rescale layers so that nearly all numbers between them lie in −1 … 1, as fixed point requires."""
    layers, before, values = [], 1.0, points
    for index, (matrix, bias) in enumerate(zip(matrices, biases, strict=True)):
        values = (np.maximum(values, 0.0) if index else values) @ matrix + bias
        scale = max(float(np.percentile(np.abs(values), _KEPT)), 1e-6)
        layers.append((matrix.T * (before / scale), bias / scale))
        before = scale
    return Embedding.from_arrays(layers)
