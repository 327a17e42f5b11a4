"""docs/cli.md has every command with all its options. (Not compared to the letter: help's layout is Typer's.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dpsketch.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def commands(command: Any, path: str = "dpsketch") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from commands(inner, f"{path} {name}")


def reference() -> str:
    text = "# Command line\n\nMade from `--help` by `python tests/docs/test_cli_reference.py`.\n"
    for path, command in commands(typer.main.get_command(app)):
        context = command.make_context(path, [], resilient_parsing=True, max_content_width=100, terminal_width=100)
        text += f"\n## {path}\n```\n{command.get_help(context).strip()}\n```\n"
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_every_command_and_option_is_documented() -> None:
    sections = {part.split("\n", 1)[0]: part for part in PAGE.read_text().split("\n## ")[1:]}
    found = dict(commands(typer.main.get_command(app)))
    assert set(sections) == set(found)
    for path, command in found.items():
        for parameter in command.params:
            for option in parameter.opts:
                assert option in sections[path], (path, option)
        assert command.help.split(".")[0][:40] in " ".join(sections[path].split()), path


if __name__ == "__main__":
    PAGE.write_text(reference())
