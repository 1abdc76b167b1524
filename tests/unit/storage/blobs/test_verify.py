"""A storage node compares contents with their checksums, and tells how they are (specification 26.22,
26.23)."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AskContentState,
    AskStoreBlob,
    NotifyPartitionChanges,
    VerifyContents,
)
from tests.unit.storage.blobs.contents import content_of, files
from tests.unit.storage.blobs.transfers import OID, commit_blob, give, holder, names, record_of
from tests.unit.storage.requests import finish, store_request, vote
from tests.unit.storage.world import UP, End, World

PARTITIONS = 2


def path(folder: Path, data: bytes) -> Path:
    name = content_of(data).checksum.hex()
    return folder / name[:2] / name


@pytest.mark.parametrize("damage", ["flip", "shorten", "remove"])
def test_a_damaged_content_is_found(
    world: World,
    master: End,
    client: End,
    folder: Path,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Specification 26.22."""
    commit_blob(master, client, b"damaged", 12)
    file = path(folder, b"damaged")
    file.chmod(0o600)
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(b"dAmaged" if damage == "flip" else b"dam")
    master.send(VerifyContents(1 - OID % PARTITIONS))
    master.send(VerifyContents(OID % PARTITIONS))
    contents = world.core.blobs.contents
    world.wait(lambda: bool(contents.lost), "the damage is not found")
    assert list(contents.lost) == [content_of(b"damaged").checksum]
    assert "is lost on this node" in caplog.text
    assert master.ask(AskContentState()).lost == 1


def test_intact_contents_are_counted(
    world: World,
    master: End,
    client: End,
) -> None:
    """Specification 26.23."""
    commit_blob(master, client, b"intact", 12)
    master.send(VerifyContents(OID % PARTITIONS))
    master.send(VerifyContents(77))  # there is no such partition
    world.wait(lambda: not world.core.blobs.verifier.left, "it does not end")
    world.wait(lambda: world.core.blobs.sweep.done, "the sweep does not end")
    state = master.ask(AskContentState())
    assert (state.count, state.size, state.lost, state.left) == (1, 6, 0, 0)
    assert state.free > 0


def test_contents_of_earlier_groups_are_compared_with_some_partition_27_98(
    world: World, master: End, client: End, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of when there were more partitions, or another node had the cell."""
    commit_blob(master, client, b"earlier", 12)
    references, verifier = world.backend.blobs.references, world.core.blobs.verifier
    shifted = 40 + OID % PARTITIONS
    blobs = world.backend.blobs
    monkeypatch.setattr(blobs, "content_groups", lambda: [shifted])
    monkeypatch.setattr(blobs, "references", lambda group, *rest: references(group - 40, *rest))
    path(folder, b"earlier").unlink()
    monkeypatch.setattr(world.core.cells, "assigned", lambda: [0])
    master.send(VerifyContents(1))
    world.wait(lambda: not verifier.left, "it does not end")
    assert not world.core.blobs.contents.lost
    master.send(VerifyContents(0))
    world.wait(lambda: bool(world.core.blobs.contents.lost), "the content is not compared")


def test_a_file_that_was_put_back_is_not_lost_any_more(
    world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.21."""
    commit_blob(master, client, b"moved", 12)
    file = path(folder, b"moved")
    file.rename(folder / "elsewhere")
    contents = world.core.blobs.contents
    master.send(VerifyContents(OID % PARTITIONS))
    world.wait(lambda: bool(contents.lost), "the loss is not found")
    (folder / "elsewhere").rename(file)
    master.send(VerifyContents(OID % PARTITIONS))
    world.wait(lambda: not contents.lost, "it stays lost")


def test_the_nodes_of_each_object_are_asked_for_a_lost_content(
    world: World, master: End, client: End, folder: Path
) -> None:
    """Specification 26.21: no other node has a cell of the first object."""
    data, other, ttid = b"shared", OID + 1, 20
    commit_blob(master, client, data, 12)
    client.ask(AskStoreBlob(p64(ttid), p64(other), 0, data, content_of(data).checksum))
    client.ask(store_request(ttid, other, 0, record_of(data)))
    vote(client, ttid, other)
    finish(master, ttid, 22)
    world.notify(master, (NodeType.STORAGE, ("127.0.0.1", 2003), 3, NodeState.RUNNING, 23.0))
    master.send(NotifyPartitionChanges(2, 0, [(other % PARTITIONS, 3, UP)]))
    path(folder, data).unlink()
    master.send(VerifyContents(OID % PARTITIONS))
    give(holder(world, 3), data)
    world.wait(lambda: files(folder) == names(data), "it is not copied")
    world.wait(lambda: not world.core.blobs.contents.lost, "it stays lost")
