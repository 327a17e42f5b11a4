"""A simulated hospital, released and questioned, with the truth beside every answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table as RichTable

from dpsketch.engines.engine import accumulate
from dpsketch.errors import FileError
from dpsketch.files.outputs import written
from dpsketch.learn.answer import Answer, number_text
from dpsketch.learn.view import View, open_view
from dpsketch.ledger.ledger import Ledger
from dpsketch.plots.drawing import Drawing
from dpsketch.plots.picture import NAMES, Series
from dpsketch.privacy.budget import Budget
from dpsketch.recipe.recipe import Recipe
from dpsketch.schema.schema import Schema
from dpsketch.sketch.privacy_statement import statement_text
from dpsketch.sketch.release import release

ROWS = 100_000
SCHEMA = """# Public facts about the hospital's table, as its curator would write them down.
[about]
name = "hospital"

[privacy]
rows = 100000
unit = "row"

[columns.age]
kind = "integer"
lower = 0
upper = 110

[columns.sex]
kind = "category"
values = ["female", "male"]

[columns.ward]
kind = "category"
values = ["surgery", "cardiology", "maternity", "general"]

[columns.smoker]
kind = "boolean"

[columns.pressure]
kind = "number"
lower = 60
upper = 220

[columns.cost]
kind = "number"
lower = 100
upper = 200000
transform = "log"

[columns.admitted]
kind = "datetime"
lower = 2024-01-01
upper = 2025-01-01
"""


@dataclass(frozen=True)
class Question:
    """A question as SQL, and the function that computes its true answer from the simulated table."""

    sql: str
    truth: Callable[[dict[str, np.ndarray]], float]


def _share_above(column: str, threshold: float) -> Callable[[dict[str, np.ndarray]], float]:
    return lambda t: float((t[column] > threshold).sum())


QUESTIONS = (
    Question("select count(*) from sketch", lambda t: float(len(t["age"]))),
    Question("select avg(age) from sketch", lambda t: float(t["age"].mean())),
    Question("select median(cost) from sketch", lambda t: float(np.median(t["cost"]))),
    Question("select count(*) from sketch where pressure > 160", _share_above("pressure", 160)),
    Question("select avg(pressure) from sketch where age >= 65", lambda t: float(t["pressure"][t["age"] >= 65].mean())),
    Question(
        "select count(*) from sketch where smoker and sex = 'male'",
        lambda t: float((t["smoker"] & (t["sex"] == "male")).sum()),
    ),
)


def make_table(rows: int = ROWS, seed: int = 2024) -> dict[str, np.ndarray]:
    """Simulate patients whose blood pressure grows with age and smoking and whose costs depend on the ward."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male"], rows, p=[0.54, 0.46])
    ward = rng.choice(["surgery", "cardiology", "maternity", "general"], rows, p=[0.3, 0.2, 0.1, 0.4])
    ward = np.where((ward == "maternity") & (sex == "male"), "general", ward)
    age = np.where(ward == "maternity", rng.normal(31, 5, rows), rng.normal(58, 19, rows))
    age = np.clip(np.rint(age), 0, 110).astype(np.int64)
    smoker = rng.random(rows) < np.where(sex == "male", 0.27, 0.17)
    pressure = np.clip(98 + 0.55 * age + 9 * smoker + rng.normal(0, 13, rows), 60, 220)
    base = {"surgery": 9.0, "cardiology": 8.7, "maternity": 8.1, "general": 7.6}
    cost = np.exp(np.array([base[w] for w in ward]) + 0.006 * age + rng.normal(0, 0.6, rows))
    day = 365 * rng.beta(1.2, 1.0, rows)
    admitted = np.datetime64("2024-01-01") + (day * 86_400).astype("timedelta64[s]")
    return {
        "age": age,
        "sex": sex,
        "ward": ward,
        "smoker": smoker,
        "pressure": np.round(pressure, 3),
        "cost": np.round(np.clip(cost, 100, 200_000), 2),
        "admitted": admitted,
    }


