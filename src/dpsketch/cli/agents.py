"""`dpsketch mcp`: released files as tools of a language model."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer


def mcp(
    sketches: Annotated[list[Path], typer.Argument(help="Released sketches; no other file is read.")],
) -> None:
    """Serve released sketches to a client of the Model Context Protocol, on standard input and output.

    Its tools describe the sketches, print their privacy statements, answer questions and plan releases. They read the
    named files alone and release nothing.
    """
    from dpsketch.drivers.mcp_server import serve

    gc.enable()  # unlike other verbs, this one runs on
    serve(sketches)
