"""A picture of a kernel density over one or two columns."""

from __future__ import annotations

import numpy as np

from dpsketch.learn.answer_pictures import BANDS
from dpsketch.learn.histogram_bins import even_edges, number_axis
from dpsketch.learn.models.density.full_table import units_at
from dpsketch.learn.models.density.kernel_density import KernelDensity
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import Axis, Picture, Series, Surface
from dpsketch.schema.schema import Schema

_STEPS = {1: 300, 2: 100}


def density_drawing(model: KernelDensity, schema: Schema, names: tuple[str, ...]) -> Drawing:
    """The density with its 95 % intervals, or over two columns without them."""
    columns = [schema.column(name) for name in names]
    steps = _STEPS[len(names)]
    middles = (np.arange(steps) + 0.5) / steps
    places = np.stack(np.meshgrid(*[middles] * len(names)), axis=-1).reshape(-1, len(names))
    answer = model.density(units_at(schema, names, places))
    edges = [even_edges(column, steps) for column in columns]
    axes = [number_axis(column) for column in columns]
    if len(names) == 1:
        across = (edges[0][:-1] + edges[0][1:]) / 2
        line = Series("line", across, answer.value, *answer.interval())
        return Drawing((Picture(f"density of {names[0]}", axes[0], Axis("density"), (line,), note=BANDS),))
    surface = Surface(answer.value.reshape(steps, steps), *edges)
    return Drawing((Picture(f"density of {names[0]} and {names[1]}", axes[0], axes[1], surface=surface),))
