"""Counts in sentences for people."""

from __future__ import annotations

import pytest

from neo.protocol.words import counted


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (1, ("partition",), "1 partition"),
        (0, ("partition",), "0 partitions"),
        (2000, ("cell is copied", "cells are copied"), "2,000 cells are copied"),
        (1, ("cell is copied", "cells are copied"), "1 cell is copied"),
    ],
)
def test_the_words_fit_the_count(count: int, words: tuple[str, ...], text: str) -> None:
    assert counted(count, *words) == text
