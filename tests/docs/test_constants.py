"""docs/constants.md lists every tuned constant and its origin; `python tests/docs/test_constants.py` writes it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from dpsketch.numerics.tuned import NOT_RECORDED, Tuned

ROOT = Path(__file__).parents[2]
PACKAGE, PAGE, DECISIONS = ROOT / "src" / "dpsketch", ROOT / "docs" / "constants.md", ROOT / "docs" / "decisions"
ROOMS = ("recipe", "denoise", "learn/estimators", "learn/models", "learn/population")

# Numbers of these rooms that were not chosen by looking at results, by module and name.
NOT_TUNED = {
    "limits of size, memory and time": """
        classifier._BLOCK column_fit.MANY_CELLS control_variate.MOST_COUNTERS
        control_variate._AT_ONCE cuts.MOST_CELLS draws.PIECES descent.WORK fit_cache.KEPT fitting.MOST_CLUSTERS
        fourier_kernel._CHUNK fourier_kernel.MOST_NORMALISED kmeans.MOST_RUNS
        general_task.MOST_FINE_CELLS groups.MOST_LABELS groups.MOST_SHOWN three_columns.MOST_TRIPLE_CELLS
        thresholds.ENDS grid_estimator.FEW_POINTS grid_estimator.POINTS grid_estimator.SIGNS grid_estimator.STEPS
        grid_estimator._BLOCK grid_population.REDRAWN_POINTS
        heap.CANDIDATES heap.HEAVIEST heap.MOST_SCANNED heap._BLOCK level_counters.ROUNDS
        heavy_cells.MOST_CELLS joint_estimator.BATCHES joint_estimator.COARSE joint_estimator.DRAWS
        kernel_sums._AT_ONCE one_column.MOST_KNOWN joint_estimator.REFIT_DRAWS level_counters._LOOKED_AT lloyd._BLOCK
        small_table.MOST_VALUES
        modes.MOST_MODES loss_search.MOST_PARAMETERS row_kernel.FIT_ROWS row_kernel.REFIT_ROWS row_kernel._DISTANCES
        row_kernel._TABULATED
        quadratic_fit.MOST_UNKNOWNS race_rejection.MOST_ROUNDS race_rejection.ROUND recipe.MOST_PARTS
        recipe._MOST_LETTERS release_noise._BLOCK sampling.MOST_ROWS sum_blocks.MOST_ENTRIES
        sum_blocks.MOST_FREQUENCIES sum_blocks.MOST_ROWS sum_blocks.MOST_SUMS sum_regression.MOST_REDRAWN
        block_moments.MOST_DENSE
        surrogate._BLOCK synthetic_task.MOST_WIDTH table.MOST_DRAWN task.MOST_TABLE_BINS weighted_rows.REFIT_ROWS
        latent_factors.COMPONENTS triples.LARGEST triples.MOST_KEPT
        weighted_rows.FEWEST_DRAWN weighted_rows.OVERDRAWN weighted_rows.ROWS weighted_rows._BLOCK_CELLS
        wrapped.MOST_ROWS
    """,
    "numerical safeguards: tolerances, floors against zero, steps and iterations of solvers": """
        plain_regression.LEAST_RIDGE
        class_tables._LEAST_SPREAD classifier._LEAST_LIKELIHOOD smooth_shares.GAIN smooth_shares.NEWTON_STEPS
        smooth_shares.SHORTEST
        control_variate._STEPS cuts.STEPS cuts.TINY cuts.UNKNOWN copula._FARTHEST copula._LEAST decoder.SPREAD
        denoised_pairs.COMMON_STEPS
        denoised_pairs.SMALLEST denoised_pairs.SMOOTH_STEPS descent.CHECK descent.LEAST draws.STEEPEST draws.TILT_STEPS
        descent.LOWEST
        joint_fit.SMALLEST_SHARE lloyd.STEPS modes._ROUNDS moment_matrix._ROUNDING quadratic_fit._LEAST_CONDITION
        quadratic_fit._ROUNDS quadratic_fit._STEPS ratio._HALVINGS reduction._LEAST refine.CLOSEST refine.RIDGE
        regression._INTERCEPT_STEPS regression._LEAST_PENALTY regression._MOST_STEPS
        corrected_coefficients._LEAST_SHARE corrected_coefficients._RIDGE search._RANGE
        corrected_coefficients.LEFT corrected_coefficients.SETTLED
        solver.DAMPING solver.LEAST_DAMPING
        solver.LEAST_VARIANCE solver.LOGIT_STEP solver.MOST_LOGIT solver.MOST_VARIANCE solver.SPREAD_STEP solver.STEPS
        latent_factors.BISECTIONS latent_factors.LEAST latent_factors.MOST_COMMON latent_factors.SMALLEST
        latent_factors.STEPS triples.CLOSE triples.SMALLEST triples.SWEEPS
        trends.LEAST unseen.LEAST weights.STAGES weights.STEPS
    """,
    "quantiles of known distributions": """
        tails.EMPTY tails.FAR tails.MORE_ALONE
    """,
    "seeds, units, markers, sizes of arrays, grids of plots": """
        against_reference._SHOWN small_table.JUMP
        bootstrap.SEED cell_points._ANY cell_points._GOLDEN clompr.POINT convolved._HIGH convolved._INNER convolved._LOW
        density_plot._STEPS descent.SEED fit_cache._DIGEST one_column.ATOMS joint_estimator.ERRORS
        one_column.PER_COLUMN level_counters.SPREAD level_counters._NORMAL_MEDIAN linear_moments._SEED
        losses._NO_DESCENT fourier_sums.FEWEST fourier_sums.LEVEL
        moment_matrix._SEED plot._LEAST_DEVIATION plot._STEPS product_mixture.SAMPLE_SEED solver.EDGE
        latent_factors.SEED spectrum._SEED fourier_sums.TURN surrogate._SEED triples._PAIRS
    """,
}


def modules(rooms: tuple[str, ...] = ("",)) -> Iterator[tuple[Path, ModuleType]]:
    for path in sorted({path for room in rooms for path in (PACKAGE / room).rglob("*.py")}):
        name = path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".")
        if path.name != "__init__.py" and ("numerics.tuned" in path.read_text() or rooms != ("",)):
            yield path, importlib.import_module(name)


def origins(module: ModuleType) -> dict[str, Tuned]:
    """The tuned constants of a module. Other annotations may name types that exist only for a type checker."""
    hints = {name: eval(hint, vars(module)) for name, hint in module.__annotations__.items() if "Annotated[" in hint}
    tuned = {name: [each for each in hint.__metadata__ if isinstance(each, Tuned)] for name, hint in hints.items()}
    return {name: each[0] for name, each in tuned.items() if each}


def constants_page() -> str:
    lines = [
        "# Tuned constants",
        "",
        "Numbers that were chosen by looking at results, with the tables and the command that they were chosen by.",
        "Accuracy measured on the same tables is not evidence for them. Generated from the annotations in the code",
        "([why](decisions/023-tuned-constants-carry-their-origin.md)).",
    ]
    tuned = [origin for _, module in modules() for origin in origins(module).values()]
    unknown = sum(origin.on == NOT_RECORDED for origin in tuned)
    lines += ["", f"The origin of {unknown} of these {len(tuned)} constants was not recorded."]
    for path, module in modules():
        if rows := origins(module):
            lines += ["", f"## {path.relative_to(PACKAGE).with_suffix('').as_posix()}"]
            lines += ["| constant | value | chosen on | by | decision |", "| --- | --- | --- | --- | --- |"]
            lines += [row(name, getattr(module, name), origin) for name, origin in rows.items()]
    return "\n".join(lines) + "\n"


def row(name: str, value: Any, origin: Tuned) -> str:
    by = f"`{origin.by}`" if origin.by.startswith("python") else origin.by
    return f"| `{name}` | {value} | {origin.on} | {by} | {decision_link(origin.decision)} |"


def decision_link(number: int | None) -> str:
    if number is None:
        return ""
    (page,) = DECISIONS.glob(f"{number:03}-*.md")
    return f"[{number:03}](decisions/{page.name})"


def is_number(value: Any) -> bool:
    if isinstance(value, dict):
        return is_number(tuple(value.values()))
    if isinstance(value, tuple):
        return bool(value) and all(is_number(each) for each in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def assigned(path: Path) -> Iterator[str]:
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name) and each.id.isupper())


def test_the_page_lists_every_tuned_constant() -> None:
    assert PAGE.read_text() == constants_page(), f"run: python {Path(__file__).relative_to(ROOT)}"


def test_every_number_of_an_estimator_has_an_origin_or_needs_none() -> None:
    numbers, tuned = set(), set()
    for path, module in modules(ROOMS):
        numbers |= {f"{path.stem}.{name}" for name in assigned(path) if is_number(getattr(module, name))}
        tuned |= {f"{path.stem}.{name}" for name in origins(module)}
    allowed = {name for names in NOT_TUNED.values() for name in names.split()}
    assert sorted(numbers - tuned - allowed) == [], "annotate with Tuned, or list in NOT_TUNED"
    assert sorted(allowed - (numbers - tuned)) == [], "listed in NOT_TUNED, but tuned or gone"


def test_an_origin_is_whole_or_missing() -> None:
    for _, module in modules():
        for name, origin in origins(module).items():
            assert (origin.on == NOT_RECORDED) == (origin.by == NOT_RECORDED), f"{module.__name__}.{name}"


if __name__ == "__main__":
    PAGE.write_text(constants_page())
