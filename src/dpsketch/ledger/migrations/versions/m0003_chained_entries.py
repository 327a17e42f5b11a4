"""Entries with checksums, running totals, and the snapshot of a part.

Every row gets a number in one common order, which keeps the order within a table. Parts have no snapshot, because
nobody asserted that they were read from the whole of one unchanged table: from now on their costs add up. Checksums and
totals are computed from the rows after the last migration.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    connection = op.get_bind()
    order = {"grants": "number", "datasets": "name", "plans": "number", "spends": "number", "commits": "spend"}
    old = {
        name: connection.execute(sa.text(f"select * from {name} order by {column}")).mappings().all()
        for name, column in order.items()
    }
    for name in ("commits", "spends", "plans", "grants", "datasets"):
        op.drop_table(name)
    op.create_table(
        "entries",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.String, nullable=False),
    )
    datasets = op.create_table(
        "datasets",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("unit", sa.String, nullable=False),
        sa.Column("max_rows_per_unit", sa.Integer, nullable=False),
        sa.Column("relation", sa.String, nullable=False),
        sa.Column("entry", sa.Integer, nullable=False),
    )
    grants = op.create_table(
        "grants",
        sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("dataset", sa.String, nullable=False),
        sa.Column("epsilon", sa.String),
        sa.Column("delta", sa.String, nullable=False),
        sa.Column("rho", sa.String),
        sa.Column("created", sa.String, nullable=False),
    )
    plans = op.create_table(
        "plans",
        sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
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
        sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("id", sa.String, unique=True, nullable=False),
        sa.Column("dataset", sa.String, sa.ForeignKey("datasets.name"), nullable=False),
        sa.Column("release", sa.String, nullable=False),
        sa.Column("lineage", sa.String, nullable=False),
        sa.Column("partition_column", sa.String),
        sa.Column("partition_value", sa.String),
        sa.Column("partition_snapshot", sa.String),
        sa.Column("plan", sa.String),
        sa.Column("event", sa.String),
        sa.Column("created", sa.String, nullable=False),
    )
    commits = op.create_table(
        "commits",
        sa.Column("spend", sa.String, sa.ForeignKey("spends.id"), primary_key=True),
        sa.Column("entry", sa.Integer, nullable=False),
    )
    op.create_table(
        "totals",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.String, nullable=False),
    )
    for name, table, columns in (
        ("grants_of", "grants", ["dataset", "entry"]),
        ("spends_of", "spends", ["dataset", "entry"]),
        ("commits_by_entry", "commits", ["entry"]),
        ("totals_by_entry", "totals", ["entry"]),
    ):
        op.create_index(name, table, columns)
    tables = {"grants": grants, "datasets": datasets, "plans": plans, "spends": spends, "commits": commits}
    entry = 0
    for name, rows in old.items():
        kept = [{column: row[column] for column in row if column != "number"} for row in rows]
        numbered = [row | {"entry": number} for number, row in enumerate(kept, entry + 1)]
        entry += len(rows)
        if numbered:
            connection.execute(tables[name].insert(), numbered)
