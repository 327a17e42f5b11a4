"""The neighbouring relation: which pairs of tables a release must make indistinguishable."""

from __future__ import annotations

from enum import StrEnum


class Relation(StrEnum):
    """When two tables are neighbours: one unit is added or removed, or one unit is replaced by another."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