def run_demo(folder: Path, console: Console) -> dict[str, Any]:
    """Simulate the table, release it, show the statement, ask, and plot. Returns the files and the answers."""
    schema_path, table_path = folder / "hospital.toml", folder / "hospital.parquet"
    sketch_path, plot_path, ledger_path = folder / "hospital.sketch", folder / "marginals.png", folder / "ledger.db"
    _check_folder(folder, schema_path, [table_path, sketch_path, plot_path, ledger_path])
    table = make_table()
    with written(schema_path, force=True) as file:
        file.write(SCHEMA.encode())
    with written(table_path, force=True) as file:
        pq.write_table(pa.table(table), file)
    ledger_path.unlink(missing_ok=True)
    console.print(f"1. A simulated hospital: {ROWS:,} patients, {len(table)} columns in {table_path}.")
    console.print(f"   Its curator declares public facts, such as bounds and wards, in {schema_path}.\n")

    schema, budget = Schema.load(schema_path), Budget(epsilon=1.0)
    recipe = Recipe.general(schema, budget=budget)
    raw = accumulate(table_path, schema, recipe)
    released = release(raw, budget, Ledger(ledger_path), "hospital")
    released.save(sketch_path, force=True)
    size = sketch_path.stat().st_size
    console.print(
        f"2. One pass, one release: {sketch_path}, {size:,} bytes. {ledger_path} recorded the spend of epsilon 1."
    )
    console.print("   What the curator signs for:\n")
    console.print("   " + statement_text(released.statement).replace("\n", "\n   ") + "\n", markup=False)

    view = open_view(sketch_path)
    console.print("3. Anyone may now query the file, as often as they like. Because this table is simulated, the true")
    console.print("   answers can be shown beside the private ones (± one standard error):\n")
    answers = _answers(view, table)
    console.print(_answers_table(answers))
    plot_marginals(view, table, plot_path)
    console.print(f"\n4. {plot_path} shows every column's noisy marginal with its error band, and the truth.\n")
    console.print("   Your own table:  dpsketch init TABLE > schema.toml   (fill in the blanks)")
    console.print(
        "                    dpsketch release TABLE --schema schema.toml --epsilon 1 "
        "--ledger ledger.db --create-ledger -o my.sketch"
    )
    console.print('                    dpsketch ask my.sketch "select avg(age) from sketch where smoker"')
    files = (schema_path, table_path, sketch_path, plot_path, ledger_path)
    return {"files": [str(path) for path in files], "answers": answers}


def _answers(view: View, table: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    answers = []
    for question in QUESTIONS:
        answer = view.sql(question.sql).rows[0][0]
        facts = {"value": float(answer.value), "stderr": float(answer.stderr), "truth": question.truth(table)}
        answers.append({"question": question.sql} | facts)
    return answers


def _answers_table(answers: list[dict[str, Any]]) -> RichTable:
    shown = RichTable("question", "answer", "truth", "error / stderr")
    for each in answers:
        value, stderr, truth = each["value"], each["stderr"], each["truth"]
        texts = str(Answer(value, stderr)), number_text(truth, stderr)
        shown.add_row(each["question"], *texts, f"{(value - truth) / stderr:+.1f}")
    return shown


def _check_folder(folder: Path, schema: Path, others: list[Path]) -> None:
    """Create the folder. Files of the same names are replaced only if an earlier demo wrote them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ours = schema.is_file() and schema.read_text(encoding="utf-8", errors="replace") == SCHEMA
        foreign = not ours and [path for path in (schema, *others) if os.path.lexists(path)]
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise FileError(f"{folder} cannot be used: {reason}", "name another folder") from None
    if foreign:
        raise FileError(
            f"{foreign[0]} was not written by the demo of this version",
            "name another folder: dpsketch demo FOLDER; files of an earlier version's demo can be deleted",
        )


def plot_marginals(view: View, table: dict[str, np.ndarray], path: Path) -> None:
    """Plot one panel a column: private counts with their 95 % intervals, and true counts."""
    panels = []
    for column in view.schema.scalars:
        (panel,) = view.plot(column.name).pictures
        (answer,) = panel.series
        numbers = table[column.name]
        if panel.x.scale == NAMES:
            texts = np.array([str(value).lower() for value in numbers.tolist()])
            exact = np.array([float((texts == name).sum()) for name in panel.x.names])
            places = np.arange(len(exact), dtype=np.float64)
        else:
            numbers = numbers.astype("datetime64[us]").astype(np.int64) if column.dates else numbers
            exact = np.histogram(numbers, answer.x)[0].astype(np.float64)
            scaled = column.scaled(answer.x)
            places = column.unscaled((scaled[:-1] + scaled[1:]) / 2)
        truth = Series.exact("points", places, exact, "truth (simulated data)")
        panels.append(replace(panel, series=(replace(answer, name="private answer, epsilon = 1"), truth)))
    Drawing(tuple(panels), across=3).save(path)
