"""The ledger's tables as they are now. How older ones become these: `migrations`."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = "0002"
FIRST_VERSION = "0001"  # of ledgers from before versions were recorded

tables = sa.MetaData()
datasets = sa.Table(
    "datasets",
    tables,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("max_rows_per_unit", sa.Integer, nullable=False),
    sa.Column("relation", sa.String, nullable=False),
)
# Fractions are text: "1/10". A cap is either epsilon and delta, or rho.
grants = sa.Table(
    "grants",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("dataset", sa.String, nullable=False),
    sa.Column("epsilon", sa.String),
    sa.Column("delta", sa.String, nullable=False),
    sa.Column("rho", sa.String),
    sa.Column("created", sa.String, nullable=False),
)
# `budgets` is JSON: each budget of the plan and how many `times` it may be used (once, if it does not say).
plans = sa.Table(
    "plans",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("dataset", sa.ForeignKey("datasets.name"), nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("budgets", sa.String, nullable=False),
    sa.Column("epsilon", sa.String, nullable=False),
    sa.Column("delta", sa.String, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.UniqueConstraint("dataset", "name"),
)
# `release` and `lineage` are JSON; `event` is what releases of version 0001 said about themselves.
spends = sa.Table(
    "spends",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String, unique=True, nullable=False),
    sa.Column("dataset", sa.ForeignKey("datasets.name"), nullable=False),
    sa.Column("release", sa.String, nullable=False),
    sa.Column("lineage", sa.String, nullable=False),
    sa.Column("partition_column", sa.String),
    sa.Column("partition_value", sa.String),
    sa.Column("plan", sa.String),
    sa.Column("event", sa.String),
    sa.Column("created", sa.String, nullable=False),
)
commits = sa.Table("commits", tables, sa.Column("spend", sa.ForeignKey("spends.id"), primary_key=True))
version = sa.Table(
    "alembic_version",
    sa.MetaData(),  # Alembic's own; not compared with ours
    sa.Column("version_num", sa.String(32), primary_key=True),
)
