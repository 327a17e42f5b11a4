"""Budgets with delta or rho, relations, partitions and plans.

The old rows are read, the old tables dropped, children first, and the new ones filled, in one transaction. Names are
kept but columns differ, so that version 0.1.0 fails on such a ledger instead of starting an empty one beside it.
"""

import json
import math
from fractions import Fraction

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    connection = op.get_bind()
    old = {
        name: connection.execute(sa.text(f"select * from {name} order by 1")).mappings().all()
        for name in ("datasets", "grants", "spends", "commits")
    }
    for name in ("commits", "spends", "grants", "datasets"):
        op.drop_table(name)
    datasets = op.create_table(
        "datasets",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("unit", sa.String, nullable=False),
        sa.Column("max_rows_per_unit", sa.Integer, nullable=False),
        sa.Column("relation", sa.String, nullable=False),
    )
    grants = op.create_table(
        "grants",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("dataset", sa.String, nullable=False),
        sa.Column("epsilon", sa.String),
        sa.Column("delta", sa.String, nullable=False),
        sa.Column("rho", sa.String),
        sa.Column("created", sa.String, nullable=False),
    )
    op.create_table(
        "plans",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("dataset", sa.String, sa.ForeignKey("datasets.name"), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("budgets", sa.String, nullable=False),
        sa.Column("epsilon", sa.String, nullable=False),
        sa.Column("delta", sa.String, nullable=False),
        sa.Column("created", sa.String, nullable=False),
        sa.UniqueConstraint("dataset", "name"),
    )
    spends = op.create_table(
        "spends",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, unique=True, nullable=False),
        sa.Column("dataset", sa.String, sa.ForeignKey("datasets.name"), nullable=False),
        sa.Column("release", sa.String, nullable=False),
        sa.Column("lineage", sa.String, nullable=False),
        sa.Column("partition_column", sa.String),
        sa.Column("partition_value", sa.String),
        sa.Column("plan", sa.String),
        sa.Column("event", sa.String),
        sa.Column("created", sa.String, nullable=False),
    )
    commits = op.create_table("commits", sa.Column("spend", sa.String, sa.ForeignKey("spends.id"), primary_key=True))
    for row in old["datasets"]:
        connection.execute(datasets.insert().values(**row, relation="add-remove"))
    for row in old["grants"]:
        connection.execute(
            grants.insert().values(dataset=row["dataset"], epsilon=row["cap"], delta="0", created=row["created"])
        )
    for row in old["spends"]:
        # Its noises were not recorded. It becomes a release with this epsilon alone, which counts as rho epsilon²/2.
        release = {"budget": {"epsilon": _budget(Fraction(row["epsilon"]))}, "noises": []}
        kept = {name: row[name] for name in ("id", "dataset", "event", "created")}
        connection.execute(spends.insert().values(**kept, release=json.dumps(release), lineage="[]"))
    for row in old["commits"]:
        connection.execute(commits.insert().values(**row))


def _budget(epsilon: Fraction) -> float:
    """The number from which a budget of this epsilon was written; for a fraction without one, the next
    number above it.
    """
    number = max(float(epsilon), 1e-9)
    return number if Fraction(repr(number)) >= epsilon else math.nextafter(number, math.inf)
