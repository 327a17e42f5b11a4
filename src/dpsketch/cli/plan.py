"""`dpsketch audit` and `dpsketch plan`: privacy and accuracy of a release beforehand. Nothing is read or spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from dpsketch.cli.console import (
    AsJson,
    Delta,
    Epsilon,
    Force,
    Mechanism,
    RecipePath,
    Rho,
    Rows,
    check_picture,
    err,
    out,
    print_json,
    progress_bar,
    warnings_told,
)
from dpsketch.cli.recipe_choice import Important, check_important, important_groups
from dpsketch.errors import BudgetError, RecipeError
from dpsketch.privacy.budget import Budget

if TYPE_CHECKING:
    from dpsketch.planning.forecast import Forecast
    from dpsketch.planning.least_budget import LeastBudget
    from dpsketch.privacy.noise_shares import Consortium


Epsilons = Annotated[str | None, typer.Option(help="Comma-separated budgets to try. Default: 0.1,1,10.")]
Within = Annotated[
    float | None,
    typer.Option(
        help="Find the least epsilon at which every answer has at most this standard error, in its own units (days "
        "for dates)."
    ),
]
Queries = Annotated[
    list[str] | None,
    typer.Option(help="A select statement on the table `sketch`; repeatable. Default: a few common ones."),
]
Simulations = Annotated[
    int | None,
    typer.Option(
        help="Simulated tables. More give a more accurate forecast and take longer. Default: 1 to 5, by the columns "
        "that are asked about."
    ),
]
Like = Annotated[
    Path | None,
    typer.Option(
        help="An earlier release of this table or of a similar one: predict from rows drawn from it, which is much "
        "more accurate than from the schema alone."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the simulated tables and their noise.", min=0)]
PlannedTask = Annotated[
    str | None,
    typer.Option(
        help="Instead of queries, a task as in `release --for`, such as clusters:8, pca:3, density or synthetic: "
        "whether it can succeed, or its predicted error."
    ),
]
Count = Annotated[int | None, typer.Option("--k", help="For a task: number of clusters or components.")]
TaskColumns = Annotated[
    str | None, typer.Option(help="For a task: comma-separated columns; without a schema, their number.")
]
Plot = Annotated[
    Path | None,
    typer.Option(help="SVG or PNG file to write: relative error against epsilon; for a task, where it can succeed."),
]


Holders = Annotated[
    int | None,
    typer.Option(
        help="Compare one trusted curator, a secure sum of this number of holders, and local noise at each of them.",
        min=1,
    ),
]
Colluders = Annotated[
    int | None,
    typer.Option(help="With --holders: holders that may share what they see with the coordinator. Default: 1.", min=0),
]
Least = Annotated[
    int | None,
    typer.Option(help="With --holders: holders that must stay until the end. Default: the threshold.", min=1),
]


def audit(
    recipe: Annotated[Path, typer.Argument(help="TOML recipe to attack.")],
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    rho: Rho = None,
    mechanism: Mechanism = "auto",
    schema: Annotated[
        Path | None, typer.Option("--schema", help="TOML file with a table's public facts. Default: simulated columns.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option(help="Neighbouring relation of the simulated columns: add-remove or replace-one.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Releases to attack. More give a tighter bound.", min=1000)] = 20_000,
    as_json: AsJson = False,
) -> None:
    """Attack releases of a recipe on its worst neighbouring tables; no data is read, nothing is spent.

    Prints a lower bound on the privacy loss that the attack proves. Exits with 1 if it exceeds the claim.
    """
    from dpsketch.auditing import audit as attack
    from dpsketch.recipe.example_schema import example_schema
    from dpsketch.recipe.recipe import Recipe
    from dpsketch.schema.relation import Relation
    from dpsketch.schema.schema import Schema

    chosen = Recipe.load(recipe)
    if schema is not None and relation is not None:
        raise RecipeError("a schema says its relation itself", "leave out --relation")
    if relation is not None and relation not in list(Relation):
        raise RecipeError(
            f"--relation must be add-remove or replace-one, got '{relation}' instead",
            "add-remove hides that a record is there at all",
        )
    facts = Schema.load(schema) if schema else example_schema(chosen, Relation(relation or Relation.ADD_REMOVE))
    result = attack(chosen, facts, Budget(epsilon, delta, rho), draws, mechanism)
    if as_json:
        print_json(result.to_dict())
    else:
        out.print(str(result))
    if result.violated:
        raise typer.Exit(1)


def plan(
    schema: Annotated[Path | None, typer.Option("--schema", help="TOML file with the table's public facts.")] = None,
    epsilon: Epsilons = None,
    within: Within = None,
    delta: Delta = 0.0,
    query: Queries = None,
    recipe: RecipePath = None,
    rows: Rows = None,
    important: Important = None,
    simulations: Simulations = None,
    seed: Seed = 0,
    like: Like = None,
    task: PlannedTask = None,
    k: Count = None,
    columns: TaskColumns = None,
    holders: Holders = None,
    colluders: Colluders = None,
    least: Least = None,
    plot: Plot = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Predict the errors of answers from releases of simulated tables, or whether a task can succeed. No data is read,
    nothing is spent.
    """
    group = _consortium(holders, colluders, least, (within, task, k, columns, plot, important))
    if plot is not None:
        check_picture(plot, force, schema, recipe)
    if within is not None and (epsilon is not None or task is not None or plot is not None):
        raise BudgetError("--within finds epsilon for queries itself", "leave out --epsilon, --task and --plot")
    budgets = [Budget(number, delta) for number in _numbers(epsilon or "0.1,1,10")]
    if task is not None:
        from dpsketch.cli.plan_task import print_task_plan

        _check_task((query or None, recipe, like, important))
        print_task_plan(task, k, schema, columns, rows, budgets, plot, as_json)
        return
    if k is not None or columns is not None:
        raise RecipeError("--k and --columns are for a task", "pass --task clusters:8, pca:3, density or synthetic")
    if schema is None:
        raise RecipeError("a plan of answers needs --schema", "dpsketch init TABLE > schema.toml writes a template")
    if group is not None:
        from dpsketch.cli.plan_holders import print_holders_plan

        print_holders_plan(group, schema, query, budgets, rows, recipe, simulations, seed, like, as_json)
        return
    check_important(important, recipe is None)
    if within is not None:
        if not query:
            raise RecipeError("an accuracy is wanted for a query", 'pass --query "select avg(age) from sketch"')
        _print_least(_least(schema, query, within, delta, rows, recipe, simulations, seed, like, important), as_json)
        return
    forecast = _forecast(schema, query, budgets, rows, recipe, simulations, seed, like, important)
    if plot is not None:
        forecast.plot(plot)
        err.print(f"{plot}: relative error against epsilon")
    if as_json:
        print_json(forecast.to_dicts())
    else:
        _print_forecast(forecast)


