"""The exact commands of docs/growing.md, while clients write all the time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ZODB.DB import DB

from neo.client import Storage
from tests.faults.mixed import check_end, prepare
from tests.faults.mixed_load import Load
from tests.faults.rows import check_equal
from tests.faults.terminal import Terminal, blocks

PAGE = Path(__file__).parents[2] / "docs" / "growing.md"
CLIENTS = 4
#: Long enough for eight nodes and a master in turn, on a machine that runs other tests, too.
LIMIT_SECONDS = 400


@pytest.mark.timeout(LIMIT_SECONDS)
def test_the_page_is_right_and_nothing_is_lost(terminal: Terminal, tmp_path: Path, port: int) -> None:
    configure, begin, helpers, grow, replace, remove, look, end = blocks(PAGE.read_text("utf-8"))
    masters = f"127.0.0.1:{port}"
    terminal.type(configure)
    assert "RUNNING" in terminal.type(begin)
    prepare(Storage(masters, "shop"), CLIENTS)
    load = Load(masters, "shop", tmp_path, [()] * CLIENTS)
    try:
        load.wait_progress()
        terminal.type(helpers)
        for commands in (grow, replace, remove):
            print(terminal.type(commands))
            load.wait_progress()
        load.stop()
    finally:
        load.kill()
    said = terminal.type(look)
    assert "No problem." in said and "no storage node may fail" not in said
    assert re.findall(r"^(S\d) \|", said, re.MULTILINE) == ["S5", "S6", "S7", "S8"]
    db = DB(Storage(masters, "shop"))
    try:
        check_end(db.open(), tmp_path, CLIENTS)
    finally:
        db.close()
    terminal.type(end)
    check_equal(tmp_path / "neo.conf", 12, 2, [f"storage{n}" for n in (5, 6, 7, 8)])
