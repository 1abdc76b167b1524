"""The check of commits that change only prose ignores some differences and reports all others."""

from __future__ import annotations

import pytest

from tools.compare_syntax import skeleton

BEFORE = '''
"""A module."""
LIMIT = 3
"""Bytes."""

def f(n):
    """Say."""
    # A comment.
    if n > LIMIT:
        logger.warning("more than %s: %s", LIMIT, n)
        raise ValueError(f"{n} is too much")
    return "text"

class Empty:
    """Nothing."""
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A module.", "The module."),
        ('"""Bytes."""', ""),
        ("Say.", "Return a text."),
        ("    # A comment.\n", ""),
        ('    """Nothing."""', "    pass"),
    ],
)
def test_docstrings_and_comments_do_not_count(old: str, new: str) -> None:
    assert skeleton(BEFORE.replace(old, new)) == skeleton(BEFORE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ('return "text"', 'return "Text"'),
        ("more than", "above"),
        ("is too much", "is more than the limit"),
    ],
)
def test_everything_else_counts(old: str, new: str) -> None:
    assert skeleton(BEFORE.replace(old, new)) != skeleton(BEFORE)


def test_messages_do_not_count_if_they_are_excluded() -> None:
    after = BEFORE.replace("more than", "above").replace("is too much", "exceeds the limit")
    assert skeleton(after, messages=True) == skeleton(BEFORE, messages=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [("LIMIT, n)", "n, LIMIT)"), ("{n} is", "{LIMIT} is"), ('return "text"', 'return "Text"')],
)
def test_what_a_message_shows_counts_always(old: str, new: str) -> None:
    after = BEFORE.replace(old, new)
    assert skeleton(after, messages=True) != skeleton(BEFORE, messages=True)
