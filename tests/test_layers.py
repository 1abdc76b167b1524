"""The source held to the layers of the architecture: imports go down only, IO stays in the shells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: ``neo/schema`` is a link to the folder of the contracts; links are not followed from above.
FOLDERS = ("neo", "neo/schema", "neoctl", "pyspark_neo")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

#: What each package may import of the project, besides itself. The longest prefix counts.
MAY_IMPORT: dict[str, set[str]] = {
    "neo": set(),
    "neo.schema": set(),
    "neo.protocol": set(),
    "neo.topology": {"neo.protocol"},
    "neo.net": {"neo.protocol"},
    "neo.node": {"neo.protocol", "neo.topology", "neo.net"},
    # The replicated log knows nothing of NEO.
    "neo.transactor": set(),
    "neo.master": {"neo.protocol", "neo.topology", "neo.net", "neo.node", "neo.transactor"},
    "neo.storage": {"neo.protocol", "neo.topology", "neo.net", "neo.node", "neo.schema"},
    "neo.admin": {"neo.protocol", "neo.topology", "neo.net", "neo.node"},
    # It serves threads, without an event loop.
    "neo.client": {"neo.protocol", "neo.topology", "neo.net"},
    "neoctl": {"neo.protocol", "neo.net", "neo.admin"},
    "neo.simple": {"neo.protocol", "neo.topology", "neo.net", "neo.node", "neo.client", "neoctl"},
    "neo.migrate": {"neo.protocol", "neo.client"},
    # Records read without their classes: knows ZODB's format and nothing of the cluster.
    "neo.codec": set(),
    "neo.spark": {"neo.protocol", "neo.client", "neo.codec"},
    "pyspark_neo": {"neo.spark"},
    "neo.export": {"neo.protocol", "neo.client", "neo.codec", "neo.migrate", "neo.spark"},
    "neo.demo": {"neo.protocol", "neo.client", "neo.simple", "neo.migrate", "neoctl"},
    # A cluster in one process. Nothing may import it.
    "neo.sim": {
        *("neo.protocol", "neo.topology", "neo.net", "neo.node"),
        *("neo.master", "neo.storage", "neo.admin", "neo.client", "neo.transactor"),
    },
}

#: Modules that touch the world: none of them in a core, which is given what it needs.
WORLD = {
    *("MySQLdb", "asyncio", "concurrent", "fcntl", "multiprocessing", "os", "random", "secrets"),
    *("select", "signal", "smtplib", "socket", "sqlite3", "ssl", "subprocess", "threading"),
    *("time", "uvloop"),
}
#: The shells, which may.
SHELLS = (
    "neo.admin.smtp",
    "neo.client",
    "neo.demo",
    "neo.export",
    "neo.master.election.folder",
    "neo.migrate",
    "neo.net.sockets",
    "neo.net.transport",
    "neo.node.log",
    "neo.node.process",
    "neo.sim",
    "neo.simple",
    "neo.spark.report",
    "neo.storage.backend",
    "neo.transactor.client",
    "neo.transactor.daemon",
    "neo.transactor.disk",
    "neo.transactor.example",
    "neo.transactor.mlog",
    "neo.transactor.sockets",
    "neo.transactor.store",
    "neo.transactor.tlog",
    "neoctl",
)
#: Single names that others may use: types and computations without effect on the world.
EXCEPTIONS = {
    "neo.codec.stubs": {"threading.local"},  # what one call leaves to the next on the same stack
    "neo.net.tls": {"ssl", "threading.Lock"},  # TLS in memory, shared by two threads
    "neo.node.core": {"random.Random"},  # the type of what the shell gives
    "neo.master.election.tenure": {"random.Random"},
}

LINES = 400
FUNCTION_LINES = 60
LONG_FILES = {"neo.protocol.packets"}  # the table of messages, in one piece


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything imported, at any depth; ``from a import b`` is ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


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
        imported
        for imported in imports(ast.parse(source))
        if imported.split(".")[0] in {"neo", "neoctl", "pyspark_neo", "tests"}
        and (imported.startswith("tests") or package_of(imported) != package)
        and not within(imported, MAY_IMPORT[package])
    ]


def world_violations(name: str, source: str) -> list[str]:
    if within(name, SHELLS) or name.endswith(".__main__"):
        return []
    return [
        imported
        for imported in imports(ast.parse(source))
        if imported.split(".")[0] in WORLD and not within(imported, EXCEPTIONS.get(name, set()))
    ]


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_go_down_only(path: Path) -> None:
    assert layer_violations(module_name(path), path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_only_shells_touch_the_world(path: Path) -> None:
    assert world_violations(module_name(path), path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    if module_name(path) not in LONG_FILES:
        assert len(source.splitlines()) < LINES
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 >= FUNCTION_LINES
    ]
    assert long == []


def test_every_package_of_the_table_exists() -> None:
    names = {module_name(path) for path in SOURCES}
    assert all(any(within(name, {package}) for name in names) for package in MAY_IMPORT)
    assert names >= set(EXCEPTIONS) | LONG_FILES


def test_the_checks_see_what_is_wrong() -> None:
    assert layer_violations("neo.master.core", "from neo.storage.core import x") == [
        "neo.storage.core.x"
    ]
    assert layer_violations("neo.client.cache", "def f():\n import neo.node.core") == [
        "neo.node.core"
    ]
    assert layer_violations("neo.net.tls", "from tests import support") == ["tests.support"]
    assert layer_violations("neo.client.uri", "import pyspark_neo") == ["pyspark_neo"]
    assert layer_violations("neo.node.core", "from neo.net import tls\nimport json") == []
    assert world_violations("neo.master.core", "from time import sleep") == ["time.sleep"]
    assert world_violations("neo.net.tls", "import threading") == ["threading"]
    assert world_violations("neo.storage.core", "import sqlite3, signal") == ["sqlite3", "signal"]
    assert world_violations("neo.net.transport", "import asyncio") == []
