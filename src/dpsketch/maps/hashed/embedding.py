"""A public embedding of records, hashed in place of the columns: a linear map or a small network in fixed point.

All arithmetic is on int16 integers, so a record's embedding is the same on every machine and in every batch. The
embedding must come from public data: its weights are published without any protection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsketch.errors import RecipeError
from dpsketch.maps.base import check_whole
from dpsketch.numerics.arrays import Codes
from dpsketch.schema.columns import HIGHEST

MOST_LAYERS = 8
MOST_NUMBERS = 2**17
_UNIT = 1 << 14  # the number one in the fixed point of the weights
_MOST_SHIFT = 30


@dataclass(frozen=True)
class Layer:
    """y = clamp((W·x + b) >> shift), rounded to nearest; W by rows, x and y in −32767 … 32767."""

    weights: tuple[tuple[int, ...], ...]
    bias: tuple[int, ...]
    shift: int

    def __post_init__(self) -> None:
        check_whole("Embedding", "shift", self.shift, 0, _MOST_SHIFT)
        weights, bias = _table(self.weights), _table([self.bias])[0]
        if weights.ndim != 2 or not weights.size or bias.shape != (len(weights),):
            raise RecipeError("Embedding: weights must be a matrix of whole numbers, with one entry of bias per row")
        if max(weights.max(), -int(weights.min())) >= 2**31 or max(bias.max(), -int(bias.min())) >= 2**62:
            raise RecipeError("Embedding: weights must fit 32 bits and biases 62 bits")
        longest = max(int(row.sum()) for row in np.abs(weights)) * HIGHEST + int(np.abs(bias).max())
        if longest >= 2**62:
            raise RecipeError("Embedding: a layer's sums do not fit 62 bits", "lower its weights or its shift")
        object.__setattr__(self, "weights", tuple(tuple(row) for row in weights.tolist()))
        object.__setattr__(self, "bias", tuple(bias.tolist()))


@dataclass(frozen=True)
class Embedding:
    """Layers applied in turn, with negative numbers set to zero between them. The outputs of the last layer are hashed.

    Inputs are the columns scaled from their bounds to −1 … 1. Outputs are clamped to −1 … 1.
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        layers = self.layers
        if not isinstance(layers, list | tuple) or not 1 <= len(layers) <= MOST_LAYERS:
            raise RecipeError(f"Embedding: layers must be a list of 1 to {MOST_LAYERS}")
        object.__setattr__(self, "layers", tuple(_layer(layer) for layer in layers))
        if sum(len(layer.weights) * len(layer.weights[0]) for layer in self.layers) > MOST_NUMBERS:
            raise RecipeError(f"Embedding: more than {MOST_NUMBERS} weights", "use fewer or smaller layers")
        for one, two in zip(self.layers, self.layers[1:], strict=False):
            if len(two.weights[0]) != len(one.weights):
                raise RecipeError("Embedding: the inputs of each layer must be the outputs of the one before")

    @classmethod
    def from_arrays(cls, layers: Sequence[tuple[ArrayLike, ArrayLike]]) -> Embedding:
        """Build an embedding from real matrices and biases, (outputs × inputs, outputs) per layer, rounded to fixed
        point.

        Numbers inside a network are also clamped to −1 … 1: scale the layers accordingly.
        """
        made = []
        for matrix, bias in layers:
            real, added = np.asarray(matrix, np.float64), np.asarray(bias, np.float64)
            if (
                real.ndim != 2
                or added.shape != real.shape[:1]
                or not np.isfinite(real).all()
                or not np.isfinite(added).all()
            ):
                raise RecipeError("Embedding: each layer is a finite matrix and a bias with one entry per row")
            if max(np.abs(real).max(initial=0), np.abs(added).max(initial=0)) > 2**16:
                raise RecipeError("Embedding: weights must be at most 65536 in absolute value")
            weights = np.rint(real * _UNIT).astype(np.int64)
            made.append(
                Layer(
                    tuple(map(tuple, weights.tolist())),
                    tuple(np.rint(added * _UNIT * HIGHEST).astype(np.int64).tolist()),
                    14,
                )
            )
        return cls(tuple(made))

    @property
    def inputs(self) -> int:
        return len(self.layers[0].weights[0])

    @property
    def outputs(self) -> int:
        return len(self.layers[-1].weights)

    def __call__(self, numbers: Codes) -> Codes:
        """Embed records (matrix columns)."""
        values = numbers.astype(np.int64)
        for index, layer in enumerate(self.layers):
            if index:
                values = np.maximum(values, 0)
            values = _whole_product(np.array(layer.weights, np.int64), values) + np.array(layer.bias)[:, None]
            if layer.shift:
                values = (values + (1 << (layer.shift - 1))) >> layer.shift
            values = np.clip(values, -HIGHEST, HIGHEST)
        return values.astype(np.int16)

    def to_dict(self) -> dict[str, Any]:
        return {
            "layers": [
                {"weights": [list(row) for row in layer.weights], "bias": list(layer.bias), "shift": layer.shift}
                for layer in self.layers
            ]
        }


def embedding_from_dict(facts: object) -> Embedding:
    if isinstance(facts, Embedding):
        return facts
    if not isinstance(facts, Mapping) or set(facts) != {"layers"}:
        raise RecipeError("Embedding: an embedding has layers and nothing else", "make one with Embedding.from_arrays")
    return Embedding(facts["layers"])


def _layer(facts: object) -> Layer:
    if isinstance(facts, Layer):
        return facts
    if not isinstance(facts, Mapping) or set(facts) != {"weights", "bias", "shift"}:
        raise RecipeError("Embedding: a layer has weights, bias and shift")
    return Layer(facts["weights"], facts["bias"], facts["shift"])


def _table(rows: object) -> NDArray[np.int64]:
    try:
        table = np.array(rows)
    except ValueError:
        table = np.empty(0)
    if table.dtype.kind != "i":
        raise RecipeError("Embedding: weights and biases are whole numbers", "make them with Embedding.from_arrays")
    return table.astype(np.int64)


def _whole_product(weights: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """weights @ values in exact integers: in float64 where all partial sums fit 53 bits, in any order,
    else in int64.
    """
    if int(np.abs(weights).sum(axis=1).max()) * HIGHEST < 2**53:
        return (weights.astype(np.float64) @ values.astype(np.float64)).astype(np.int64)
    return weights @ values
