"""Fixtures of the tests that type the commands of a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.terminal import Terminal
from tests.support.ports import free_range


@pytest.fixture
def port() -> int:
    """Return the first of eleven ports that are free now: no page needs more."""
    return free_range(11)


@pytest.fixture
def terminal(tmp_path: Path, port: int) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, port)
    try:
        yield terminal
    finally:
        terminal.close()