def _check_task(others: Sequence[object]) -> None:
    if any(option is not None for option in others):
        raise RecipeError(
            "a task brings its own recipe and has no queries", "leave out --recipe, --query, --like and --important"
        )


def _consortium(
    holders: int | None, colluders: int | None, least: int | None, others: Sequence[object]
) -> Consortium | None:
    """The consortium that --holders asks about, if it does. `others` are options that do not go with it."""
    if holders is None:
        if colluders is not None or least is not None:
            raise BudgetError("--colluders and --least are numbers of a consortium", "pass --holders 5 as well")
        return None
    if any(option is not None for option in others):
        raise BudgetError(
            "--holders compares ways to release queries' answers",
            "leave out --within, --task, --k, --columns, --plot and --important",
        )
    from dpsketch.privacy.noise_shares import Consortium

    return Consortium.of(holders, 1 if colluders is None else colluders, least)


def _forecast(
    schema: Path,
    query: list[str] | None,
    budgets: list[Budget],
    rows: int | None,
    recipe: Path | None,
    simulations: int | None,
    seed: int,
    like: Path | None,
    important: str | None,
) -> Forecast:
    with warnings_told(), progress_bar("simulating") as report:
        from dpsketch.learn.view import open_view
        from dpsketch.planning.forecast import plan as predicted
        from dpsketch.planning.usual_queries import usual_queries
        from dpsketch.recipe.recipe import Recipe
        from dpsketch.schema.schema import Schema

        facts = Schema.load(schema)
        chosen = None if recipe is None else Recipe.load(recipe)
        view = None if like is None else open_view(like)
        asked, groups = query or usual_queries(facts), important_groups(important)
        return predicted(facts, asked, budgets, rows, chosen, simulations, seed, report, view, groups)


