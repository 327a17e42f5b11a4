"""All tasks by name, with what help texts and tables need, but without importing the tasks themselves."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from dpsketch.errors import RecipeError

if TYPE_CHECKING:
    from dpsketch.recipe.tasks.task import Task


@dataclass(frozen=True)
class Entry:
    """A task's name, the purpose of a release for it, and what follows the colon in `--for NAME:ARGUMENT`.

    The task lives in `recipe/tasks/NAME_task.py` as `TASK`, unless `task` is the object itself.
    """

    name: str
    purpose: str
    argument: str | None = None  # as printed in the help: TARGET, K, BANDWIDTH
    optional: bool = False  # whether the argument may be omitted
    page: str = "recipes.md"  # its page in docs/
    task: Task | None = None

    @property
    def usage(self) -> str:
        if self.argument is None:
            return self.name
        return f"{self.name}[:{self.argument}]" if self.optional else f"{self.name}:{self.argument}"

    def load(self) -> Task:
        if self.task is not None:
            return self.task
        task: Task = import_module(f"dpsketch.recipe.tasks.{self.name}_task").TASK
        return task


TASKS = {
    entry.name: entry
    for entry in (
        Entry("general", "most questions"),
        Entry("clusters", "k-means and Gaussian mixtures", "K", page="clusters.md"),
        Entry("pca", "principal components", "K", page="models.md"),
        Entry(
            "density", "kernel densities and modes, bandwidth in widths of the bounds", "BANDWIDTH", True,
            page="densities.md",
        ),
        Entry("anomaly", "anomaly scores", page="densities.md"),
        Entry("synthetic", "synthetic rows", page="synthetic.md"),
        Entry("classify", "a classifier", "TARGET", page="models.md"),
        Entry("linear", "a linear regression", "TARGET", page="models.md"),
        Entry("hashed_linear", "a linear model from hashed counters", "TARGET", page="models.md"),
        Entry("graph", "Jaccard densities of a column of sets of ids; edge lists: dpsketch graph", page="densities.md"),
        Entry("bounds", "tighter bounds with dpsketch tighten", page="schema.md"),
    )
}  # fmt: skip
ALIASES = {"components": "pca", "kmeans": "clusters", "gmm": "clusters"}


def register(entry: Entry) -> None:
    """Register a task for `--for` and `plan`."""
    TASKS[entry.name] = entry


def task_named(name: str) -> Task:
    return entry_named(name).load()


def entry_named(name: str, option: str = "--for") -> Entry:
    entry = TASKS.get(ALIASES.get(name, name))
    if entry is None:
        raise RecipeError(f"{option} must be one of {', '.join(TASKS)}, got '{name}' instead", f"as {option} density")
    return entry


def parse_task(text: str, option: str = "--for") -> tuple[Entry, str]:
    """A task and its argument ("" without one), from a text such as `classify:income`."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    entry = entry_named(name, option)
    if colon and (entry.argument is None or not value):
        raise RecipeError(f"{option} {text} has a colon but no argument that fits", f"write {option} {name}")
    if entry.argument is not None and not entry.optional and not value:
        raise RecipeError(f"{option} {name} needs an argument", f"write {option} {name}:{entry.argument}")
    return entry, value


def task_list() -> str:
    """The tasks, for a help text."""
    return "; ".join(f"{entry.usage} ({entry.purpose})" for entry in TASKS.values())
