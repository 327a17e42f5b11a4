"""Labels that nobody has to type: a small private release that finds those of a column which enough units have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.engines.unit_labels import label_counts
from dpsketch.errors import BudgetError
from dpsketch.privacy.label_threshold import label_event
from dpsketch.sketch.found_labels import FoundLabels, check_label_column, schema_with
from dpsketch.sketch.release import release_labels

if TYPE_CHECKING:
    from dpsketch.engines.readers import Progress
    from dpsketch.ledger.ledger import Ledger
    from dpsketch.privacy.budget import Budget
    from dpsketch.schema.schema import Schema


def find_labels(
    source: Any,
    schema: Schema,
    column: str,
    budget: Budget,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    progress: Progress | None = None,
) -> FoundLabels:
    """Find the labels of a column that enough units have, in a private release of its own.

    The column is one that `schema` does not declare, or a category, which keeps its declared labels. `schema` of the
    result lists the labels and serves a second release of the same table, whose budget adds up with this one. Found
    labels are published verbatim: texts of up to 100 printable characters. `dataset` defaults to the name in the
    schema's [about].

    Guarantee: (ε, δ)-differential privacy for one unit, under the schema's neighbouring relation; that any label of
    one unit alone is shown has a probability of at most δ. Source: docs/proofs/labels.md.
    """
    event = label_event(budget, schema.rows_per_unit or 1, schema.relation)
    check_label_column(schema, column)
    dataset = dataset or schema.about.name
    if ledger is None or not dataset:
        raise BudgetError(
            "finding labels is a private release: it needs a ledger and the dataset's name",
            "pass ledger=Ledger('ledger.db') and dataset='name', or name the data in the schema's [about]",
        )
    ledger.check(dataset, schema.accounted, event)
    counts = label_counts(source, schema, column, progress or (lambda share: None))
    labels = release_labels(counts, schema, event, ledger, dataset)
    return FoundLabels(column, labels, schema_with(schema, column, labels), event, dataset)
