"""docs/papers.md names what exists: code, commands with their options, make targets and files.

Its links, named tests and dotted modules are checked in test_pages, as those of every page are.
"""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

import dpsketch as dps
from dpsketch.cli.app import app
from dpsketch.recipe.tasks.task_registry import ALIASES, TASKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
STATES = {"here", "in part", "replaced", "corrected", "missing", "outside"}
PAPERS = ["Moment to moment", "Density sketches", "Compressive learning", "RACE", "Private summarisation"]


def spans(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def exists(span: str) -> bool:
    """Whether the library has what a span of code names; False for one that is of no known kind."""
    if span.startswith("dpsketch "):
        return command_exists(span.split()[1:])
    if span.startswith("make "):
        return re.search(rf"^{re.escape(span[5:])}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if "/" in span and "(" not in span:
        return (ROOT / span.partition("::")[0]).exists()
    if span.startswith("dpsketch."):
        return pydoc.locate(span) is not None
    try:
        expression = ast.parse(span, mode="eval").body
    except SyntaxError:
        return False
    return not isinstance(expression, ast.Constant) and code_exists(expression)


def command_exists(words: list[str]) -> bool:
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if getattr(command, "commands", None):
        return False
    known = {option for parameter in command.params for option in parameter.opts}
    tasks = [word.partition(":")[0] for flag, word in pairwise(words) if flag in ("--for", "--task")]
    named = words[:1] if words and not words[0].startswith("-") else []
    return not named and {word for word in words if word.startswith("-")} <= known and set(tasks) <= {*TASKS, *ALIASES}


def code_exists(expression: ast.expr) -> bool:
    """Whether public names, their attributes and the arguments of their calls exist."""
    if isinstance(expression, ast.Constant):
        return True
    if isinstance(expression, ast.Tuple | ast.List):
        return all(map(code_exists, expression.elts))
    if isinstance(expression, ast.Dict):
        return all(map(code_exists, expression.values))
    if isinstance(expression, ast.UnaryOp):
        return code_exists(expression.operand)
    if isinstance(expression, ast.Name | ast.Attribute):
        return found(expression) is not None
    if not isinstance(expression, ast.Call) or (called := found(expression.func)) is None:
        return False
    keywords = {str(keyword.arg): keyword.value for keyword in expression.keywords}
    if not all(map(code_exists, [*expression.args, *keywords.values()])):
        return False
    try:
        inspect.signature(called).bind_partial(*expression.args, **keywords)
        if inspect.isclass(called):  # which refuses wrong values
            eval(ast.unparse(expression), {name: getattr(dps, name) for name in dps.__all__})
    except (TypeError, dps.DpsketchError):
        return False
    return True


def found(expression: ast.expr) -> Any:
    """What a public name, or an attribute of one, stands for; for an attribute of instances, its name."""
    if isinstance(expression, ast.Name):
        return dps if expression.id == "dps" else getattr(dps, expression.id) if expression.id in dps.__all__ else None
    if not isinstance(expression, ast.Attribute) or (owner := found(expression.value)) is None:
        return None
    if owner is dps:
        return getattr(dps, expression.attr) if expression.attr in dps.__all__ else None
    if hasattr(owner, expression.attr):
        return getattr(owner, expression.attr)
    if not inspect.isclass(owner):
        return None
    texts = [inspect.getsource(base) for base in owner.__mro__ if base.__module__.startswith("dpsketch")]
    fields = {name for base in owner.__mro__ for name in getattr(base, "__annotations__", {})}
    set_on_self = any(re.search(rf"self\.{expression.attr}\b[^()\n]*=[^=]", text) for text in texts)
    return expression.attr if set_on_self or expression.attr in fields else None


@pytest.mark.parametrize("span", sorted(spans(PAGE)))
def test_what_the_page_names_exists(span: str) -> None:
    assert exists(span)


@pytest.mark.parametrize(
    "span",
    [
        "dps.fit_everything",
        "dps.annotations",  # not public
        "KMeens",
        "KMeans(4, restarts=3)",
        "Histogram(edges=(0, 1))",
        "Fourier(kernel='gausian', width=0.1)",
        "Subsampled(Furier(size=9), size=3)",
        "Count(1)",
        "View.medians",
        "GridDensity.seized_",
        "KMeans.fit.nothing",
        "gaussian",
        "'gaussian'",
        "some words",
        "dpsketch",
        "dpsketch fit",
        "dpsketch summarise",
        "dpsketch fit forest",
        "dpsketch sample --hefty 3",
        "dpsketch plan --task summary:3",
        "dpsketch.learn.models.forest",
        "make papers-summary",
        "docs/paper.md",
        "tests/docs/test_paper.py::test_x",
    ],
)
def test_a_wrong_name_is_noticed(span: str) -> None:
    assert not exists(span)


def test_every_row_of_a_paper_has_a_state_and_a_reason() -> None:
    _, *sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    papers = {title: text for title, text in (section.split("\n", 1) for section in sections) if "| § |" in text}
    assert list(papers) == PAPERS
    for title, text in papers.items():
        rows = re.findall(r"^\| (?!§|---)(.*) \|$", text, flags=re.MULTILINE)
        assert len(rows) > 8, title
        for row in rows:
            section, subject, state, where = (cell.strip() for cell in row.split("|"))
            assert section, row
            assert subject, row
            assert state in STATES, row
            assert where, row
            assert state not in ("here", "corrected") or "`" in where, row


def test_what_is_missing_is_listed_at_the_top() -> None:
    """Each paper with a row that is missing or in part has a line above."""
    (short,) = re.findall(r"^## Still missing, in short\n(.*?)^## ", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^- \*\*", short, flags=re.MULTILINE)) == len(PAPERS)
