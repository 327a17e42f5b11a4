"""Errors: a fact made of public values, the rule, then a hint with the next action.

No message may carry a cell's content or a number that depends on the data.
"""

from unicodedata import category

_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (such as changes of direction), line separators


def visible(text: str) -> str:
    """A text with escapes for characters that a terminal obeys or hides: others may have chosen it.

    Escapes are those of JSON. Line breaks are escaped, too.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def visible_lines(text: str) -> str:
    """As `visible`, but line breaks stay: for a text of several lines that the library put together."""
    return "\n".join(map(visible, text.split("\n")))


def _shown(character: str) -> str:
    if character.isprintable() or category(character) not in _INVISIBLE:
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


class PublicNote(str):
    """A note on an exception (`add_note`) that may be shown: other code's notes may hold cells."""


class DpsketchError(Exception):
    """Base of every error that a user can act on."""

    def __init__(self, fact: str, hint: str | None = None) -> None:
        self.fact = visible(fact)
        self.hint = None if hint is None else visible(hint)
        super().__init__(self.fact if self.hint is None else f"{self.fact}\nHint: {self.hint}")


class SchemaError(DpsketchError):
    """The declared public facts are incomplete or contradict each other."""


class RecipeError(DpsketchError):
    """A recipe, a map's parameter or a share of the budget is not possible."""


class SourceError(DpsketchError):
    """A table cannot be read, or lacks a declared column."""


class BudgetError(DpsketchError):
    """A budget is malformed, or the ledger has too little left."""


class LedgerError(DpsketchError):
    """The ledger cannot be used as asked. `lost`: it failed during a transaction, which may have been recorded;
    `missing`: there is none.
    """

    lost = False
    missing = False


class FileError(DpsketchError):
    """A sketch file is damaged, hostile, of another kind, or in the way."""


class MergeError(DpsketchError):
    """Two sketches must not be added."""


class FederationError(DpsketchError):
    """A message, a key or the terms of another party are not what was agreed, or too few parties are left."""


class QueryError(DpsketchError):
    """A question that this release cannot answer."""


class MissingExtraError(DpsketchError):
    """An optional package is not installed."""


class FitWarning(UserWarning):
    """A fit that should not be relied on as it is."""


class RecipeWarning(UserWarning):
    """A recipe on which a hint has no effect."""


class LedgerWarning(UserWarning):
    """A release whose spend stands, but which the ledger could not mark as finished."""


class PrivacyWarning(UserWarning):
    """A file, or a release in a ledger, that was made by a version with a known privacy fault."""
