"""Optional packages: what needs them, and the message where one is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpsketch.errors import MissingExtraError

# What needs the package; the extra of pyproject.toml that installs it.
_NEEDED = {
    "numba": ("sketching a table, and reading hashed counters, needs Numba", "curate"),
    "llvmlite": ("sketching a table, and reading hashed counters, needs Numba", "curate"),
    "sqlalchemy": ("releasing a table, its ledger, and dpsketch:// addresses need SQLAlchemy", "curate"),
    "alembic": ("upgrading a ledger needs Alembic", "curate"),
    "dp_accounting": ("the cost of several releases together needs dp-accounting", "curate"),
    "mcp": ("serving sketches to language models needs the MCP library", "agents"),
    "cairosvg": ("drawing a PNG needs CairoSVG", "plot"),
    "pyspark": ("the Spark engine needs pyspark", "spark"),
    "dask": ("the Dask engine needs dask", "dask"),
    "deltalake": ("reading a Delta Lake table needs deltalake", "lake"),
    "pyiceberg": ("reading an Iceberg table needs pyiceberg", "lake"),
    "adbc_driver_postgresql": ("reading PostgreSQL needs its ADBC driver", "db"),
    "adbc_driver_sqlite": ("reading SQLite needs its ADBC driver", "db"),
}


@contextmanager
def extra() -> Iterator[None]:
    """Turn the failed import of an optional package into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        fact, name = _NEEDED[package]
        raise MissingExtraError(fact, f"pip install 'dpsketch[{name}]'") from None
