"""docs/modules.md lists every module by its room; `python tests/docs/test_modules.py` writes it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, PAGE = ROOT / "src" / "dpsketch", ROOT / "docs" / "modules.md"


def modules_page() -> str:
    lines = [
        "# Modules",
        "",
        "Generated from the first line of every module; [architecture](architecture.md) explains the rooms.",
    ]
    for folder in sorted(
        {path.parent for path in PACKAGE.rglob("*.py")}, key=lambda path: path.relative_to(PACKAGE).parts
    ):
        modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        if modules:
            room = "dpsketch" if folder == PACKAGE else folder.relative_to(PACKAGE).as_posix() + "/"
            lines += ["", f"## {room}", "| module | what it does |", "| --- | --- |"]
            lines += [f"| `{path.stem}` | {first_line(path)} |" for path in modules]
    return "\n".join(lines) + "\n"


def first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def test_every_module_says_what_it_does() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert path.name == "__init__.py" or "migrations" in path.parts or first_line(path), path


def test_the_page_lists_every_module() -> None:
    assert PAGE.read_text() == modules_page(), f"run: python {Path(__file__).relative_to(ROOT)}"


def test_no_module_name_stands_for_two_things() -> None:
    names = [path.stem for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(names) == sorted(set(names))


def test_modules_and_functions_are_short() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and "migrations" not in path.parts:
                assert node.end_lineno is not None
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"


if __name__ == "__main__":
    PAGE.write_text(modules_page())
