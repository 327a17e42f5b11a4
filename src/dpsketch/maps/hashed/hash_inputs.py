"""The integers that a hash projects: codes of numbers, indicators of labels, or the outputs of a public embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsketch.errors import RecipeError
from dpsketch.maps.hashed.embedding import Embedding
from dpsketch.maps.hashed.hashes import Binned, Factor, Hamming, Manhattan
from dpsketch.numerics.arrays import Codes, Floats
from dpsketch.schema.columns import HIGHEST, MISSING, SPAN, Column
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.maps.hashed.race import Race

EQUAL, ORDERED = "equal", "ordered"
LABELS = (EQUAL, ORDERED)
MOST_INDICATORS = 2048  # of one factor: a batch of 65,536 records then takes 256 MB
_STEEPEST = 24  # bits below one bin
# A projection's range modulo 2^32 is at least this many times the distance of the farthest records. Gaussian
# projections differ by that much with probability 10⁻¹⁵; Cauchy ones that do so raise collision probabilities by a
# factor of at most 1 + 6·10⁻⁵. Source: docs/proofs/race.md.
_GAUSSIAN_ROOM, _CAUCHY_ROOM = 8.0, 256.0


class HashInputs:
    """The inputs of one factor's projections: int16 numbers of each record.

    A number is its code, the midpoint of its bounds where it is missing. A category or boolean is one indicator for
    each label and one for a missing cell: HIGHEST for the record's own and 0 for the others. So any two different
    labels are equally far apart, whatever their order in the schema. With labels="ordered" (releases before labels
    counted by equality), a label is its code, like a number. An embedding takes codes. `Hamming` compares codes, that
    of missing cells included.
    """

    def __init__(self, factor: Factor, schema: Schema, race: Race) -> None:
        self._schema, self._names, self._embedding = schema, factor.columns, race.embedding
        self._codes_kept = isinstance(factor.hash, Hamming)
        self._rows = np.array([schema.index(name) for name in factor.columns])
        self._indicators = [indicators(schema.column(name), factor, race) for name in factor.columns]
        self.size = input_count(factor, schema, race)

    def __call__(self, codes: Codes) -> Codes:
        chosen: Codes = codes[self._rows]
        if self._codes_kept:
            return chosen
        if any(self._indicators):
            return self._with_indicators(chosen)
        chosen[chosen == MISSING] = 0
        return chosen if self._embedding is None else self._embedding(chosen)

    def _with_indicators(self, chosen: Codes) -> Codes:
        inputs = np.zeros((self.size, chosen.shape[1]), np.int16)
        first, every = 0, np.arange(chosen.shape[1])
        for name, own, count in zip(self._names, chosen, self._indicators, strict=True):
            if count:
                levels = self._schema.column(name).levels_of(own)  # -1 where missing: the last indicator
                inputs[first + levels % count, every] = HIGHEST
            else:
                inputs[first] = np.where(own == MISSING, 0, own)
            first += max(count, 1)
        return inputs

    def spans(self, family: Binned) -> Floats:
        """The width of each input's range of codes in bandwidths."""
        if self._embedding is not None:
            return np.full(self.size, 1.0 / family.bandwidth)
        # Indicators of two labels differ by half of the range in two inputs, which is to be one width in all.
        apart = 1.0 if isinstance(family, Manhattan) else math.sqrt(2.0)
        spans = self._column_spans(family).values()
        each = [
            [span * apart] * count if count else [span] for span, count in zip(spans, self._indicators, strict=True)
        ]
        return np.array([span for own in each for span in own])

    def bin_scales(self, family: Binned) -> tuple[Floats, int]:
        """Units of a projection per code step of each input, and the bits of a bin: one bin is 2^bits units."""
        if self._embedding is None:
            bits = _bin_bits(self._column_spans(family), family)
        else:
            bits = _bin_bits(_output_spans(self._embedding, family), family)
        return self.spans(family) * 2.0**bits / SPAN, bits

    def _column_spans(self, family: Binned) -> dict[str, float]:
        """The largest distance in each column, in bandwidths."""
        ordered = [name for name, count in zip(self._names, self._indicators, strict=True) if not count]
        known = bandwidth_spans(ordered, family, self._schema)
        return {name: known.get(name, 1.0 / family.bandwidth) for name in self._names}


