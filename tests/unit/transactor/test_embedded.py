"""The package says which of its modules a NEO master embeds, and which are the stand-alone system."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import neo.transactor

PACKAGE = Path(neo.transactor.__file__).parent
NAME = "neo.transactor."


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of the transactor that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == NAME[:-1]:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAME):
            yield str(node.module).removeprefix(NAME)


def embedded() -> set[str]:
    """Return what masters import, directly or not."""
    found: set[str] = set()
    files = list((PACKAGE.parent / "master").rglob("*.py"))
    while files:
        new = {name for path in files for name in imported(path)} - found
        found |= new
        files = [PACKAGE / f"{name}.py" for name in new]
    return found


def test_the_package_names_its_modules_by_who_uses_them() -> None:
    first, second = str(neo.transactor.__doc__).split("The others are")
    inside, outside = (set(re.findall(r":mod:`(\w+)`", text)) for text in (first, second))
    assert inside == embedded() and len(inside) == 17
    assert outside == {path.stem for path in PACKAGE.glob("[!_]*.py")} - inside
