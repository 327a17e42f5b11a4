"""Errors: a fact made of public values, the rule, then a hint with the next action.

No message may carry a cell's content or a number that depends on the data.
"""


class PublicNote(str):
    """A note on an exception (`add_note`) that may be shown: other code's notes may hold cells."""


class DpsketchError(Exception):
    """Base of every error that a user can act on."""

    def __init__(self, fact: str, hint: str | None = None) -> None:
        self.fact = fact
        self.hint = hint
        super().__init__(fact if hint is None else f"{fact}\nHint: {hint}")


class SchemaError(DpsketchError):
    """The declared public facts are incomplete or contradict each other."""


class RecipeError(DpsketchError):
    """A recipe, a map's parameter or a share of the budget is not possible."""


class SourceError(DpsketchError):
    """A table cannot be read, or lacks a declared column."""


class BudgetError(DpsketchError):
    """A budget is malformed, or the ledger has too little left."""


class LedgerError(DpsketchError):
    """The ledger cannot be used as asked."""


class FileError(DpsketchError):
    """A sketch file is damaged, hostile, of another kind, or in the way."""


class MergeError(DpsketchError):
    """Two sketches must not be added."""


class QueryError(DpsketchError):
    """A question that this release cannot answer."""


class FitWarning(UserWarning):
    """A fit that should not be relied on as it is."""


class LedgerWarning(UserWarning):
    """A release whose spend stands, but which the ledger could not mark as finished."""
