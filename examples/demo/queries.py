"""Queries of a library of modules.

Each function takes a Library (any connection, any time in history), changes nothing, and returns rows,
the most significant first. A query that reads many objects requests the next ones together
(``prefetch``) instead of one by one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice
from typing import TypeVar

from persistent import Persistent

from examples.demo.model import Definition, Library, Module, beginning_with, words_of

# Objects that are requested together: a few hundred kilobytes, which any cache can hold.
PREFETCH = 500

P = TypeVar("P", bound=Persistent)


def read_ahead(objects: Iterable[P]) -> Iterator[P]:
    """Yield the same objects in the same order, loaded PREFETCH at a time."""
    remaining = iter(objects)
    while batch := list(islice(remaining, PREFETCH)):
        ghosts = [each for each in batch if each._p_changed is None]
        if ghosts:
            ghosts[0]._p_jar.prefetch(ghosts)
        yield from batch


def totals(library: Library) -> list[tuple[str, int]]:
    """Return totals: (what, how many)."""
    modules = read_ahead(library.modules.values())
    return [
        ("modules", len(library.modules)),
        ("lines", sum(module.lines for module in modules)),
        ("functions, methods and classes", len(library.definitions)),
        ("words under which they are found", len({key[0] for key in library.words})),
        ("imports from one module to another", len(library.imports)),
    ]


def richest_in_classes(library: Library, count: int) -> list[tuple[str, int, str]]:
    """Return modules that define the most classes: (module, classes, summary)."""
    classes = Counter(
        definition.module
        for definition in read_ahead(library.definitions.values())
        if definition.kind == "class"
    )
    return [(name, n, library.modules[name].summary) for name, n in classes.most_common(count)]


def longest_functions(library: Library, count: int) -> list[Definition]:
    """Return functions and methods with the most lines."""
    functions = (d for d in read_ahead(library.definitions.values()) if d.kind != "class")
    return nlargest(count, functions, key=lambda d: (d.length, d.module, d.qualname))


def most_imported(library: Library, count: int) -> list[tuple[str, int]]:
    """Return modules that the most others import: (module, importers)."""
    return Counter(imported for imported, _ in library.imported_by).most_common(count)


def definitions_of(library: Library, name: str) -> list[Definition]:
    """Return the definitions of a name in all modules, a range of one index."""
    return list(library.definitions.values(*beginning_with(name)))


def described_as(library: Library, text: str) -> list[Definition]:
    """Return definitions whose summary has all these words."""
    found: dict[tuple[str, str], Definition] | None = None
    for word in words_of(text):
        range_ = beginning_with(word)
        here = {key[1:]: definition for key, definition in library.words.items(*range_)}
        found = here if found is None else {k: d for k, d in found.items() if k in here}
    return list((found or {}).values())


def most_marks(library: Library, count: int) -> list[Module]:
    """Return modules whose comments mark the most unfinished places (TODO, XXX, FIXME, HACK)."""
    return nlargest(
        count, read_ahead(library.modules.values()), key=lambda m: (len(m.marks), m.name)
    )


def import_chain(library: Library, start: str, goal: str) -> list[str]:
    """Return the shortest chain of imports from one module to another; empty if there is none."""
    came_from: dict[str, str | None] = {start: None}
    queue = deque([start])
    while queue:
        module = queue.popleft()
        if module == goal:
            chain = [module]
            while (previous := came_from[chain[-1]]) is not None:
                chain.append(previous)
            return chain[::-1]
        for _, imported in library.imports.keys(*beginning_with(module)):
            if imported not in came_from:
                came_from[imported] = module
                queue.append(imported)
    return []
