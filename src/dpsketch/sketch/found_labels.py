"""Labels of a column that a private release has found, and the schema that lists them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsketch.displays import counted
from dpsketch.errors import SchemaError
from dpsketch.privacy.budget import rounded_text
from dpsketch.privacy.events import Release
from dpsketch.schema.columns import SPAN, Category
from dpsketch.schema.relation import Relation
from dpsketch.schema.schema import LABELS_FOUND, Schema


@dataclass(frozen=True)
class FoundLabels:
    """The released labels of one column, sorted, and how they were found."""

    column: str
    labels: tuple[str, ...]
    schema: Schema  # with these labels
    release: Release
    dataset: str

    def __repr__(self) -> str:
        return f"FoundLabels({counted(len(self.labels), 'label')} of {self.column}, {self.release.budget})"

    @property
    def statement(self) -> str:
        """The privacy statement of this release, a few sentences."""
        schema, (noise,) = self.schema, self.release.noises
        unit, most = schema.unit_column, schema.rows_per_unit or 1
        who = f"one {schema.record}" if unit is None else f"one value of '{unit}', with at most {most} labels"
        how = "added or removed" if schema.relation is Relation.ADD_REMOVE else "replaced"
        return (
            f"Labels of '{self.column}' were found with {self.release.budget} for {who}, {how}. "
            f"Each label in the table got a count with discrete Laplace noise of scale {rounded_text(noise.scale)}, "
            f"and is listed if that exceeds {self.release.threshold}. Listed labels are published verbatim. "
            f"That any label of one unit alone is listed has a probability of at most {self.release.budget.delta:g}. "
            f"The budget is counted for dataset '{self.dataset}'."
        )


def check_label_column(schema: Schema, column: str) -> None:
    """Refuse columns whose labels cannot be found, before anything is spent."""
    if column == schema.unit_column:
        raise SchemaError(f"column '{column}' is the privacy unit: ids of people are never released", "name another")
    declared = next((each for each in schema.columns if each.name == column), None)
    if declared is not None and (not isinstance(declared, Category) or declared.derived is not None):
        how = f"declared as {declared.kind}" if declared.derived is None else "computed from others"
        raise SchemaError(
            f"column '{column}' is {how}: it has no labels to find",
            f"remove [columns.{column}] from the schema, or declare it as a category",
        )
    if isinstance(declared, Category) and declared.ordered:
        raise SchemaError(
            f"column '{column}' is declared in an order, in which found labels have no place",
            "remove ordered = true, or type the labels into the schema",
        )
    schema_with(schema, column, ("a",))  # a name or a note that the result could not have


def schema_with(schema: Schema, column: str, labels: tuple[str, ...]) -> Schema:
    """The schema with these labels, sorted among those that it declares, as many as a category may have; its note
    states their origin. Without any label the column stays undeclared.
    """
    old = next((each for each in schema.columns if each.name == column), None)
    declared = old.values if isinstance(old, Category) else ()
    new = sorted(set(labels) - {str(value) for value in declared})
    values = (*declared, *new[: SPAN - len(declared)])
    if not values:
        return schema.noted(LABELS_FOUND)
    category = Category(column, tuple(sorted(values, key=str)), False)
    columns = tuple(category if each.name == column else each for each in schema.columns)
    return replace(schema, columns=columns if old is not None else (*columns, category)).noted(LABELS_FOUND)
