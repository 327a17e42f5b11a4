"""The tables of version 0.1.0, which did not record a version."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "datasets",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("unit", sa.String, nullable=False),
        sa.Column("max_rows_per_unit", sa.Integer, nullable=False),
    )
    op.create_table(
        "grants",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("dataset", sa.String, nullable=False),
        sa.Column("cap", sa.String, nullable=False),
        sa.Column("created", sa.String, nullable=False),
    )
    op.create_table(
        "spends",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String, unique=True, nullable=False),
        sa.Column("dataset", sa.String, sa.ForeignKey("datasets.name"), nullable=False),
        sa.Column("epsilon", sa.String, nullable=False),
        sa.Column("event", sa.String, nullable=False),
        sa.Column("created", sa.String, nullable=False),
    )
    op.create_table("commits", sa.Column("spend", sa.String, sa.ForeignKey("spends.id"), primary_key=True))
