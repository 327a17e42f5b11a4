"""A real client in front of the real command, over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

import dpsketch as dps
from dpsketch.drivers.agent_tools import AgentTools


def with_client(path: Path, talk: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    words = ["-m", "dpsketch", "mcp", str(path)]
    cache = {"XDG_CACHE_HOME": str(path.parent / "cache")}  # not that of whoever runs the tests
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ) | cache)

    async def run() -> Any:
        async with Client(server, read_timeout_seconds=60) as client:
            return await talk(client)

    return asyncio.run(run())


def test_a_client_asks(path: Path, view: dps.View) -> None:
    async def talk(client: Any) -> dict[str, Any]:
        tools = (await client.list_tools()).tools
        calls = {
            "describe": await client.call_tool("describe", {}),
            "statement": await client.call_tool("statement", {"sketch": "people"}),
            "ask": await client.call_tool("ask", {"question": "select city, avg(age) as m from sketch group by city"}),
            "refused": await client.call_tool("ask", {"question": "select max(age) from sketch"}),
            "elsewhere": await client.call_tool("describe", {"sketch": "/etc/passwd"}),
            "plan": await client.call_tool("plan", {"questions": [], "epsilons": [1.0]}),
        }
        return {"tools": tools, "calls": calls, "instructions": client.instructions}

    said = with_client(path, talk)
    assert [tool.name for tool in said["tools"]] == ["describe", "statement", "ask", "plan"]
    assert all(tool.annotations.read_only_hint for tool in said["tools"])
    assert "standard error" in said["instructions"]
    texts = {name: call.content[0].text for name, call in said["calls"].items()}
    failed = {name for name, call in said["calls"].items() if call.is_error}
    assert failed == {"refused", "elsewhere", "plan"}

    described = json.loads(texts["describe"])["people"]
    assert described["columns"][0] == {"column": "age", "kind": "integer", "values": "18 to 90"}
    assert described["guarantee"] == view.released.promise
    assert texts["statement"].startswith("PRIVACY STATEMENT")
    answered = json.loads(texts["ask"])
    expected = view.sql("select city, avg(age) as m from sketch group by city").to_dicts()
    assert answered["rows"] == [pytest.approx(row) for row in expected]
    assert "NAME_stderr" in answered["errors"]
    assert "one person's value" in texts["refused"]
    assert "Hint:" in texts["refused"]
    assert "there is no sketch '/etc/passwd'\nHint: pass sketch, one of people" in texts["elsewhere"]
    assert "a plan takes 1 to 10 questions and 1 to 5 budgets" in texts["plan"]


def test_a_plan_predicts(path: Path) -> None:
    found = AgentTools([path]).plan(["select count(*) from sketch where member"], [1.0])
    [prediction] = found["predictions"]
    assert prediction["epsilon"] == 1.0
    assert 0 < prediction["error"] < 100


def test_files_are_named(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "people.sketch"
    again.write_bytes(path.read_bytes())
    tools = AgentTools([path, again])
    assert list(tools.describe()) == [str(path), str(again)]
    with pytest.raises(dps.QueryError, match=r"there are several sketches\nHint: pass sketch, one of /"):
        tools.ask("select count(*) from sketch")
    assert tools.ask("select count(*) from sketch", str(again))["rows"]
    with pytest.raises(dps.FileError):
        AgentTools([tmp_path / "none.sketch"])
