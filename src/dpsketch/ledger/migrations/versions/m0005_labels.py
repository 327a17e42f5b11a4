"""Releases of labels above a threshold: the tables and all rows stay as they are.

Earlier versions would ignore the threshold and count such a release under a cap of rho, which does not cover its delta.
The version says to them instead that a newer one wrote the ledger.
"""

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Nothing: rows keep their entries, checksums and totals."""