def _least(
    schema: Path,
    query: list[str],
    within: float,
    delta: float,
    rows: int | None,
    recipe: Path | None,
    simulations: int | None,
    seed: int,
    like: Path | None,
    important: str | None,
) -> LeastBudget:
    with warnings_told(), progress_bar("simulating") as report:
        from dpsketch.learn.view import open_view
        from dpsketch.planning.least_budget import least_budget
        from dpsketch.recipe.recipe import Recipe
        from dpsketch.schema.schema import Schema

        chosen = None if recipe is None else Recipe.load(recipe)
        view, groups = None if like is None else open_view(like), important_groups(important)
        return least_budget(
            Schema.load(schema), query, within, delta, rows, chosen, simulations, seed, report, view, groups
        )


def _print_least(found: LeastBudget, as_json: bool) -> None:
    """Print the least epsilon, or that none is enough, which is an exit code of 1."""
    if as_json:
        epsilon = None if found.budget is None else found.budget.epsilon
        print_json({"within": found.within, "epsilon": epsilon, "predictions": found.forecast.to_dicts()})
    else:
        _print_forecast(found.forecast, compared=False)
        tried = found.forecast.predictions[0].budget
        worst = f"{found.worst:.3g}" if math.isfinite(found.worst) else "unknown"
        if found.budget is None:
            out.print(
                f"Not reached: no epsilon up to {tried.epsilon:g} has a predicted error of at most {found.within:g}; "
                f"at {tried.epsilon:g} the largest is {worst}. Ask about more records, declare tighter bounds, or "
                "choose a recipe for this question."
            )
        else:
            out.print(
                f"Least budget: {found.budget}, with a predicted error of {worst} where at most {found.within:g} is "
                "wanted. Real tables differ from simulated ones: an earlier release (--like) predicts better, and the "
                "± of the answer itself decides."
            )
    if found.budget is None:
        raise typer.Exit(1)


def _print_forecast(forecast: Forecast, compared: bool = True) -> None:
    """Print predictions and, where several budgets are compared, from which on an answer is good."""
    out.print(_plan_table(forecast))
    for label, budget in forecast.enough().items() if compared else ():
        if any(math.isfinite(each.relative) for each in forecast.answers()[label]):
            least = "with none of these budgets" if budget is None else f"from {budget} on"
            out.print(f"Below 10 % of a typical answer {least}: {label}")
    one = forecast.simulations == 1
    tables = "1 simulated table that obeys" if one else f"{forecast.simulations} simulated tables that obey"
    if forecast.drawn:
        tables = "rows drawn from the earlier release, with the bounds and labels of"
    out.print(f"Predicted from {tables} the schema: the middle and the range of their standard errors.")
    if any(each.without_hint is not None for each in forecast.predictions):
        out.print("Important columns have less noise than without the hint, other pairs more; --json has the ranges.")
    out.print("Nothing was read or spent.")


def _plan_table(plan: Forecast) -> RichTable:
    """A table with one line for each answer and budget. The query is printed in its first line only. Where a hint at
    important columns has an effect, the error without them takes the place of the range.
    """
    hinted = any(each.without_hint is not None for each in plan.predictions)
    shown = RichTable("query")
    beside = "without hint" if hinted else "from – to"
    for name in ("epsilon", "typical answer", "predicted error", beside, "relative"):
        shown.add_column(name, justify="right", no_wrap=True)
    for label, predictions in plan.answers().items():
        for index, each in enumerate(predictions):
            relative = f"{100 * each.relative:.2g} %" if math.isfinite(each.relative) else "-"
            name = "" if index else label
            shown.add_row(
                name,
                f"{each.budget.epsilon:g}",
                *each.texts,
                each.text_without_hint if hinted else each.range_text,
                relative,
                end_section=each is predictions[-1],
            )
    return shown


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise BudgetError(
            f"--epsilon must be numbers with commas between them, got '{text}' instead", "write --epsilon 0.1,1,10"
        ) from None
