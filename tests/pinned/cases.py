"""What must not move when code does: sizes, shares, noises, sums and answers. Run as a script, it records them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsketch as dps

FOLDER = Path(__file__).parent
ROWS = (1_000, 100_000, 10_000_000)
BUDGETS = {
    "0.1": dps.Budget(0.1),
    "1": dps.Budget(1.0),
    "10": dps.Budget(10.0),
    "1,1e-6": dps.Budget(1.0, 1e-6),
    "rho 0.1": dps.Budget(rho=0.1),
}
MIXED = {
    "age": {"kind": "integer", "lower": 0, "upper": 120},
    "height": {"kind": "number", "lower": 1.0, "upper": 2.5},
    "income": {"kind": "number", "lower": 0, "upper": 500000, "transform": "asinh"},
    "sex": {"kind": "category", "values": ["Female", "Male"]},
    "member": {"kind": "boolean"},
    "joined": {"kind": "datetime", "lower": "2020-01-01", "upper": "2025-01-01"},
}
NUMBER = {"kind": "number", "lower": -1.0, "upper": 1.0}
SCHEMAS = {
    "mixed": MIXED,
    "two": {name: NUMBER for name in "xy"},
    "ten": {f"x{i}": NUMBER for i in range(10)},
    "forty": {f"x{i}": NUMBER if i % 3 else {"kind": "boolean"} for i in range(40)},
}
TASKS: dict[str, Callable[..., dps.Recipe]] = {
    "general": dps.Recipe.general,
    "clusters": lambda schema, **known: dps.Recipe.clusters(schema, n_clusters=5, **known),
    "pca": lambda schema, **known: dps.Recipe.pca(schema, n_components=2, **known),
    "density": dps.Recipe.density,
    "anomaly": dps.Recipe.anomaly,
    "synthetic": dps.Recipe.synthetic,
    "linear": lambda schema, **known: dps.Recipe.linear(schema, target=schema.columns[1].name, **known),
    "classify": lambda schema, **known: dps.Recipe.classify(
        schema, target=next(column.name for column in schema.columns if column.kind in ("category", "boolean")), **known
    ),
}


def schema_of(name: str, rows: int = 1000, **privacy: Any) -> dps.Schema:
    return dps.Schema.from_dict({"privacy": {"rows": rows, **privacy}, "columns": SCHEMAS[name]})


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def planned_releases() -> Iterator[tuple[str, Any]]:
    """For every task, schema, number of rows and budget: its recipe, and the noise that each part would get."""
    from dpsketch.sketch.release import planned

    for schema_name in SCHEMAS:
        for task, recipe_of in TASKS.items():
            if task == "classify" and schema_name in ("two", "ten"):
                continue
            for rows in ROWS:
                for budget_name, budget in BUDGETS.items():
                    schema = schema_of(schema_name, rows)
                    recipe = recipe_of(schema, rows=rows, budget=budget)
                    event = planned(schema, recipe, budget)
                    assert event is not None
                    noises = [[noise.mechanism.value, noise.sensitivity, str(noise.scale)] for noise in event.noises]
                    maps = [part["map"] for part in recipe.to_dict()["parts"]]
                    found = [maps, digest(recipe.to_dict()), digest(noises)]
                    yield f"{schema_name} / {task} / {rows} / {budget_name}", found


def relations() -> Iterator[tuple[str, Any]]:
    """Noises of one recipe for units and for the other relation."""
    from dpsketch.sketch.release import planned

    for privacy in ({"relation": "replace-one"}, {"unit": "id", "max_rows_per_unit": 3}):
        for budget_name, budget in BUDGETS.items():
            schema = schema_of("mixed", 100_000, **privacy)
            event = planned(schema, dps.Recipe.general(schema, rows=100_000, budget=budget), budget)
            assert event is not None
            yield f"{privacy} / {budget_name}", digest([[n.sensitivity, str(n.scale)] for n in event.noises])


def table(name: str, rows: int = 3000) -> pa.Table:
    """Rows of a pinned schema; columns depend on each other."""
    rng = np.random.default_rng(7)
    if name != "mixed":
        hidden = rng.normal(0, 0.5, (rows, 3))
        columns = {}
        for place, (column, facts) in enumerate(SCHEMAS[name].items()):
            values = 0.6 * hidden[:, place % 3] + rng.normal(0, 0.2, rows)
            columns[column] = values > 0 if facts["kind"] == "boolean" else values
        return pa.table(columns)
    age = rng.integers(-5, 130, rows).astype(float)
    age[rng.random(rows) < 0.1] = np.nan
    return pa.table(
        {
            "age": age,
            "height": rng.normal(1.7, 0.2, rows) + np.nan_to_num(age) / 1000,
            "income": rng.exponential(30_000, rows),
            "sex": rng.choice(["Female", "Male", "unknown"], rows),
            "member": rng.random(rows) < 0.3,
            "joined": np.datetime64("2019-06-01") + rng.integers(0, 2400, rows).astype("timedelta64[D]"),
        }
    )


def raw_sums() -> Iterator[tuple[str, Any]]:
    """The exact sums of every task on one table, byte for byte."""
    for schema_name in ("mixed", "two"):
        for task, recipe_of in TASKS.items():
            if task == "classify" and schema_name == "two":
                continue
            schema = schema_of(schema_name, 3000)
            raw = dps.accumulate(table(schema_name), schema, recipe_of(schema, rows=3000, budget=dps.Budget(1.0)))
            sums = [hashlib.sha256(part.sums.tobytes()).hexdigest()[:16] for part in raw.parts]
            yield f"{schema_name} / {task}", sums


QUESTIONS = (
    "select count(*), avg(age), stddev_pop(age), median(income), avg(height) from sketch",
    "select count(*), avg(income) from sketch where age > 40 and sex = 'Female'",
    "select sex, count(*), avg(height) from sketch group by sex",
    "select corr(age, height), covar_pop(age, height) from sketch",
    "select count(*) from sketch where joined >= '2022-01-01' and member",
    "select quantile_cont(age, 0.9) from sketch where member or age < 30",
)


def released(name: str, task: str, budget: dps.Budget) -> dps.View:
    """Opened from a file that was written once: see `record`."""
    return dps.open(FOLDER / f"{name}-{task}-{'delta' if budget.delta else 'pure'}.sketch")


RELEASES = [
    ("mixed", "general", dps.Budget(1.0)),
    ("mixed", "general", dps.Budget(1.0, 1e-6)),
    ("two", "clusters", dps.Budget(1.0)),
    ("ten", "clusters", dps.Budget(2.0)),
    ("ten", "pca", dps.Budget(1.0)),
    ("ten", "linear", dps.Budget(1.0, 1e-6)),
    ("two", "density", dps.Budget(1.0)),
    ("two", "synthetic", dps.Budget(1.0)),
    ("mixed", "classify", dps.Budget(4.0)),
]


BY_REFITS = " (by refits)"


def answers() -> Iterator[tuple[str, list[float]]]:
    """Values and standard errors of questions and models on files that do not change. What depends on refits is named
    so: where their smoothing is chosen by a hair, processors that round differently choose differently.
    """
    for _, _, budget in RELEASES[:2]:
        view = released("mixed", "general", budget)
        for question in QUESTIONS:
            rows = view.sql(question).to_dicts()
            cells = [(name, float(cell)) for row in rows for name, cell in row.items() if _number(cell)]
            yield f"{budget} / {question}", [cell for name, cell in cells if not name.endswith("_stderr")]
            yield f"{budget} / {question}{BY_REFITS}", [cell for name, cell in cells if name.endswith("_stderr")]
        marginal = view.histogram("height", 8)
        yield f"{budget} / histogram", [*map(float, marginal.value)]
        yield f"{budget} / histogram{BY_REFITS}", [*map(float, marginal.stderr)]
        sample = view.sample(200, 3)
        yield f"{budget} / sample", [float(np.nanmean(sample["height"].to_numpy(zero_copy_only=False)))]
        linear = dps.LinearRegression("height", ["age", "member"]).fit(view)
        yield f"{budget} / linear{BY_REFITS}", [*map(float, linear.coef_), *map(float, linear.coef_stderr_)]
        logistic = dps.LogisticRegression("member", ["age", "height"]).fit(view)
        yield f"{budget} / logistic{BY_REFITS}", [*map(float, np.ravel(logistic.coef_))]
    two, ten = released("two", "clusters", dps.Budget(1.0)), released("ten", "clusters", dps.Budget(2.0))
    yield "k-means of two", _centres(dps.KMeans(n_clusters=3).fit(two).cluster_centers_)
    yield "k-means of ten", _centres(dps.KMeans(n_clusters=3).fit(ten).cluster_centers_)
    pca = dps.PCA(n_components=2).fit(released("ten", "pca", dps.Budget(1.0)))
    yield "pca", [*map(float, pca.explained_variance_), *map(float, np.abs(pca.components_).ravel())]
    least = dps.LinearRegression("x1").fit(released("ten", "linear", dps.Budget(1.0, 1e-6)))
    yield "least squares", [*map(float, least.coef_), *map(float, least.coef_stderr_)]
    density = dps.KernelDensity().fit(released("two", "density", dps.Budget(1.0)))
    points = pa.table({"x": [0.0, 0.5], "y": [0.0, -0.5]})
    yield "density", [*map(float, density.density(points).value), *map(float, density.density(points).stderr)]
    classifier = dps.DensityClassifier("sex").fit(released("mixed", "classify", dps.Budget(4.0)))
    yield "classifier", [*map(float, np.ravel(classifier.predict_proba(table("mixed", 5))))]
    drawn = released("two", "synthetic", dps.Budget(1.0)).sample(300, 1)
    yield "synthetic", [float(np.nanmean(drawn[name].to_numpy(zero_copy_only=False))) for name in "xy"]


def _centres(centres: Any) -> list[float]:
    return [float(x) for row in sorted(np.asarray(centres).tolist()) for x in row]


def _number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


PINNED: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "releases": planned_releases,
    "relations": relations,
    "sums": raw_sums,
    "answers": answers,
}


def known(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text()))


def record() -> None:
    """Write everything anew. Only for an intended change, which a page in docs/decisions explains."""
    from conftest import seeded_noise

    with seeded_noise():
        for name, task, budget in RELEASES:
            path = FOLDER / f"{name}-{task}-{'delta' if budget.delta else 'pure'}.sketch"
            if not path.exists():  # files of an older version stay: they must be readable
                schema = schema_of(name, 3000)
                raw = dps.accumulate(table(name), schema, TASKS[task](schema, rows=3000, budget=budget))
                dps.release(raw, budget, ledger=dps.Ledger("sqlite://"), dataset=name).save(path)
    for name, cases in PINNED.items():
        lines = [f"{json.dumps(case)}: {json.dumps(value)}" for case, value in cases()]
        (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(FOLDER.parent))
    record()
