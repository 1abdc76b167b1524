"""``neoctl print lost`` names lost contents, and where a backup has them (specification 26.23, 28.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from neo.archive.folder import ArchiveFolder
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerLostContents, AskLostContents
from tests.unit.neoctl.conftest import Console

Make = Callable[..., Console]
CHECKSUM = bytes([0xAB, 1]) + bytes(30)
FILE = f"contents/ab/{CHECKSUM.hex()}"
ROWS = [(2, p64(42), p64(7), CHECKSUM, 3_400_000)]


def test_a_line_for_each_revision(console: Make) -> None:
    ctl = console({AskLostContents: AnswerLostContents(ROWS)})
    assert ctl("print", "lost") == 0
    assert ctl.out.splitlines() == [
        "# node | object | transaction | size | file in a backup made of files",
        f"S2 | 0x000000000000002a | 0x0000000000000007 | 3.4 MB | {FILE}",
    ]
    ctl("print", "lost", "--json")
    (row,) = json.loads(ctl.out)["lost"]
    assert (row["nid"], row["oid"], row["file"]) == ("S2", "0x000000000000002a", FILE)


def test_nothing_is_lost(console: Make) -> None:
    ctl = console({AskLostContents: AnswerLostContents([])})
    ctl("print", "lost")
    assert ctl.out.splitlines() == ["No storage node knows of lost contents of blobs."]


def test_the_file_is_where_a_backup_has_it(tmp_path: Path) -> None:
    """Specification 28.2."""
    tid = p64(7)
    path = ArchiveFolder(str(tmp_path)).content(tid, CHECKSUM)
    assert path.is_relative_to(ArchiveFolder(str(tmp_path)).copy(tid))
    assert path.relative_to(ArchiveFolder(str(tmp_path)).copy(tid)).as_posix() == FILE
