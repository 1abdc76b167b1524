"""Citations of the specification resolve, and no citation leads out of the repository."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "specification"
#: Where citations may stand. Data, and pages that are generated from these files, are left out.
FOLDERS = (".ci", "docs", "examples", "neo", "neoctl", "pyspark_neo", "schema", "tests", "tools")
SUFFIXES = {"", ".in", ".md", ".py", ".sh", ".sql", ".svg", ".xml"}
SINGLE = ("CHANGELOG.md", "Makefile", "README.md", "setup.cfg", "tox.ini")

#: Between words: a line may end there, and the next one begin a comment.
GAP = r"\s+(?:(?:#:?|--)\s+)?"
NUMBER = r"\d+(?:\.\d+)?"
NUMBERS = rf"({NUMBER}(?:(?:,|,? and| to){GAP}{NUMBER})*)"
CITATION = re.compile(rf"\b[Ss]pecification{GAP}{NUMBERS}")
#: The same between pages of the specification.
REFERENCE = re.compile(rf"\brules?{GAP}{NUMBERS}")
RULE = re.compile(r"^\*\*(\d+\.\d+)\*\* ", re.MULTILINE)

#: What cites a document that is not in the repository.
OUTSIDE = re.compile(
    r"\bFACTS\b|\b[Ff]acts\s+\d"
    r"|\b(?:BASELINE|BLOBS|DESIGN|FACTS|HOUSE|NEOCTL|OPERATIONS|PROSE|SITES|SPARK|STYLE|TABLES|USERS)\.md\b"
    rf"|\b(?:DESIGN|SPARK),{GAP}\*|\((?:DESIGN|SPARK)\)|\bspecification[,;]{GAP}[*\"]|\bspecification{GAP}\(\*"
    rf"|\(\*(?:Commit|Joining|RECOVERING)\b|\bsee \*Extra\b|\bcaptures?{GAP}\*\w"
    r"|\bshared/(?:design|seeds|wire)\b|\bwire/captures\b"
)


def files() -> Iterator[Path]:
    """Yield every file that may cite something."""
    yield from (ROOT / name for name in SINGLE)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
                yield path


def numbering_errors(page: int, text: str) -> list[str]:
    """Return what is wrong with the numbers of the rules of a page: each is that of one rule."""
    numbers = RULE.findall(text)
    errors = [f"{n} stands on page {page}" for n in numbers if n.split(".")[0] != str(page)]
    errors += [f"{number} stands twice" for number, count in Counter(numbers).items() if count > 1]
    return errors if numbers else [f"page {page} has no rule"]


def page_number(path: Path) -> int:
    return int(path.name.split("-")[0])


def known_numbers() -> set[str]:
    """Return the numbers of all pages and rules."""
    numbers: set[str] = set()
    for path in PAGES.glob("[0-9]*.md"):
        numbers.add(str(page_number(path)))
        numbers.update(RULE.findall(path.read_text("utf-8")))
    return numbers


def cited(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, number) of each number that is cited."""
    for match in pattern.finditer(text):
        for number in re.findall(NUMBER, match[1]):
            yield text.count("\n", 0, match.start()) + 1, number


def unresolved(name: str, text: str, known: set[str], within: bool) -> list[str]:
    """Return the citations that lead nowhere. ``within``: the text is a page of the specification."""
    patterns: Iterable[re.Pattern[str]] = (CITATION, REFERENCE) if within else (CITATION,)
    return [
        f"{name}:{line}: there is no rule {number} in docs/specification"
        for pattern in patterns
        for line, number in cited(text, pattern)
        if number not in known
    ]


