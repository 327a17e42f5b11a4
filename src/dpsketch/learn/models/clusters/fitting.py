"""The base of k-means and mixtures: checks before a fit, and warnings after it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from dpsketch.errors import FitWarning, QueryError
from dpsketch.learn.answer_table import Table
from dpsketch.learn.estimators.fourier_sums import FourierSums, fourier_sums, holds_sums
from dpsketch.learn.models.clusters.atoms import Atoms
from dpsketch.learn.models.clusters.decoder import Decoded
from dpsketch.learn.models.clusters.places import Places
from dpsketch.learn.models.clusters.table import released_table, table_sums
from dpsketch.learn.models.model import Model
from dpsketch.learn.saved import Arrays, Facts, Saved, finite, floats, whole
from dpsketch.learn.sql.literals import find_column
from dpsketch.learn.sql.selection import answer_in_units
from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import UNRECORDED
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

MOST_CLUSTERS = 1000
MOST_HARM: Annotated[float, UNRECORDED] = 0.05


class SketchModel(Model):
    """Base of k-means and mixtures. `random_state` seeds the search: the same release gives the same fit."""

    random_state: int
    columns: Sequence[str] | None
    converged_: bool
    goodness_of_fit_: float
    _places: Places
    _atoms: Atoms
    _centres: Floats  # centres of the plotted atoms, and their shares of the records
    _sizes: Floats
    _asked: int  # requested number of clusters

    def _start(self, view: View, name: str) -> int:
        """Check the number of clusters and return it."""
        self._check_view(view)
        count = getattr(self, name)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= MOST_CLUSTERS:
            raise QueryError(f"{name} must be a whole number from 1 to {MOST_CLUSTERS}, got {count!r} instead")
        self._check_columns(view.schema)
        self.statement_ = view.statement
        self._asked = int(count)
        return self._asked

    def _check_columns(self, schema: Schema) -> None:
        if self.columns is None:
            return
        if isinstance(self.columns, str):
            raise QueryError("columns must be a list of names", f"write columns=['{self.columns}']")
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise QueryError("columns must name at least one column, each once")
        for name in self.columns:
            column = find_column(schema, name)
            if not column.numeric:
                raise QueryError(
                    f"column '{name}' is a {column.kind}: clusters need numbers or dates", "leave it out of columns"
                )

    def _sums(self, view: View) -> FourierSums:
        """The Fourier sums to fit: those of the release, or of its table."""
        held = holds_sums(view.released, self.columns)
        table = None if held else released_table(view.released, self.columns)
        if table is None:
            sums = fourier_sums(view.released, self.columns)
        else:
            sums = table_sums(view.released, table, self._asked)
        self._places = Places(view.schema, sums.columns)
        return sums

    def _told(self, decoded: Decoded, harm: float) -> None:
        """Store the diagnostics of the search, and warn where the result is unreliable."""
        self.goodness_of_fit_ = decoded.quality
        converged = decoded.converged or decoded.atoms.count != self._asked
        if decoded.useful or decoded.interrupted:
            self._settled(converged, decoded.interrupted, harm)
        else:
            _warn(
                f"{type(self).__name__}: poor fit: {decoded.unexplained:.0%} of the cluster structure is "
                f"unexplained (chi-squared {decoded.quality:.1f} per degree of freedom).",
                "try more clusters or freer covariances; or release with a larger epsilon or more frequencies",
                3,
            )
        self.converged_ = decoded.converged

    def _settled(self, converged: bool, interrupted: bool, harm: float) -> None:
        """Warn about an unreliable search. `harm` is the expected relative increase of squared distances from errors of
        the centres.
        """
        self.converged_ = converged and not interrupted
        name = type(self).__name__
        if interrupted:
            _warn(f"{name}: interrupted; this is the best fit so far.", "fit again for a better one")
        elif harm > MOST_HARM:
            _warn(
                f"{name}: noise has moved the centres, which raises squared distances to them by about {harm:.0%}.",
                "ask for fewer clusters, or release with a larger epsilon; dpsketch plan --task shows which",
            )
        elif not converged:
            _warn(f"{name}: no two searches agree on the best fit.", "try another random_state, or fewer clusters")

    @property
    def schema_(self) -> Schema:
        """The schema of the table that the release is of."""
        self._check_fitted()
        return self._places.schema

    def to_table(self) -> Table:
        """The clusters as a table of answers in the units of the columns: dates as dates, and columns with a transform
        as the value at the centre's logarithm or asinh. `to_table().to_pandas()` is a frame.
        """
        self._check_fitted()
        places, errors = self._places, self._errors_of_centres()
        found = places.units(self._centres), errors * places.unit_slopes(self._centres)
        answers = [
            [
                answer_in_units(float(value) * column.unit, float(error) * column.unit, column)
                for column, value, error in zip(map(places.schema.column, places.columns), *numbers, strict=True)
            ]
            for numbers in zip(*found, strict=True)
        ]
        rows = tuple((index, *self._weight(index), *each) for index, each in enumerate(answers))
        how = (f"{type(self).__name__}; ± is one standard error",)
        return Table(("cluster", "weight", *places.columns), rows, how)

    def _errors_of_centres(self) -> Floats:
        """Standard errors of `_centres`."""
        raise NotImplementedError

    def _weight(self, index: int) -> tuple[Any]:
        """The share of the records in a cluster, with its error where that is known."""
        raise NotImplementedError

    def plot(self, path: str | Path) -> None:
        """Plot centres over the density of the fit, in the two columns in which they differ most: SVG or PNG."""
        self._check_fitted()
        from dpsketch.learn.models.clusters.plot import clusters_drawing

        clusters_drawing(self._places, self._atoms, self._centres, self._sizes).save(path)

    def _saved(self, arrays: Arrays) -> Saved:
        """The part of `to_saved` that clusters and mixtures share."""
        self._check_fitted()
        given = self.get_params().items()
        parameters = {name: value.item() if isinstance(value, np.generic) else value for name, value in given}
        if self.columns is not None:
            parameters["columns"] = list(self.columns)
        facts = {
            "parameters": parameters,
            "schema": self._places.schema.to_dict(),
            "columns": list(self._places.columns),
            "converged": bool(self.converged_),
        }
        atoms = self._atoms
        shared: Arrays = {
            "goodness_of_fit": np.array([self.goodness_of_fit_]),
            "logits": atoms.logits,
            "centres": atoms.centres,
            "spreads": atoms.spreads,
            "log_scale": np.array([atoms.log_scale]),
        }
        return facts, shared | arrays

    @classmethod
    def _restored(cls, facts: Facts, arrays: Arrays) -> Self:
        model = cls(**facts["parameters"])
        whole(model.random_state)
        schema, columns = Schema.from_dict(facts["schema"]), facts["columns"]
        if not all(schema.column(name).numeric for name in columns):
            raise ValueError("columns")
        model._places = Places(schema, columns)
        centres = finite(arrays, "centres", -1, len(columns))
        count = len(centres)
        model._atoms = Atoms(
            finite(arrays, "logits", count),
            centres,
            finite(arrays, "spreads", count, -1),
            float(finite(arrays, "log_scale", 1)[0]),
        )
        if model._atoms.spreads.shape[1] not in _spread_widths(len(columns)):
            raise ValueError("spreads")
        model.converged_ = facts["converged"] is True
        model.goodness_of_fit_ = float(floats(arrays, "goodness_of_fit", 1)[0])
        return model

    def _located(self, X: Any) -> Floats:
        self._check_fitted()
        return self._places.of(X)


def _spread_widths(dimension: int) -> tuple[int, int, int]:
    """Number of spread parameters of atoms of each shape."""
    return 1, dimension, dimension * (dimension + 1) // 2


def _warn(fact: str, hint: str, frames: int = 4) -> None:
    """Issue a warning attributed to the caller of `fit`, this number of frames up."""
    warnings.warn(f"{fact}\nHint: {hint}", FitWarning, stacklevel=frames + 1)
