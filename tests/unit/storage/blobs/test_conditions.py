"""A storage node tells what makes requests fail on it (specification 17.32)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from neo import __version__
from neo.archive.room import Disk
from neo.protocol.blobs import Content
from neo.protocol.packets import AskConditions, AskDisks, Condition
from neo.storage import conditions, disks
from neo.storage.replication.replicator import RETRY_SECONDS, STUCK_ROUNDS
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.transfers import commit_blob, piece, read
from tests.unit.storage.replicas import Destination
from tests.unit.storage.world import End, World, refused

DATA = b"the content"


def _told(world: World, master: End) -> list[Condition]:
    answer = master.ask(AskConditions())
    found: list[Condition] = answer.condition_list
    return found


TOTAL = 10 << 30


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> dict[str, Disk]:
    """The disks, whatever the machine of the test has."""
    disks = {name: Disk(TOTAL, TOTAL, name) for name in ("database", "folder")}
    monkeypatch.setattr(
        "neo.storage.backend.sqlite.engine.known_disk", lambda path: disks["database"]
    )
    monkeypatch.setattr(
        "neo.storage.blobs.folder.ContentFolder.room", lambda folder: disks["folder"]
    )
    return disks


def test_a_node_in_order_says_nothing(world: World, master: End) -> None:
    assert _told(world, master) == []


@pytest.mark.parametrize(("disk", "name"), [("database", "database"), ("folder", "contents of blobs")])
def test_little_room(
    world: World, master: End, room: dict[str, Disk], disk: str, name: str
) -> None:
    small = Disk(3_000_000, 1 << 22, disk)
    room[disk] = small
    ((kind, severity, text, _),) = _told(world, master)
    assert (kind, severity) == ("room", "problem")
    assert text == f"3.0 MB are free on the disk of its {name}"
    room[disk] = small._replace(free=conditions.FULL_BYTES)
    assert _told(world, master)[0][1] == "warning"
    room[disk] = small._replace(free=conditions.LOW_BYTES)
    assert _told(world, master) == []


@pytest.mark.parametrize(("part", "percent"), [(5, 20), (10, 10)])
def test_a_large_disk_is_told_of_while_there_is_time(
    world: World, master: End, room: dict[str, Disk], part: int, percent: int
) -> None:
    total = 2 * 10**12
    room["database"] = Disk(total // part, total, "database")
    assert all(f"less than {percent} %" not in text for _, _, text, _ in _told(world, master))
    room["database"] = Disk(total // part - 1, total, "database")
    ((kind, severity, text, _),) = _told(world, master)
    assert (kind, severity) == ("room", "warning")
    assert text.endswith(f"free on the disk of its database, less than {percent} % of 2000.0 GB")


def test_one_disk_is_told_of_once(world: World, master: End, room: dict[str, Disk]) -> None:
    room["database"] = room["folder"] = Disk(3_000_000, 1 << 22, "the only one")
    assert [text for _, _, text, _ in _told(world, master)] == [
        "3.0 MB are free on the disk of its database"
    ]


def test_disks_and_what_is_kept_there(
    world: World, master: End, client: End, room: dict[str, Disk]
) -> None:
    """Specification 17.36. The bytes of the database may be a minute old, those of disks may not."""
    empty = master.ask(AskDisks())
    assert empty.version == __version__ and empty.size > 0
    assert empty.disk_list == [(name, TOTAL, TOTAL) for name in ("database", "contents of blobs")]
    commit_blob(master, client, DATA, 12)
    room["database"] = Disk(5, TOTAL, "database")
    soon = master.ask(AskDisks())
    assert soon.size == empty.size and soon.disk_list[0] == ("database", 5, TOTAL)
    world.host.now += disks.GOOD_SECONDS
    assert master.ask(AskDisks()).size >= empty.size + len(DATA)


def test_a_disk_that_is_gone_has_no_room_that_could_be_told(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.blobs.folder.ContentFolder.room", lambda folder: None)
    assert _told(world, master) == []
    assert [what for what, _, _ in master.ask(AskDisks()).disk_list] == ["database"]


def test_an_upload_without_room(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(data: bytes, content: Content, lost: bool, done: Any) -> None:
        done(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    with monkeypatch.context() as patch:
        patch.setattr(world.folder, "store", full)
        refused(client.ask(piece(DATA)))
    ((kind, severity, text, _),) = _told(world, master)
    assert (kind, severity) == ("upload", "problem") and "want of room" in text
    world.host.now += conditions.RECENT_SECONDS
    assert _told(world, master) == []


def test_another_failure_of_an_upload_is_the_business_of_the_client(
    world: World, master: End, client: End
) -> None:
    refused(client.ask(replace(piece(DATA), checksum=bytes(32))))
    assert _told(world, master) == []


def test_a_content_that_no_node_has(
    world: World, master: End, client: End, folder: Path
) -> None:
    commit_blob(master, client, DATA, 12)
    (file,) = folder.glob("[0-9a-f][0-9a-f]/*")
    file.unlink()
    refused(read(client, DATA))
    world.wait(lambda: bool(world.core.blobs.contents.nowhere), "nobody is asked")
    ((kind, severity, text, _),) = _told(world, master)
    assert (kind, severity) == ("content", "problem")
    assert content_of(DATA).checksum.hex() in text and "1 content of a blob is on no node" in text
    world.core.blobs.contents.intact(content_of(DATA).checksum)
    assert _told(world, master) == []


def test_a_cell_that_cannot_be_copied(world: World) -> None:
    node = Destination(world)
    node.unfinished(12)
    replicator = world.core.replicator
    cell = next(iter(replicator._outdated.values()))
    for number in range(STUCK_ROUNDS):
        assert _told(world, node.master) == []
        world.wait(lambda: bool(world.host.dialed), "no source is dialed")
        world.host.dialed.pop(0).lost("refused")
        wanted = number + 1
        world.wait(lambda wanted=wanted: cell.failures == wanted, "the round does not fail")
        world.host.advance(RETRY_SECONDS)
    ((kind, severity, text, _),) = _told(world, node.master)
    assert (kind, severity) == ("copy", "problem")
    assert text.startswith("1 partition cannot be copied to it: ") and cell.failure in text
    cell.failures = 0
    assert _told(world, node.master) == []


def test_a_refused_statement(world: World, master: End) -> None:
    world.core.database.refusals.last = "two rows with one key"
    ((kind, severity, text, _),) = _told(world, master)
    assert (kind, severity) == ("statement", "problem") and "two rows with one key" in text
