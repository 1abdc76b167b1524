"""docs/known-failures.md: a short list, each entry in one form, so that it can be repeated and judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "known-failures.md"
MOST = 5
ITEMS = ["Repeat", "Commit", "Violated", "For a user", "Tried"]
NONE = "There is none."


def errors(page: str) -> list[str]:
    """Return what is wrong with the list of failures of a page."""
    _, heading, listed = page.partition("\n## The failures\n")
    if not heading or "\n## " in listed:
        return ["the page must end with the section 'The failures'"]
    preface, *entries = re.split(r"^### ", listed, flags=re.M)
    if not entries:
        return [] if preface.strip() == NONE else [f"an empty list says: {NONE}"]
    found = [f"at most {MOST} failures may stand here"] if len(entries) > MOST else []
    for entry in entries:
        title, _, text = entry.partition("\n")
        items = re.findall(r"^\* \*\*([^*]+):\*\*", text, re.M)
        if items != ITEMS:
            found.append(f"{title}: the items are {', '.join(items)}")
        if not re.search(r"^\* \*\*Repeat:\*\* .*`[^`]*\d[^`]*`", text, re.M):
            found.append(f"{title}: no command with a seed")
        if not re.search(r"^\* \*\*Commit:\*\* .*\b[0-9a-f]{7,40}\b", text, re.M):
            found.append(f"{title}: no commit")
    return found


def test_the_list_is_short_and_each_entry_has_the_form() -> None:
    assert errors(PAGE.read_text("utf-8")) == []


def test_the_form_is_that_of_the_page() -> None:
    form = PAGE.read_text("utf-8").partition("## The form")[2].partition("## ")[0]
    assert re.findall(r"^\* \*\*([^*]+):\*\*", form, re.M) == ITEMS


ENTRY = """### a client waits for ever
* **Repeat:** `python -m tests.simulator --seeds 77`
* **Commit:** 1ff85b48
* **Violated:** progress
* **For a user:** it waits
* **Tried:** nothing
"""


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (NONE, 0),
        ("", 1),
        (ENTRY * MOST, 0),
        (ENTRY * (MOST + 1), 1),
        (ENTRY.replace("--seeds 77", ""), 1),
        (ENTRY.replace("1ff85b48", "the last one"), 1),
        (ENTRY.replace("* **Tried:** nothing\n", ""), 1),
    ],
)
def test_the_check_sees_what_is_wrong(listed: str, expected: int) -> None:
    assert len(errors(f"# Known failures\n\n## The failures\n{listed}")) == expected
