"""`dpsketch fit classifier`, `linear`, `logistic` and `hashed_linear`: models that predict a column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.console import AsJson, Force, listed, out
from dpsketch.cli.fitted import Columns, Format, Save, chosen_format, fit_and_keep, print_rows
from dpsketch.errors import QueryError

if TYPE_CHECKING:
    from dpsketch.learn.models.regression import LinearRegression, LogisticRegression

Reference = Annotated[
    list[str] | None,
    typer.Option(
        help="Print coefficients of labels minus that of a reference: `common`, the most common label of each column, "
        "or COLUMN=LABEL, once for each column."
    ),
]
Target = Annotated[str, typer.Option(help="The column to predict.")]


def classifier(
    sketch: Annotated[Path, typer.Argument(help="A release made with --for classify:TARGET, or a general one.")],
    target: Target,
    prior: Annotated[str, typer.Option(help="map: classes weighted by their records; ml: equal weights.")] = "map",
    method: Annotated[str, typer.Option(help="log-odds, or likelihood (the paper's, for comparison).")] = "log-odds",
    format_: Format = "table",
    as_json: AsJson = False,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit a classifier from one sketch for each class, or from rows of the joint distribution; print the classes and
    their shares.
    """
    from dpsketch.learn.models.classifier import DensityClassifier

    format_ = chosen_format(format_, as_json)
    model = DensityClassifier(target, prior, method)
    fit_and_keep(model, sketch, None, save, force)
    counts = model.class_count_
    weights = counts if prior == "map" else counts**0
    each = zip(model.classes_, counts, model.class_count_stderr_, weights / weights.sum(), strict=True)
    rows = [
        {"class": str(label), "records": float(count), "records_stderr": float(error), "prior": float(share)}
        for label, count, error, share in each
    ]
    names = [str(name) for name in model.feature_names_in_]
    print_rows(rows, {"columns": names, "how": model.how_, "slope": model.slope_}, format_)
    if format_ == "table":
        out.print(f"{model.how_}, by {', '.join(names)}; ± is one standard error.")
        out.print("Probabilities are not calibrated: rely on their order.")


def linear(
    sketch: Annotated[Path, typer.Argument(help="A release made with --for linear:TARGET, or a general one.")],
    target: Target,
    columns: Columns = None,
    penalty: Annotated[float | None, typer.Option(help="L2 penalty. Default: chosen from the noise level.")] = None,
    reference: Reference = None,
    format_: Format = "table",
    as_json: AsJson = False,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit a linear regression: coefficients in the table's units, with standard errors."""
    from dpsketch.learn.models.regression import LinearRegression

    format_ = chosen_format(format_, as_json)
    named = _named(reference)
    model = LinearRegression(target, listed(columns), penalty)
    fit_and_keep(model, sketch, None, save, force)
    rows, facts = _coefficients(model, named)
    print_rows(rows, {"how": model.how_} | facts, format_)
    if format_ == "table":
        out.print(f"{target} by {model.how_}; ± is one standard error.")
        _print_reference(facts)


def logistic(
    sketch: Annotated[
        Path, typer.Argument(help="A general release, or another that synthetic rows can be drawn from.")
    ],
    target: Target,
    columns: Columns = None,
    penalty: Annotated[float | None, typer.Option(help="L2 penalty. Default: chosen from the noise level.")] = None,
    reference: Reference = None,
    format_: Format = "table",
    as_json: AsJson = False,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit a logistic regression of a binary category, boolean or integer: log odds, with standard errors."""
    from dpsketch.learn.models.regression import LogisticRegression

    format_ = chosen_format(format_, as_json)
    named = _named(reference)
    model = LogisticRegression(target, listed(columns), penalty)
    fit_and_keep(model, sketch, None, save, force)
    classes = [str(label) for label in model.classes_]
    rows, facts = _coefficients(model, named)
    shown = classes[1:] if len(classes) == 2 else classes
    per_class = len(rows) // len(shown)
    rows = [{"class": shown[index // per_class]} | row for index, row in enumerate(rows)]
    print_rows(rows, {"classes": classes} | facts, format_)
    if format_ == "table":
        two = f" = {classes[1]} rather than {classes[0]}"
        out.print(f"Log odds of {target}{two if len(classes) == 2 else ', up to a term'}; ± is one standard error.")
        _print_reference(facts)


def _named(reference: list[str] | None) -> dict[str, str] | None:
    """Columns and their reference labels; empty for the most common ones, None without the option."""
    if reference is None:
        return None
    pairs = [text.partition("=") for text in reference if text != "common"]
    for column, between, _ in pairs:
        if not between:
            raise QueryError(
                f"--reference must be common or COLUMN=LABEL, got '{column}' instead", "write --reference ward=surgery"
            )
    return {column.strip(): label.strip() for column, _, label in pairs}


def _coefficients(
    model: LinearRegression | LogisticRegression, named: dict[str, str] | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each intercept and coefficient, and what they are against."""
    import numpy as np

    facts: dict[str, Any] = {}
    if named is None:
        count = np.size(model.intercept_)
        names = ("intercept", *map(str, model.feature_names_in_)) * count
        parts = (model.intercept_, model.coef_), (model.intercept_stderr_, model.coef_stderr_)
        values, errors = (np.hstack([np.reshape(each, (count, -1)) for each in part]).ravel() for part in parts)
    else:
        found = model.against(named)
        names, facts = found.coefficients.labels or (), {"reference": found.reference}
        values, errors = found.coefficients.raw, found.coefficients.stderr
    each = zip(names, values.tolist(), errors.tolist(), strict=True)
    return [{"feature": name, "coefficient": value, "coefficient_stderr": error} for name, value, error in each], facts


def _print_reference(facts: dict[str, Any]) -> None:
    if "reference" in facts:
        labels = ", ".join(f"{column}={label}" for column, label in facts["reference"].items())
        out.print(f"Coefficients of labels are against {labels}." if labels else "There are no columns of labels.")


def hashed_linear(
    sketch: Annotated[Path, typer.Argument(help="A release made with --for hashed_linear:TARGET.")],
    target: Target,
    format_: Format = "table",
    as_json: AsJson = False,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit a linear model to hashed counters, as in the RACE paper: of a number, or the score of one of two classes.

    For comparison: `dpsketch fit linear`, `logistic` and `classifier` are more accurate. Standard errors are unknown.
    """
    from dpsketch.learn.models.hashed_linear import HashedLinear
    from dpsketch.learn.sql.literals import find_column
    from dpsketch.learn.view import open_view

    format_ = chosen_format(format_, as_json)
    column = find_column(open_view(sketch).schema, target)
    model = HashedLinear(target, "squared" if column.numeric else "hinge")
    fit_and_keep(model, sketch, None, save, force)
    names = ["intercept", *(str(name) for name in model.feature_names_in_)]
    values = [float(model.intercept_), *model.coef_.tolist()]
    rows = [{"feature": name, "coefficient": value} for name, value in zip(names, values, strict=True)]
    classes = [str(label) for label in model.classes_] if model.loss == "hinge" else []
    print_rows(rows, {"loss": model.loss} | ({"classes": classes} if classes else {}), format_)
    if format_ == "table":
        what = f"A score that is positive for {target} = {classes[1]}" if classes else target
        out.print(f"{what} by hashed counters; errors of the coefficients are unknown.")
