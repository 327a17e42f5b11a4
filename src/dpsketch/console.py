"""Where commands print, and an option that several of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

out = Console(soft_wrap=True, highlight=False, markup=False)
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)

SchemaPath = Annotated[Path, typer.Option("--schema", help="TOML file with the table's public facts.")]
