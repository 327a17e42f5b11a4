"""`dpsketch plan --holders …`: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable

from dpsketch.cli.console import out, print_json, progress_bar, warnings_told
from dpsketch.privacy.budget import Budget
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.schema.schema import Schema

_WAYS = ("one curator", "secure sum", "local noise")


def print_holders_plan(
    consortium: Consortium,
    schema: Path,
    query: Sequence[str] | None,
    budgets: Sequence[Budget],
    rows: int | None,
    recipe: Path | None,
    simulations: int | None,
    seed: int,
    like: Path | None,
    as_json: bool,
) -> None:
    """Print the noise of every part and the predicted errors of answers, released in three ways."""
    with warnings_told(), progress_bar("simulating") as report:
        from dpsketch.learn.view import open_view
        from dpsketch.planning.holders import plan_holders
        from dpsketch.planning.usual_queries import usual_queries
        from dpsketch.recipe.recipe import Recipe

        facts = Schema.load(schema)
        chosen = None if recipe is None else Recipe.load(recipe)
        view = None if like is None else open_view(like)
        asked = query or usual_queries(facts)
        found = plan_holders(facts, asked, budgets, consortium, rows, chosen, simulations, seed, report, view)
    if as_json:
        print_json(found.to_dict())
        return
    out.print("Standard deviation of the noise of each part:")
    noise = RichTable("part", "epsilon", *_WAYS)
    for each in found.noises:
        deviations = (f"{sd:.4g}" for sd in (each.curator, each.secure, each.local))
        noise.add_row(each.part, f"{each.budget.epsilon:g}", *deviations)
    out.print(noise)
    out.print("Predicted error of answers:")
    errors = RichTable("query", "epsilon", "typical answer", *_WAYS)
    before = None
    for three in found.rows():
        label, epsilon = three[0].query, f"{three[0].budget.epsilon:g}"
        errors.add_row("" if label == before else label, epsilon, three[0].texts[0], *(each.texts[1] for each in three))
        before = label
    out.print(errors)
    group = consortium
    out.print(
        f"Secure sum: {group.holders} holders, of whom {group.least} must stay (threshold {group.threshold}) and "
        f"{group.colluders} may collude; the cost counts on {group.honest} shares of the noise. Under pure epsilon, "
        "sums of waves, columns and second moments get Laplace noise, since noise in the shape of a body cannot be "
        "shared out. With delta they get Gaussian noise, which can."
    )
    out.print(f"Local noise: {group.holders} releases with equal numbers of rows, merged.")
    out.print("Nothing was read or spent.")
