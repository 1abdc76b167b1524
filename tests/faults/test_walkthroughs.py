"""The pages that a reader follows from the beginning to the end: each example works, in this order."""

from __future__ import annotations

import re

import pytest

from tests.faults.terminal import ROOT, Terminal

#: About 10 seconds each, on a machine that does nothing else.
LIMIT_SECONDS = 200
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[str]:
    """Return the examples of a page as commands of a shell. What installs packages is done already.

    Python is executed, or written into a file, if the sentence before names one.
    """
    text = (ROOT / "docs" / page).read_text("utf-8")
    found = []
    before = 0
    for block in BLOCK.finditer(text):
        language, code = block.groups()
        named = re.findall(r"`(\w+\.py)`", text[before : block.start()].rstrip().rpartition("\n\n")[2])
        before = block.end()
        if "pip install" in code:
            continue
        if language == "python":
            target = f"cat > {named[0]}" if named else "python -W error::ResourceWarning -"
            code = f"{target} <<'END OF EXAMPLE'\n{code}END OF EXAMPLE\n"
        found.append(code)
    return found


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize(
    ("pages", "says"),
    [
        (["tutorial.md"], ["Ada\n", "Edsger\n", "Barbara\n", "No problem.", "still there", "it is 10\n"]),
        (["from-zeo.md"], ["Ctrl-C stops it"]),
        (["parquet.md", "recipes.md"], ["article 100 │  150.0", "75.675", "BTrees.OOBTree.OOBucket"]),
    ],
)
def test_page_can_be_followed(terminal: Terminal, pages: list[str], says: list[str]) -> None:
    said = "".join(terminal.type(command) for page in pages for command in commands(page))
    assert [text for text in says if text not in said] == [], said
