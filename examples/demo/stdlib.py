"""Read Python's standard library from this machine's files into a Library."""

from __future__ import annotations

import ast
import io
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import transaction

from examples.demo.model import Definition, Library, Module, Source

# Folders below the standard library that have other packages, or tests.
FOREIGN = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})
MARKS = ("TODO", "XXX", "FIXME", "HACK")
# Modules per transaction, about 1,500 objects and 1 MB of text: efficient, with visible progress.
MODULES_PER_TRANSACTION = 40

# Called after each commit with (modules kept so far, modules in all, last name).
Progress = Callable[[int, int, str], None]


def standard_library() -> Path:
    """Return the folder of the standard library of the running Python."""
    return Path(sysconfig.get_path("stdlib"))


def find_modules(folder: Path) -> dict[str, Path]:
    """Return all modules below a folder: dotted name → file, in alphabetical order."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if FOREIGN.isdisjoint(parts) and all(part.isidentifier() for part in parts):
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if name:
                found[name] = path
    return found


def load_library(
    db: Any, files: dict[str, Path], progress: Progress = lambda done, total, name: None
) -> int:
    """Load modules into the database, some per transaction; return the number of new ones.

    An interrupted load resumes: existing modules are skipped. Files that are not valid Python
    (templates, examples of errors) are skipped too.
    """
    manager = transaction.TransactionManager(explicit=True)
    connection = db.open(manager)
    try:
        with manager:
            library = connection.root().setdefault("library", Library())
            missing = [name for name in files if name not in library.modules]
        total = len(missing)
        names = iter(missing)
        done = 0
        while batch := list(islice(names, MODULES_PER_TRANSACTION)):
            with manager as attempt:
                attempt.user = "librarian"
                attempt.note(f"{len(batch)} modules, {batch[0]} to {batch[-1]}")
                for name in batch:
                    module = read_module(name, files)
                    if module is not None:
                        library.add(module)
            # Free sources and definitions; changed BTrees stay in memory.
            connection.cacheGC()
            done += len(batch)
            progress(done, total, batch[-1])
        return total
    finally:
        connection.close()


def read_module(name: str, files: dict[str, Path]) -> Module | None:
    """Return a file as a Module with its definitions; None if it is not valid Python."""
    path = files[name]
    try:
        with tokenize.open(path) as file:
            text = file.read()
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError):
        return None
    is_package = path.name == "__init__.py"
    return Module(
        name,
        Source(text),
        lines=text.count("\n"),
        summary=summary_of(tree),
        definitions=tuple(definitions_in(tree, name)),
        imports=tuple(sorted(imports_in(tree, name, is_package, files.keys()))),
        marks=tuple(marks_in(text)),
    )


def definitions_in(
    node: ast.AST, module: str, prefix: str = "", in_class: bool = False
) -> Iterator[Definition]:
    """Yield functions, methods and classes below a node, outer before inner."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_class = isinstance(child, ast.ClassDef)
            kind = "class" if is_class else "method" if in_class else "function"
            qualname = prefix + child.name
            length = (child.end_lineno or child.lineno) - child.lineno + 1
            yield Definition(module, qualname, kind, child.lineno, length, summary_of(child))
            yield from definitions_in(child, module, qualname + ".", is_class)
        else:
            yield from definitions_in(child, module, prefix, in_class)


def imports_in(tree: ast.AST, module: str, is_package: bool, known: Any) -> set[str]:
    """Return the known modules that a module imports, anywhere in its text."""
    package = module if is_package else module.rpartition(".")[0]
    wanted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            wanted.add(base)
            wanted.update(f"{base}.{alias.name}" for alias in node.names)
    wanted.discard(module)
    return wanted.intersection(known)


def marks_in(text: str) -> Iterator[tuple[int, str]]:
    """Return comments that mark unfinished work: (line, text)."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and any(mark in token.string for mark in MARKS):
            yield token.start[0], token.string.lstrip("# ")


def summary_of(node: Any) -> str:
    """Return the first line of a docstring; empty without one."""
    lines = (ast.get_docstring(node) or "").strip().splitlines()
    return lines[0].strip() if lines else ""
