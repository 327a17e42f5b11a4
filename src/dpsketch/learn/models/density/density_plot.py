"""A picture of a kernel density over one or two columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpsketch.files.pictures import picture, plain_ticks
from dpsketch.learn.models.density.full_table import units_at
from dpsketch.learn.models.density.kernel_density import KernelDensity
from dpsketch.schema.schema import Schema

_STEPS = {1: 400, 2: 120}


def plot_density(path: str | Path, model: KernelDensity, schema: Schema, names: tuple[str, ...]) -> None:
    steps = np.linspace(0.0, 1.0, _STEPS[len(names)])
    places = np.stack(np.meshgrid(*[steps] * len(names)), axis=-1).reshape(-1, len(names))
    answer = model.density(units_at(schema, names, places))
    axes = units_at(schema, names, np.stack([steps] * len(names), axis=1))
    with picture(path, 6, 5) as (figure, axis):
        if len(names) == 1:
            across = axes[names[0]]
            axis.plot(across, answer.value)
            axis.fill_between(across, *(answer.value - answer.stderr, answer.value + answer.stderr), alpha=0.3)
            axis.set(xlabel=names[0], ylabel="density, with one standard error")
        else:
            value = answer.value.reshape(len(steps), len(steps))
            mesh = axis.pcolormesh(axes[names[0]], axes[names[1]], value, cmap="Blues", shading="nearest")
            axis.set(xlabel=names[0], ylabel=names[1])
            figure.colorbar(mesh, label="density", format="{x:,.10g}")
        lines = {names[0]: axis.xaxis} | ({names[1]: axis.yaxis} if len(names) == 2 else {})
        plain_ticks(*(line for name, line in lines.items() if axes[name].dtype.kind != "M"))  # dates have their own
