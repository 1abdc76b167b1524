"""``neoctl`` shows the contents of blobs (specification 26.23)."""

from __future__ import annotations

from neo.protocol.packets import AnswerContents, AskContents, ContentRow
from tests.unit.neoctl.conftest import Make

GB = 1_000_000_000
ROWS: list[ContentRow] = [
    (1, 21_340, 38_700_000_000, 120 * GB, 0, 0),
    (2, 20_000, 30 * GB, 7 * GB, 3, 2),
]


def test_print_blobs_has_a_line_for_each_node(console: Make) -> None:
    ctl = console({AskContents: AnswerContents(ROWS)})
    assert ctl.lines("print", "blobs") == [
        "S1 | 21,340 contents | 38.7 GB | 120.0 GB free",
        "S2 | 20,000 contents | 30.0 GB | 7.0 GB free | 3 lost | 2 partitions to verify",
    ]
    assert ctl.data("print", "blobs")["blobs"][1] == {
        "nid": "S2", "contents": 20_000, "bytes": 30 * GB, "free": 7 * GB, "lost": 3, "unverified": 2,
    }  # fmt: skip


def test_print_blobs_without_any(console: Make) -> None:
    ctl = console({AskContents: AnswerContents([])})
    assert ctl.lines("print", "blobs") == ["No storage node keeps contents of blobs."]


def test_status_tells_how_many_there_are_and_where_the_disk_is_fullest(console: Make) -> None:
    ctl = console({AskContents: AnswerContents([ROWS[0]])})
    ctl("status")
    assert (
        "contents of blobs: 21,340 files, 38.7 GB, on 1 storage node; S1 has 120.0 GB free"
        in ctl.out
    )


def test_status_tells_what_is_lost_and_what_to_do(console: Make) -> None:
    ctl = console({AskContents: AnswerContents(ROWS)})
    ctl("status")
    assert "problem: S2 lost 3 contents of blobs: their files are missing or damaged" in ctl.out
    assert "being verified" in ctl.out


def test_status_names_a_node_without_a_folder(console: Make) -> None:
    """Clients refuse to store blobs in its partitions (specification 26.14)."""
    ctl = console({AskContents: AnswerContents([ROWS[0]])})
    ctl("status")
    assert "S2 keeps no contents of blobs" in ctl.out and "set its blob_dir" in ctl.out


def test_status_says_nothing_without_blobs(console: Make) -> None:
    ctl = console({AskContents: AnswerContents([])})
    ctl("status")
    assert "blobs" not in ctl.out
