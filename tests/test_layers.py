"""The source held to the layers of the architecture: imports go down only, IO stays in the hosts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layers import EXCEPTIONS, HOSTS, MAY_IMPORT, WORLD
from tools.circles import circles, graph, imported, module_name, product, type_checking_blocks

ROOT = Path(__file__).parent.parent
#: ``neo/schema`` is a link to the folder of the contracts; links are not followed from above.
FOLDERS = ("neo", "neo/schema", "neoctl", "pyspark_neo", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted(path for folder in ("tests", "tools") for path in (ROOT / folder).rglob("*.py"))

LINES = 701
FUNCTION_LINES = 60
LONG_FILES = {"neo.protocol.packets"}  # the table of messages, in one piece
#: Functions that create the parts of a node and connect them by keywords: they read best in one piece.
COMPOSERS = {
    "neo.master.primary.PrimaryMaster.__init__",
    "neo.storage.node.StorageNode.__init__",
}


def package_of(name: str) -> str:
    """The longest package of the table that holds a module."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        package = ".".join(parts[:length])
        if package in MAY_IMPORT:
            return package
    raise AssertionError(f"{name} is in no layer: add its package to the table")


def within(name: str, packages: tuple[str, ...] | set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def layer_violations(name: str, source: str) -> list[str]:
    package = package_of(name)
    return [
        target
        for target in imported(source)
        if target.split(".")[0] in {"neo", "neoctl", "pyspark_neo", "examples", "tests"}
        and target != "neo.__version__"
        and (target.startswith("tests") or package_of(target) != package)
        and not within(target, MAY_IMPORT[package])
    ]


def world_violations(name: str, source: str) -> list[str]:
    if within(name, HOSTS) or name.endswith(".__main__"):
        return []
    return [
        target
        for target in imported(source)
        if target.split(".")[0] in WORLD and not within(target, EXCEPTIONS.get(name, set()))
    ]


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_go_down_only(path: Path) -> None:
    assert layer_violations(module_name(path), path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_only_hosts_touch_the_world(path: Path) -> None:
    assert world_violations(module_name(path), path.read_text()) == []


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=module_name)
def test_files_and_functions_are_short(path: Path) -> None:
    name, source = module_name(path), path.read_text()
    if name not in LONG_FILES:
        assert len(source.splitlines()) < LINES
    long = [
        f"{function}: {lines} lines"
        for function, lines in functions(name, ast.parse(source))
        if lines >= FUNCTION_LINES and function not in COMPOSERS
    ]
    assert long == []


def test_composers_are_as_long_as_they_must_be() -> None:
    """A function that got short is not listed any more."""
    long = {
        function
        for path in SOURCES
        for function, lines in functions(module_name(path), ast.parse(path.read_text()))
        if lines >= FUNCTION_LINES
    }
    assert long == COMPOSERS


def functions(name: str, node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the full names of the functions in a module, a class or a function, and their lines."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = f"{name}.{child.name}"
            if not isinstance(child, ast.ClassDef):
                assert child.end_lineno is not None
                yield inner, child.end_lineno - child.lineno + 1
            yield from functions(inner, child)
        else:
            yield from functions(name, child)


def borrowed(source: str) -> list[str]:
    """What is imported from a module of tests. The module itself may be, to run its tests elsewhere."""
    return [
        name
        for name in imported(source)
        if any(part.startswith("test_") for part in name.split(".")[:-1])
    ]


@pytest.mark.parametrize("path", TESTS, ids=module_name)
def test_no_test_is_a_library_of_another(path: Path) -> None:
    assert borrowed(path.read_text()) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """A module never imports the module that composes it, for types neither."""
    assert circles(graph(product())) == []


def test_no_import_is_for_type_checkers_only() -> None:
    assert [name for name, source in product().items() if type_checking_blocks(source)] == []


def test_every_package_of_the_table_exists() -> None:
    names = {module_name(path) for path in SOURCES}
    assert all(any(within(name, {package}) for name in names) for package in MAY_IMPORT)
    assert names >= set(EXCEPTIONS) | LONG_FILES


def test_the_checks_see_what_is_wrong() -> None:
    guarded = "if TYPE_CHECKING:\n    from neo.b import B"
    sources = {"neo.a": guarded, "neo.b": "import neo.c", "neo.c": "from neo import a", "neo.d": ""}
    assert circles(graph(sources)) == [["neo.a", "neo.b", "neo.c"]]
    assert type_checking_blocks(guarded) == 1
    assert layer_violations("neo.master.primary", "from neo.storage.node import x") == [
        "neo.storage.node.x"
    ]
    assert layer_violations("neo.client.read.cache", "def f():\n import neo.node.core") == [
        "neo.node.core"
    ]
    assert layer_violations("neo.net.tls", "from tests import support") == ["tests.support"]
    assert layer_violations("neo.client.uri", "import pyspark_neo") == ["pyspark_neo"]
    assert layer_violations("neo.node.core", "from neo.net import tls\nimport json") == []
    assert world_violations("neo.master.primary", "from time import sleep") == ["time.sleep"]
    assert world_violations("neo.net.tls", "import threading") == ["threading"]
    assert world_violations("neo.storage.node", "import sqlite3, signal") == ["sqlite3", "signal"]
    assert world_violations("neo.net.transport", "import asyncio") == []
    assert borrowed("from tests.unit.test_x import helper") == ["tests.unit.test_x.helper"]
    assert borrowed("from tests.unit import test_x") == []
