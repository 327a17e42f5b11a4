"""The current tables of the ledger; `migrations` converts older ones.

Rows are only ever added. All rows of one transaction carry the number of its `entry`. Entries are numbered without
gaps, and each holds a checksum of its rows and of the entry before it (`ledger.chain`).
"""

from __future__ import annotations

import sqlalchemy as sa

VERSION = "0006"
FIRST_VERSION = "0001"  # version of ledgers from before versions were recorded
CHAINED_SINCE = "0003"  # the first version with entries, checksums and totals

tables = sa.MetaData()
entries = sa.Table(
    "entries",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("checksum", sa.String, nullable=False),
)
datasets = sa.Table(
    "datasets",
    tables,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("max_rows_per_unit", sa.Integer, nullable=False),
    sa.Column("relation", sa.String, nullable=False),
    sa.Column("entry", sa.Integer, nullable=False),
)
# Fractions are text: "1/10". A cap is either epsilon and delta, or rho.
grants = sa.Table(
    "grants",
    tables,
    sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.String, nullable=False),
    sa.Column("epsilon", sa.String),
    sa.Column("delta", sa.String, nullable=False),
    sa.Column("rho", sa.String),
    sa.Column("created", sa.String, nullable=False),
    sa.Index("grants_of", "dataset", "entry"),
)
# `budgets` is JSON: each budget of the plan and the number of `times` it may be used (by default, once).
plans = sa.Table(
    "plans",
    tables,
    sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.ForeignKey("datasets.name"), nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("budgets", sa.String, nullable=False),
    sa.Column("epsilon", sa.String, nullable=False),
    sa.Column("delta", sa.String, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.UniqueConstraint("dataset", "name"),
)
# `release` and `lineage` are JSON; `event` holds the description of releases from version 0001.
spends = sa.Table(
    "spends",
    tables,
    sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("id", sa.String, unique=True, nullable=False),
    sa.Column("dataset", sa.ForeignKey("datasets.name"), nullable=False),
    sa.Column("release", sa.String, nullable=False),
    sa.Column("lineage", sa.String, nullable=False),
    sa.Column("partition_column", sa.String),
    sa.Column("partition_value", sa.String),
    sa.Column("partition_snapshot", sa.String),
    sa.Column("plan", sa.String),
    sa.Column("event", sa.String),
    sa.Column("created", sa.String, nullable=False),
    sa.Index("spends_of", "dataset", "entry"),
)
commits = sa.Table(
    "commits",
    tables,
    sa.Column("spend", sa.ForeignKey("spends.id"), primary_key=True),
    sa.Column("entry", sa.Integer, nullable=False),
    sa.Index("commits_by_entry", "entry"),
)
# `schema` is a digest of what was declared when exact counts of cells were shown.
reports = sa.Table(
    "reports",
    tables,
    sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("dataset", sa.String, nullable=False),
    sa.Column("schema", sa.String, nullable=False),
    sa.Column("created", sa.String, nullable=False),
    sa.Index("reports_of", "dataset", "entry"),
)
# Running totals, with `value` in JSON: the newest entry of a key counts. They follow from the other rows
# (`running_totals`).
totals = sa.Table(
    "totals",
    tables,
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("value", sa.String, nullable=False),
    sa.Index("totals_by_entry", "entry"),
)
CHAINED = (datasets, grants, plans, spends, commits, reports, totals)
version = sa.Table(
    "alembic_version",
    sa.MetaData(),  # Alembic's own table, not compared with ours
    sa.Column("version_num", sa.String(32), primary_key=True),
)