def indicators(column: Column, factor: Factor, race: Race) -> int:
    """The number of indicators of a column: one for each label and one for missing cells, or none."""
    if column.numeric or race.labels == ORDERED or race.embedding is not None or isinstance(factor.hash, Hamming):
        return 0
    return column.levels + 1


def labels_in(schema: Schema, columns: Sequence[str]) -> str:
    """How a recipe's own `Race` should count labels of these columns. Without any, "ordered" is the same map, which
    releases of earlier versions hold: sketches of both merge.
    """
    return ORDERED if all(schema.column(name).numeric for name in columns) else EQUAL


def input_count(factor: Factor, schema: Schema, race: Race) -> int:
    """The number of inputs of a factor's projections, by arithmetic alone."""
    if race.embedding is not None:
        return race.embedding.outputs
    counts = [indicators(schema.column(name), factor, race) for name in factor.columns]
    if sum(counts) > MOST_INDICATORS:
        raise RecipeError(
            f"Race: {factor.hash.family} hashes one indicator for each label, and the columns have {sum(counts)}, "
            f"more than {MOST_INDICATORS}",
            "name columns with fewer labels, or hash these by Hamming(), alone or in a Product",
        )
    return sum(max(count, 1) for count in counts)


def bandwidth_spans(columns: Sequence[str], family: Binned, schema: Schema) -> dict[str, float]:
    """Width of each column's bounds in bandwidths."""
    spans = {}
    for name in columns:
        column = schema.column(name)
        if column.scale is not None and not family.scaled:
            raise RecipeError(
                f"Race: column '{name}' is on a {column.scale} scale, where a bandwidth in its units means nothing",
                f"give the bandwidth in widths of the bounds: {type(family).__name__}(bandwidth=0.1, scaled=True)",
            )
        low, high = (float(number) for number in column.values_of(np.array([-HIGHEST, HIGHEST])))
        width = (high - low) / column.bandwidth_unit
        spans[name] = (1.0 if family.scaled else width) / family.bandwidth
    return spans


def _output_spans(embedding: Embedding, family: Binned) -> dict[str, float]:
    return {f"output {index}": 1.0 / family.bandwidth for index in range(embedding.outputs)}


def _bin_bits(spans: Mapping[str, float], family: Binned) -> int:
    """The bits of a bin.

    The projection is kept modulo 2^32 units. Bits are chosen so that the columns' whole span fits several times,
    because otherwise distant records could collide by wrapping around.
    """
    total = 0.0
    for span in spans.values():
        total += span if isinstance(family, Manhattan) else span * span
    farthest = total if isinstance(family, Manhattan) else math.sqrt(total)
    room = _CAUCHY_ROOM if isinstance(family, Manhattan) else _GAUSSIAN_ROOM
    exponent = math.frexp(room * max(farthest, 1.0))[1] if math.isfinite(farthest) else 1100
    bits = min(_STEEPEST, 32 - exponent)
    lost = SPAN / (2.0**bits * math.sqrt(12.0)) if bits > 0 else math.inf  # rounding error in bins, over the full width
    for name, span in spans.items():
        if bits <= 0 or (lost > 0.05 and lost > 0.1 * span):
            raise RecipeError(
                f"Race: all columns together span {farthest:.3g} bandwidths, so only {max(bits, 0)} bits are "
                f"left to resolve one, too few for column '{name}', which spans {span:.3g}",
                "use a wider bandwidth or fewer columns",
            )
    return bits
