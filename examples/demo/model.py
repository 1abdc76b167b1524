"""The persistent classes of the demonstration.

The schema of a ZODB application is its classes. Two habits shown here matter on any storage:

* big and rarely read data (the text of a module) is a persistent object of its own. So a list of a
  thousand modules does not load ten megabytes.
* searchable data is a BTree whose keys are tuples. So a query is a range of keys, and loads only the
  few buckets of this range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from BTrees.Length import Length
from BTrees.OOBTree import OOBTree, OOTreeSet
from persistent import Persistent

# Greater than each string in a key: the end of a range of tuples.
LAST = "\U0010ffff"


@dataclass(eq=False, repr=False)
class Source(Persistent):
    """The text of one module."""

    text: str


@dataclass(eq=False, repr=False)
class Definition(Persistent):
    """One function, method or class.

    ``kind`` is "function", "method" or "class"; ``line`` counts from 1, ``length`` is in lines.
    """

    module: str
    qualname: str
    kind: str
    line: int
    length: int
    summary: str

    @property
    def name(self) -> str:
        """Return the last part of the qualified name, as it stands after ``def`` or ``class``."""
        return self.qualname.rpartition(".")[2]


@dataclass(eq=False, repr=False)
class Module(Persistent):
    """One module. ``marks``: unfinished places as (line, text of the comment)."""

    name: str
    source: Source
    lines: int
    summary: str
    definitions: tuple[Definition, ...]
    imports: tuple[str, ...]
    marks: tuple[tuple[int, str], ...]


class Library(Persistent):
    """Modules, and four BTrees as cross-references."""

    def __init__(self) -> None:
        self.modules: Any = OOBTree()  # name -> Module
        self.definitions: Any = OOBTree()  # (name, module, qualname) -> Definition
        self.words: Any = OOBTree()  # (word, module, qualname) -> Definition
        self.imports: Any = OOTreeSet()  # (module, imported module)
        self.imported_by: Any = OOTreeSet()  # (imported module, module)

    def add(self, module: Module) -> None:
        """Add a module to all indexes."""
        self.modules[module.name] = module
        for definition in module.definitions:
            where = (definition.module, definition.qualname)
            self.definitions[(definition.name, *where)] = definition
            for word in words_of(definition.summary):
                self.words[(word, *where)] = definition
        for imported in module.imports:
            self.imports.insert((module.name, imported))
            self.imported_by.insert((imported, module.name))


@dataclass(eq=False, repr=False)
class Note(Persistent):
    """A note by one reviewer about one topic."""

    reviewer: str
    topic: str
    text: str


class Desk(Persistent):
    """A place where reviewers work at the same time.

    Two writers never wait for each other here: when both change ``count``, or both insert into the same
    bucket of ``notes``, these classes merge the changes (``_p_resolveConflict``).
    """

    def __init__(self) -> None:
        self.headline = Note("the editor", "headline", "Reviews are open.")
        self.count = Length()
        self.notes: Any = OOBTree()  # (topic, reviewer, number) -> Note


def words_of(text: str) -> Iterator[str]:
    """Return each word of a text once, in lower case, without words of one or two letters."""
    letters = "".join(c if c.isalpha() else " " for c in text.lower())
    return iter({word for word in letters.split() if len(word) > 2})


def beginning_with(*first: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the range (least, greatest) of tuple keys that begin with ``first``."""
    return first, (*first, LAST)
