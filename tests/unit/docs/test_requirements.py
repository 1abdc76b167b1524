"""docs/specification/requirements.md: each requirement has rules, and each test that is named exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "specification"
RULE = re.compile(r"^\*\*(\d+\.\d+)\*\* ", re.MULTILINE)
TEXT = (PAGES / "requirements.md").read_text("utf-8")
#: Requirements of the table.
COUNT = 23
#: (number, rules, tests)
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
#: The pages that fulfil the requirements.
FULFILLING = ("24-prepared-transactions.md", "25-synchronous-backups.md")
#: In the column of tests: there is none yet.
NONE = "–"


def rules() -> set[str]:
    return {rule for page in FULFILLING for rule in RULE.findall((PAGES / page).read_text("utf-8"))}


@cache
def functions(path: Path) -> set[str]:
    """Return the names of the functions of a module."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def errors(text: str) -> Iterator[str]:
    """Yield what is wrong with the rows of a page of requirements."""
    known = rules()
    for number, cited, tests in ROW.findall(text):
        for rule in cited.split(", "):
            if rule not in known:
                yield f"requirement {number}: there is no rule {rule!r} on pages 24 and 25"
        for name in tests.split(", ") if tests != NONE else ():
            file, _, function = name.strip("`").partition("::")
            path = ROOT / "tests" / file
            if not path.is_file() or function not in functions(path):
                yield f"requirement {number}: there is no test {name}"


def test_all_requirements_are_listed_in_order() -> None:
    assert [int(row[0]) for row in ROW.findall(TEXT)] == list(range(1, COUNT + 1))
    assert len(re.findall(r"^\| \d", TEXT, re.MULTILINE)) == COUNT, "a row has another form"


def test_each_requirement_of_operations_has_tests_that_exist() -> None:
    """The table at the end of page 27."""
    _, _, table = (PAGES / "27-operations.md").read_text("utf-8").partition("## Requirements")
    found: list[int] = []
    for numbers, tests in re.findall(r"^\| (\d[^|]*) \| [^|]* \| ([^|]*) \|$", table, re.MULTILINE):
        for part in numbers.split(","):
            first, _, last = part.partition(" to ")
            found += range(int(first), int(last or first) + 1)
        for name in re.findall(r"`([^`]+)`", tests):
            path = ROOT / name if "/" in name else ROOT / "tests" / "unit" / "operations" / name
            assert path.is_file(), name
    assert sorted(found) == list(range(1, 30))


def test_each_requirement_has_rules_and_tests_that_exist() -> None:
    wrong = list(errors(TEXT))
    assert not wrong, "\n".join(wrong)


HERE = "unit/docs/test_requirements.py"


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (f"24.1, 25.1 | `{HERE}::test_wrong_rows_are_found`", []),
        (f"25.1 | {NONE}", []),
        (f" | {NONE}", ["requirement 1: there is no rule '' on pages 24 and 25"]),
        (f"24.99 | {NONE}", ["requirement 1: there is no rule '24.99' on pages 24 and 25"]),
        (f"7.1 | {NONE}", ["requirement 1: there is no rule '7.1' on pages 24 and 25"]),
        (f"24.1 | `{HERE}::test_x`", [f"requirement 1: there is no test `{HERE}::test_x`"]),
        ("24.1 | `unit/x.py::test_x`", ["requirement 1: there is no test `unit/x.py::test_x`"]),
        (f"24.1 | `{HERE}`", [f"requirement 1: there is no test `{HERE}`"]),
    ],
)
def test_wrong_rows_are_found(cells: str, found: list[str]) -> None:
    assert list(errors(f"| 1 | text | {cells} |\n")) == found
