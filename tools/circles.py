"""List circles of files that import each other, with the imports that only type checkers see.

tools/circles.py [neo/master ...]   circles within these folders; all of the product if none is given
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("neo", "neoctl", "pyspark_neo", "examples")


def module_name(path: Path, root: Path = ROOT) -> str:
    """Return the dotted name of a file; that of its folder for ``__init__.py``."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str) -> Iterator[str]:
    """Yield dotted names of all that a module imports, at any depth; ``from a import b`` is ``a.b``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def graph(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return which of the modules, given as name and source, imports which other ones."""
    edges: dict[str, set[str]] = {}
    for name, source in sources.items():
        found = set()
        for dotted in imported(source):
            target = dotted if dotted in sources else dotted.rpartition(".")[0]
            if target in sources and target != name:
                found.add(target)
        edges[name] = found
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, the largest first."""
    found = []
    left = set(edges)
    while left:
        start = min(left)
        circle = _reachable(edges, start) & _reachable(_reversed(edges), start)
        left -= circle
        if len(circle) > 1:
            found.append(sorted(circle))
    return sorted(found, key=lambda circle: (-len(circle), circle))


def _reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    seen = {start}
    stack = [start]
    while stack:
        for target in edges[stack.pop()] - seen:
            seen.add(target)
            stack.append(target)
    return seen


def _reversed(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    result: dict[str, set[str]] = {name: set() for name in edges}
    for name, targets in edges.items():
        for target in targets:
            result[target].add(name)
    return result


def type_checking_blocks(source: str) -> int:
    """Count the statements ``if TYPE_CHECKING:`` of a module."""
    return sum(
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for node in ast.walk(ast.parse(source))
    )


def product(folders: Iterable[str] = PRODUCT) -> dict[str, str]:
    """Return name and source of each module in the folders, which are relative to the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {module_name(path): path.read_text("utf-8") for path in paths}


def main() -> None:
    sources = product(sys.argv[1:] or PRODUCT)
    for circle in circles(graph(sources)):
        print(f"{len(circle)} files: {', '.join(circle)}")
    blocks = {name: n for name, source in sources.items() if (n := type_checking_blocks(source))}
    print(f"{sum(blocks.values())} blocks of TYPE_CHECKING: {', '.join(blocks) or 'none'}")


if __name__ == "__main__":
    main()
