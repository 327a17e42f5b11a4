"""`dpsketch fit …`: models of a released sketch. Nothing here can spend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.console import HELP, AsJson, Force, err, listed, out, print_json, progress_bar, warnings_told
from dpsketch.cli.fit_density import anomaly, density, modes
from dpsketch.cli.fit_models import classifier, hashed_linear, linear, logistic
from dpsketch.cli.fitted import Columns, Format, Save, Seed, check, chosen_format, fit_and_keep, keep, print_rows

if TYPE_CHECKING:
    from dpsketch.learn.models.clusters.kmeans import KMeans
    from dpsketch.learn.models.clusters.mixture import GaussianMixture

fit_app = typer.Typer(
    help="Fit a model to a released sketch. Fitting costs no more privacy.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=HELP,
)

Sketch = Annotated[Path, typer.Argument(help="A release made with --clusters, or a general one.")]
Count = Annotated[int, typer.Option("--k", "-k", help="Number of clusters or components.")]
Plot = Annotated[Path | None, typer.Option(help="SVG or PNG file to write: centres over the fitted density.")]

for _verb, _short in (
    (density, "Fit a kernel density and print how it is estimated."),
    (anomaly, "Fit an anomaly scorer and print its threshold."),
    (modes, "Find modes of the density, densest first."),
    (classifier, "Fit a classifier by the density of each class."),
    (linear, "Fit a linear regression."),
    (logistic, "Fit a logistic regression."),
    (hashed_linear, "Fit a linear model to hashed counters, for comparison."),
):
    fit_app.command(_verb.__name__, short_help=_short)(_verb)


@fit_app.command(short_help="Fit k-means: cluster centres.")
def kmeans(
    sketch: Sketch,
    k: Count,
    method: Annotated[str, typer.Option(help="gaussian, or clompr (the paper's, for comparison).")] = "gaussian",
    n_init: Annotated[int, typer.Option("--n-init", help="Runs of clompr; the best is kept.", min=1)] = 10,
    columns: Columns = None,
    format_: Format = "table",
    as_json: AsJson = False,
    plot: Plot = None,
    save: Save = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit k-means: cluster centres in the table's units, largest cluster first, with standard errors."""
    from dpsketch.learn.models.clusters.kmeans import KMeans

    model = KMeans(k, method, seed, n_init, listed(columns))
    format_ = chosen_format(format_, as_json)
    _fit(model, sketch, plot, save, force)
    rows = []
    for index, share in enumerate(model.weights_.tolist()):
        rows.append({"cluster": index, "weight": share} | _located(model, index))
    _print_clusters(rows, model, format_)


@fit_app.command(short_help="Fit a Gaussian mixture.")
def gmm(
    sketch: Sketch,
    k: Count,
    covariance: Annotated[str, typer.Option(help="spherical, diag or full.")] = "spherical",
    columns: Columns = None,
    format_: Format = "table",
    as_json: AsJson = False,
    plot: Plot = None,
    save: Save = None,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Fit a Gaussian mixture: its components, largest first, with standard errors."""
    from dpsketch.learn.models.clusters.mixture import GaussianMixture

    model = GaussianMixture(k, covariance, seed, listed(columns))
    format_ = chosen_format(format_, as_json)
    _fit(model, sketch, plot, save, force)
    columns_ = [model.schema_.column(str(name)) for name in model.feature_names_in_]
    names = [f"{column.scale}({column.name})" if column.scale else column.name for column in columns_]
    rows = []
    for index, weight in enumerate(model.weights_.tolist()):
        row = {"component": index, "weight": weight, "weight_stderr": float(model.weights_stderr_[index])}
        rows.append(row | _located(model, index) | _variances(model.covariances_[index], names))
    _print_clusters(rows, model, format_)


@fit_app.command()
def pca(
    sketch: Annotated[
        Path, typer.Argument(help="A release with second moments, made with --for pca:K, or a general one.")
    ],
    k: Annotated[int, typer.Option("--k", "-k", help="Number of components.", min=1)],
    columns: Columns = None,
    of: Annotated[
        str,
        typer.Option(
            help="covariance: in the table's units; second_moments: uncentred, columns scaled by their bounds."
        ),
    ] = "covariance",
    format_: Format = "table",
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(help="SVG or PNG file to write: explained variance of each component.")
    ] = None,
    save: Save = None,
    force: Force = False,
) -> None:
    """Fit principal components, with standard errors."""
    from dpsketch.learn.models.pca import PCA

    model = PCA(k, listed(columns), of)
    format_ = chosen_format(format_, as_json)
    fit_and_keep(model, sketch, plot, save, force)
    if plot is not None:
        model.plot(plot)
        err.print(f"{plot}: share of variance of each component")
    print_rows(model.to_dicts(), {"how": model.how_, "converged": model.converged_}, format_)
    if format_ == "table":
        out.print(f"{model.how_}; ± is one standard error.")


@fit_app.command(short_help="Suggest the width of a Gaussian kernel for a second release.")
def width(sketch: Sketch, k: Count, columns: Columns = None, as_json: AsJson = False) -> None:
    """Print the width of Gaussian frequencies that resolves this number of clusters, for the recipe of a second release
    of the same table. The first release has cost privacy; its width costs no more.
    """
    from dpsketch.learn.view import open_view
    from dpsketch.learn.width import suggest_width

    with warnings_told():
        found = suggest_width(open_view(sketch), k, listed(columns))
    if as_json:
        print_json({"width": found})
        return
    out.print(f"{found:g}", highlight=False)
    err.print(f'In a recipe, a part of fourier takes it: kernel = "gaussian" and width = {found:g}', highlight=False)


def _located(model: KMeans | GaussianMixture, index: int) -> dict[str, Any]:
    """The coordinates of a centre in the units of the columns, each followed by its standard error."""
    _, _, *answers = model.to_table().rows[index]
    found: dict[str, Any] = {}
    for name, answer in zip(map(str, model.feature_names_in_), answers, strict=True):
        found |= {name: answer.value, f"{name}_stderr": answer.stderr}
    return found


def _variances(covariance: Any, names: list[str]) -> dict[str, float]:
    """Variances of the columns, after their transform, and, for full matrices, covariances of all pairs."""
    if covariance.ndim == 1:
        return {f"{name}_var": float(value) for name, value in zip(names, covariance, strict=True)}
    variances = {f"{name}_var": float(covariance[i, i]) for i, name in enumerate(names)}
    return variances | {
        f"{names[j]}_{names[i]}_cov": float(covariance[i, j]) for i in range(len(names)) for j in range(i)
    }


def _fit(model: KMeans | GaussianMixture, sketch: Path, plot: Path | None, save: Path | None, force: bool) -> None:
    from dpsketch.learn.view import open_view

    check(sketch, plot, save, force)
    with warnings_told(), progress_bar("fitting") as report:
        model.fit(open_view(sketch), report)
    keep(model, save, force)
    if plot is not None:
        model.plot(plot)
        err.print(f"{plot}: centres over the density of the fit")


def _print_clusters(rows: list[dict[str, Any]], model: KMeans | GaussianMixture, format_: str) -> None:
    fitted = model.goodness_of_fit_ == model.goodness_of_fit_  # nan if nothing was fitted to sums
    print_rows(
        rows, {"goodness_of_fit": model.goodness_of_fit_ if fitted else None, "converged": model.converged_}, format_
    )
    if format_ == "table":
        quality = f"Goodness of fit {model.goodness_of_fit_:.2f} (about 1 or less is good); " if fitted else ""
        out.print(f"{quality}± is one standard error.")
