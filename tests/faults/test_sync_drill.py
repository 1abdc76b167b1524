"""The drill of docs/standby.md: the upstream cluster of a synchronous backup is lost."""

from __future__ import annotations

import re

import pytest

from tests.faults.terminal import ROOT, Terminal, blocks

PAGE = ROOT / "docs" / "standby.md"
#: About 10 seconds, on a machine that does nothing else.
LIMIT_SECONDS = 200


@pytest.mark.timeout(LIMIT_SECONDS)
def test_the_drill_is_right_and_nothing_is_lost(terminal: Terminal, port: int) -> None:
    """Specification 25.5, 25.14, 25.25, 25.46."""
    section = PAGE.read_text("utf-8").partition("\n### A drill\n")[2].partition("\n## ")[0]
    begin, count, lose, take_over, return_, end = blocks(section)
    assert "| nothing\n" in terminal.type(begin)
    terminal.type(count)
    assert "if that cluster stopped before that, nothing is missing" in terminal.type(lose)
    found = re.search(r"(\d+) were acknowledged, (\d+) are here", terminal.type(take_over))
    assert found is not None
    acknowledged, here = map(int, found.groups())
    assert 100 <= acknowledged <= here <= acknowledged + 1
    assert "in sync with 'shop-standby' since" in terminal.type(return_)
    said = terminal.type(f"python check.py 127.0.0.1:{port} shop")
    assert f"{acknowledged} were acknowledged, {here} are here" in said
    terminal.type(end)
