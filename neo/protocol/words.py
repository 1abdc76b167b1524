"""Words of sentences for people."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with the words that follow it: ``1 cell is copied``, ``2,000 cells are copied``.
    ``many``: ``one`` with an *s*, if it is not given."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
