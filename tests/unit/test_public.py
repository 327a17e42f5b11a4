"""The public names: one table, and everything else follows from it."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import dpsketch as dps
from dpsketch.errors import DpsketchError
from dpsketch.public import HOMES, ROOMS, names

ROOT = Path(__file__).parents[2]
DOORS = ["dpsketch", "dpsketch.maps", "dpsketch.learn.models"]


def typed_names(module: ModuleType) -> dict[str, str]:
    """What type checkers are told: name and where it lives, as in the table."""
    tree = ast.parse(Path(module.__file__ or "").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                told[each.asname or each.name] = (str(node.module), each.name)
        elif isinstance(node, ast.Assign):  # a name that hides a builtin
            assert isinstance(node.value, ast.Name)
            assert isinstance(node.targets[0], ast.Name)
            told[node.targets[0].id] = told.pop(node.value.id)
    return {
        name: module if inner == name else f"{module}:{inner}"
        for name, (module, inner) in told.items()
        if f"{module}.{inner}" not in {f"dpsketch.{room}" for room in ROOMS.values()}
    }


@pytest.mark.parametrize("name", DOORS)
def test_type_checkers_see_the_same_names(name: str) -> None:
    assert typed_names(import_module(name)) == {
        each: f"dpsketch.{HOMES[each]}" for each in set(names(name)) - set(ROOMS)
    }


@pytest.mark.parametrize("name", DOORS)
def test_every_name_exists_and_is_listed(name: str) -> None:
    door = import_module(name)
    assert door.__all__ == names(name)
    for each in door.__all__:
        assert getattr(door, each) is getattr(dps, each)
        assert each in dir(door)
    with pytest.raises(AttributeError, match="has no attribute 'elsewhere'"):
        door.elsewhere  # noqa: B018


def test_rooms_hold_the_flat_names() -> None:
    assert dps.maps.Fourier is dps.Fourier
    assert dps.hashes.MinHash is dps.MinHash
    assert dps.models.KMeans is dps.KMeans
    assert not {"KMeans", "Ledger"} & set(dir(dps.maps))


def test_every_error_is_public() -> None:
    errors = import_module("dpsketch.errors")
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DpsketchError | Warning)
    ]
    assert len(kinds) == 15
    for kind in kinds:
        assert getattr(dps, kind.__name__) is kind


def test_no_module_hides_a_public_name() -> None:
    """A command that imports a module of that name would put it in the place of the function."""
    assert not {module.name for module in pkgutil.iter_modules(dps.__path__)} & set(HOMES)


def test_the_version_is_that_of_the_package() -> None:
    assert dps.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_importing_it_loads_nothing() -> None:
    code = "import sys; import dpsketch; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not re.findall(r"\b(numpy|scipy|pyarrow|importlib\.metadata|dataclasses)\b", loaded)
    own = {name for name in loaded.split() if name.startswith("dpsketch")}
    assert own == {"dpsketch", "dpsketch.numerics", "dpsketch.numerics.started", "dpsketch.public"}


def test_the_package_runs_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dpsketch", "--help"], capture_output=True, text=True, check=True)
    assert "release" in done.stdout
