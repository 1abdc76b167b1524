"""docs/failures.md quotes messages: each must be one that the code can say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
#: What varies in a message: shown as this in the page.
GAP = "…"


def literals(tree: ast.AST) -> Iterator[str]:
    """Every text in a module, with a gap for each placeholder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[srd]", GAP, node.value)


def said() -> str:
    """All that the programs can say, one text a line."""
    texts: list[str] = []
    for package in ("neo", "neoctl"):
        for path in sorted((ROOT / package).rglob("*.py")):
            texts += literals(ast.parse(path.read_text("utf-8")))
    return "\n".join(" ".join(text.split()) for text in texts)


def quoted(page: str) -> list[str]:
    """The messages in the first column of the tables."""
    rows = re.findall(r"^\| `([^|]*)` \|", page, re.MULTILINE)
    assert len(rows) > 80
    return rows


@pytest.fixture(scope="module")
def everything() -> str:
    return said()


PAGE = (ROOT / "docs" / "failures.md").read_text("utf-8")


@pytest.mark.parametrize("message", quoted(PAGE))
def test_quoted_message_exists(message: str, everything: str) -> None:
    # A gap of the page may stand for anything in one line, gaps of the message included.
    parts = [re.escape(part.strip()) for part in message.split(GAP) if part.strip(" :.[]")]
    found = re.search(".*".join(parts), everything)
    assert parts and found is not None, f"no program says {message!r}"
