"""A table of reports: with which schema exact counts of a dataset's cells were shown to its curator."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Rows of the other tables keep their entries, checksums and totals."""
    op.create_table(
        "reports",
        sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("dataset", sa.String, nullable=False),
        sa.Column("schema", sa.String, nullable=False),
        sa.Column("created", sa.String, nullable=False),
    )
    op.create_index("reports_of", "reports", ["dataset", "entry"])
