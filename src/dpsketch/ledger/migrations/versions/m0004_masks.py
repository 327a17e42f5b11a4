"""Releases whose noise counts on secret masks: the tables and all rows stay as they are.

Earlier versions compute another cost for such a release than its totals hold, and would report a damaged ledger. The
version says to them instead that a newer one wrote it.
"""

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Nothing: rows keep their entries, checksums and totals."""
