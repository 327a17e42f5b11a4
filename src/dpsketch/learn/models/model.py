"""The base of all models of a release: parameters, checks, reading of X, and printing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpsketch.encoding.frames import named_columns
from dpsketch.errors import QueryError
from dpsketch.learn.points import Frame
from dpsketch.learn.saved import Arrays, Facts, Saved
from dpsketch.schema.columns import IdSet
from dpsketch.schema.schema import Schema

if TYPE_CHECKING:
    from dpsketch.learn.view import View

Labels = NDArray[Any]
Columns = dict[str, Any]


class Model:
    """A model with scikit-learn's conventions, except that `fit` takes the view of a release in place of rows.

    A subclass stores the arguments of `__init__` unchanged and checks them in `fit(view)`, which starts with
    `_check_view`, sets `statement_` and ends with `_set_features`. It has `scores`, `to_saved` and `from_saved`, and is
    listed or registered in `dpsketch.learn.saved`. `docs/models.md` describes the use of models inside scikit-learn.

    After `fit`: `feature_names_in_` and `n_features_in_` (the features that the model sees), `input_columns` (the
    columns that X must have) and `statement_`, the privacy statement of the release.
    """

    _estimator_type: ClassVar[str | None] = None  # scikit-learn's name of its kind: "classifier", "regressor", …
    statement_: dict[str, Any]
    feature_names_in_: Labels
    n_features_in_: int
    _schema: Schema
    _columns: tuple[str, ...]

    def fit(self, view: View) -> Self:
        raise NotImplementedError

    def scores(self, X: Any) -> Columns:
        """The model's output for each row of X, as columns of a table; `…_stderr` are standard errors."""
        raise NotImplementedError

    def to_saved(self) -> Saved:
        """Facts for JSON and arrays, from which `from_saved` restores the model. All of it follows from the release."""
        raise NotImplementedError

    @classmethod
    def from_saved(cls, facts: Facts, arrays: Arrays) -> Self:
        """The model that `to_saved` described; raises for anything that `to_saved` would not write."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor by name, as in scikit-learn."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **parameters: Any) -> Self:
        """Change arguments of the constructor, which take effect at the next `fit`."""
        known = _defaults(type(self))
        for name in parameters:
            if name not in known:
                raise QueryError(
                    f"{type(self).__name__} has no parameter '{name}'", f"its parameters are {', '.join(known)}"
                )
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that X must have; a matrix has them in this order."""
        self._check_fitted()
        return self._columns

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The columns that X is read from, with the sources of computed columns instead of the columns themselves."""
        return self._schema.stored_for([self._schema.column(name) for name in self.input_columns])

    @property
    def id_universe(self) -> int | None:
        """The number of ids, if X consists of sets of ids."""
        columns = [self._schema.column(name) for name in self.input_columns]
        return columns[0].universe if len(columns) == 1 and isinstance(columns[0], IdSet) else None

    def _set_features(self, schema: Schema, columns: Sequence[str], names: Sequence[str] | None = None) -> None:
        """Record the features. Call last in `fit` and `from_saved`: from here on the model is fitted.

        `names` are the features if they differ from the columns.
        """
        self._schema, self._columns = schema, tuple(columns)
        self.feature_names_in_ = np.array([*(columns if names is None else names)], object)
        self.n_features_in_ = len(self.feature_names_in_)

    def _frame(self, X: Any) -> Frame:
        """The columns of a user's table or matrix."""
        columns = self.input_columns
        return Frame.read(self._schema, columns, X)

    def _points(self, X: Any) -> Any:
        """X for hashed counters, which read a matrix of numbers faster than columns, and sets of ids as they are."""
        columns = [self._schema.column(name) for name in self.input_columns]
        if not isinstance(X, np.ndarray | list) or any(isinstance(column, IdSet) for column in columns):
            return X
        named = named_columns(self._columns, X)
        return np.asarray(X) if all(column.numeric for column in columns) else named

    def _check_view(self, view: Any) -> None:
        if not hasattr(view, "released"):
            raise QueryError(
                f"{type(self).__name__} is fitted to a release, got a {type(view).__name__} instead",
                "pass a view: fit(dps.open('a.sketch')). To evaluate a fitted model on rows of your own, wrap it: "
                "sklearn.frozen.FrozenEstimator(model)",
            )

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise QueryError(f"this {type(self).__name__} is not fitted", "call fit(view) first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "feature_names_in_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        kind = self._estimator_type
        return Tags(
            estimator_type=kind,
            target_tags=TargetTags(required=kind in ("classifier", "regressor")),
            classifier_tags=ClassifierTags() if kind == "classifier" else None,
            regressor_tags=RegressorTags() if kind == "regressor" else None,
        )

    def __repr__(self) -> str:
        changed = {n: getattr(self, n) for n, default in _defaults(type(self)).items() if _differs(self, n, default)}
        arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"<{type(self).__name__}({arguments}): {'fitted' if self.__sklearn_is_fitted__() else 'not fitted'}>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"


def _defaults(model: type) -> dict[str, Any]:
    """Arguments of the constructor and their defaults."""
    parameters = list(signature(model.__init__).parameters.values())[1:]  # type: ignore[misc]
    return {each.name: each.default for each in parameters}


def _differs(model: Model, name: str, default: Any) -> bool:
    value = getattr(model, name)
    return value is not default and not (type(value) is type(default) and value == default)
