"""The tools of `agent_tools` by the Model Context Protocol, over standard input and output. The one module that imports
its library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dpsketch.drivers.agent_tools import INSTRUCTIONS, AgentTools
from dpsketch.errors import DpsketchError
from dpsketch.extras import extra

with extra():
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations


def serve(paths: Sequence[str | Path]) -> None:
    """Answer a client on standard input and output until it closes them."""
    server_of(paths).run("stdio")


def server_of(paths: Sequence[str | Path]) -> Any:
    """A server for these files."""
    tools = AgentTools(paths)
    server = MCPServer("dpsketch", instructions=INSTRUCTIONS, version=version("dpsketch"), log_level="ERROR")
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for tool in (tools.describe, tools.statement, tools.ask, tools.plan):
        server.add_tool(_with_messages(tool), name=tool.__name__, annotations=reads)
    return server


def _with_messages(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool, whose refusals reach the model with their hints. Anything else is reported without its message."""

    @wraps(tool)
    def run(*words: Any, **options: Any) -> Any:
        try:
            return tool(*words, **options)
        except DpsketchError as error:
            raise ToolError(str(error)) from None

    return run
