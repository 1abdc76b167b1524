"""Answers about a library of which everything is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo import queries, stdlib
from examples.demo.model import Library


@pytest.fixture
def library(folder: Path, db: Any) -> Iterator[Library]:
    """The library as a new connection finds it: nothing is loaded yet."""
    stdlib.load_library(db, stdlib.find_modules(folder))
    with db.transaction() as connection:
        connection.cacheMinimize()
        yield connection.root()["library"]


def test_totals_count_everything_once(library: Library) -> None:
    assert dict(queries.totals(library)) == {
        "modules": 7,
        "lines": 18 + 7 + 2 + 3 + 2 + 1 + 1,
        "functions, methods and classes": 6,
        "words under which they are found": 8,
        "imports from one module to another": 7,
    }


def test_the_module_with_most_classes_comes_first(library: Library) -> None:
    assert queries.richest_in_classes(library, 5) == [("alpha", 2, "The first module.")]


def test_the_longest_function_comes_first_and_classes_do_not_count(library: Library) -> None:
    longest = [(d.qualname, d.length) for d in queries.longest_functions(library, 3)]
    assert longest == [("shut", 4), ("open", 4), ("Door.open", 4)]


def test_importers_are_counted_per_module(library: Library) -> None:
    assert queries.most_imported(library, 1) == [("kit.tools", 2)]
    assert dict(queries.most_imported(library, 9))["gamma"] == 1


def test_a_name_is_found_wherever_it_is_defined(library: Library) -> None:
    found = [(d.module, d.qualname) for d in queries.definitions_of(library, "open")]
    assert found == [("alpha", "Door.open"), ("alpha", "open")]


def test_a_name_is_not_found_under_its_beginning(library: Library) -> None:
    assert queries.definitions_of(library, "ope") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open", ["Door.open", "open"]),
        ("Temporary FILE!", ["open"]),
        ("open nothing", []),
        ("nothing open", []),
        ("", []),
    ],
)
def test_words_are_searched_together(library: Library, text: str, found: list[str]) -> None:
    assert [d.qualname for d in queries.described_as(library, text)] == found


def test_the_module_with_most_marks_comes_first(library: Library) -> None:
    assert [m.name for m in queries.most_marks(library, 2)] == ["kit.deep", "alpha"]


def test_the_chain_of_imports_is_the_shortest(library: Library) -> None:
    chain = queries.import_chain(library, "alpha", "gamma")
    assert chain == ["alpha", "kit.tools", "kit.deep.spade", "gamma"]


def test_there_is_no_chain_against_the_imports(library: Library) -> None:
    assert queries.import_chain(library, "gamma", "alpha") == []


def test_reading_ahead_gives_every_object_once_in_order(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PREFETCH", 2)
    assert [m.name for m in queries.read_ahead(library.modules.values())] == list(library.modules)