def outside(name: str, text: str) -> list[str]:
    """Return the citations of documents that are not in the repository."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r} is not in the repository"
        for match in OUTSIDE.finditer(text)
    ]


# -- the repository --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(PAGES.glob("[0-9]*.md")), ids=lambda path: path.stem)
def test_each_number_of_a_page_is_that_of_one_rule(path: Path) -> None:
    text, page = path.read_text("utf-8"), page_number(path)
    assert text.startswith(f"# {page}. ")
    assert numbering_errors(page, text) == []


def test_index_lists_all_pages_in_order() -> None:
    index = (PAGES / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| \[.*\]\((.*?)\)", index, re.MULTILINE)
    pages = sorted(PAGES.glob("[0-9]*.md"))
    assert rows == [(str(page), path.name) for page, path in enumerate(pages, 1)]


def test_every_citation_leads_to_a_rule_in_the_repository() -> None:
    known = known_numbers()
    assert len(known) > 600
    wrong: list[str] = []
    for path in files():
        if path != Path(__file__):
            name, text = str(path.relative_to(ROOT)), path.read_text("utf-8")
            wrong += unresolved(name, text, known, path.parent == PAGES)
            wrong += outside(name, text)
    assert not wrong, "\n".join(wrong)


def test_glossary_is_sorted_and_names_pages() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    terms = [term.strip("`").lower() for term in re.findall(r"^\| (.*?) \|", text, re.MULTILINE)[1:]]
    assert len(terms) > 80
    assert terms == sorted(terms)
    pages = re.findall(r"\((\d+(?:, \d+)*)\) \|$", text, re.MULTILINE)
    assert {page for row in pages for page in row.split(", ")} <= known_numbers()


# -- the checks themselves -------------------------------------------------------------------------

KNOWN = {"7", "8", "7.12", "7.13", "8.3"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("specification 7.99", ["7.99"]),
        ("as in specification 7.12, 8.99.", ["8.99"]),
        ("(specification 9)", ["9"]),
        ("specification\n    7.14", ["7.14"]),
        ("#: specification\n#: 7.12 and\n#: 7.15", ["7.15"]),
        ("-- specification 7 to\n-- 9", ["9"]),
        ("specification 7.12, 8.3 and 7; specification 8", []),
        ("specification 7. 9 nodes", []),
    ],
)
def test_wrong_numbers_are_found(text: str, numbers: list[str]) -> None:
    found = unresolved("planted.py", text, KNOWN, within=False)
    assert [error.split("rule ")[1].split(" ")[0] for error in found] == numbers


def test_references_between_pages_are_followed() -> None:
    assert unresolved("page", "as rules 7.12, 7.14 say", KNOWN, within=True) == [
        "page:1: there is no rule 7.14 in docs/specification"
    ]
    assert unresolved("planted.py", "as rule 7.14 says", KNOWN, within=False) == []


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("**7.1** A.\n\n**7.2** B.\n\n**7.5** C.\n", []),
        ("**7.1** A.\n\n**7.1** B.\n", ["7.1 stands twice"]),
        ("**7.2** A.\n\n**7.1** B.\n\n**7.3** C.\n", []),
        ("**7.1** A.\n\n**8.2** B.\n", ["8.2 stands on page 7"]),
        ("A page.\n", ["page 7 has no rule"]),
    ],
)
def test_wrong_numbering_is_found(text: str, errors: list[str]) -> None:
    assert numbering_errors(7, text) == errors


@pytest.mark.parametrize(
    "text",
    [
        "sent after the tables (FACTS 3.7)",
        "back with an old table (wire facts 5.5)",
        "specification, *Commit*",
        "specification,\n    *Commit*",
        '-- (specification, "Storage Backends")',
        "the specification (*Other Constants*)",
        "as kept in TABLES.md",
        "#: (DESIGN,\n#: *Fixed*)",
        "../shared/wire/captures",
        "the capture *clone*",
        "kept by the rule (*RECOVERING*)",
        "columns are signed (SPARK, *Schemas*)",
    ],
)
def test_citations_that_lead_out_are_found(text: str) -> None:
    assert len(outside("planted.py", text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "the specification of a post",
        "specification 7.12",
        "the *specification* (any bytes)",
        "NEOCTL = 1",
    ],
)
def test_other_words_are_no_citations(text: str) -> None:
    assert outside("planted.py", text) == []
