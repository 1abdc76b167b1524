"""Which contents a node takes from an archive, and what an undone restore leaves of them (specification
27.64)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.protocol.blobs import PIECE_BYTES
from neo.protocol.ids import p64
from neo.protocol.packets import AskStoreBlob
from neo.storage.blobs.contents import COLLECT_SECONDS
from neo.storage.operations.backup import COPY, LOOK, MANIFEST
from neo.storage.operations.restore import CHECK, LOAD
from tests.unit.storage.archive_node import ArchiveNode
from tests.unit.storage.blobs.contents import content_of, files, parts
from tests.unit.storage.blobs.transfers import names, record_of
from tests.unit.storage.requests import finish, store_request, vote
from tests.unit.storage.world import UP, End, World

#: The contents of objects 2 and 3, and a later one of object 2.
EVEN, ODD, LATER = b"e" * PIECE_BYTES + b"ven", b"of an odd object", b"of a later transaction"
MOMENT = 18


def commit_blob(master: End, client: End, oid: int, data: bytes, tid: int, serial: int) -> None:
    ttid = tid - 2
    for offset in range(0, len(data), PIECE_BYTES):
        piece = data[offset : offset + PIECE_BYTES]
        whole = content_of(data).checksum if offset + len(piece) == len(data) else None
        client.ask(AskStoreBlob(p64(ttid), p64(oid), offset, piece, whole))
    client.ask(store_request(ttid, oid, serial, record_of(data)))
    vote(client, ttid, oid)
    finish(master, ttid, tid)


@pytest.fixture
def archive(world: World, tmp_path: Path) -> Path:
    """The copy of a cluster with one partition."""
    master = world.operate([[(1, UP)]])
    client = world.client(master)
    commit_blob(master, client, 2, EVEN, 12, 0)
    commit_blob(master, client, 3, ODD, MOMENT, 0)
    commit_blob(master, client, 2, LATER, 24, 12)
    path = tmp_path / "archive"
    os.mkdir(path)
    node = ArchiveNode(world, path, last=24, partitions=1)
    for name in (LOOK, COPY, MANIFEST):
        node.run(name)
    return path


@pytest.fixture
def target(archive: Path, tmp_path: Path) -> Iterator[ArchiveNode]:
    """A node of a cluster with two partitions: it has the even objects."""
    world = World(str(tmp_path / "target.sqlite"), blob_dir=str(tmp_path / "target"))
    world.operate([[(1, UP)], [(2, UP)]])
    node = ArchiveNode(world, archive, last=24, partitions=2)
    node.wanted["tid"] = p64(MOMENT).hex()
    yield node
    world.close()


def test_a_node_takes_the_contents_of_its_own_rows_only_27_64(
    target: ArchiveNode, tmp_path: Path
) -> None:
    """Neither those of other cells, nor those of rows after the moment."""
    target.run(CHECK)
    target.run(LOAD)
    assert files(tmp_path / "target") == names(EVEN)


def test_an_undone_restore_leaves_no_content_after_any_half_27_64(
    target: ArchiveNode, tmp_path: Path
) -> None:
    """A step that ends in the middle needs no content any more."""
    world, folder = target.world, tmp_path / "target"
    target.run(CHECK)

    def is_gone() -> bool:
        world.host.advance(COLLECT_SECONDS)
        return not files(folder) and not parts(folder)

    for calls in range(100):
        whole = target.half(LOAD, calls)
        target.undo(LOAD)
        world.wait(is_gone, f"contents are left after {calls} calls")
        if whole:
            break
    assert calls > 5
