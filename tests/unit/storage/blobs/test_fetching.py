"""A storage node fetches contents before it writes rows that refer to them (specification 26.6, 26.17 to
26.21)."""

from __future__ import annotations

import logging
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.blobs import PIECE_BYTES, PIECES_AHEAD
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_OURS,
    AddObject,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AnswerPackState,
    AskBlob,
    AskFetchObjects,
    AskFetchTransactions,
    AskPackState,
    NotifyBlobDamaged,
    NotifyPartitionChanges,
    NotifyReplicationDone,
    Replicate,
)
from neo.storage.replication.replicator import RETRY_SECONDS
from tests.unit.storage.blobs.contents import content_of, files, parts
from tests.unit.storage.blobs.transfers import give, has_row, holder, lost, names, record_of, refuse
from tests.unit.storage.replicas import (
    Destination,
    answer,
    fetching,
    reply,
    storage_row,
    take_question,
)
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import DISCARDED, UP, End, World

DATA = b"the content"
LARGE = bytes(range(256)) * (PIECE_BYTES // 256) * 5 + b"end"


def wait_for_failure(world: World, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Wait until a round of the replication has failed."""
    world.wait(lambda: "not replicated yet" in caplog.text, "the round does not fail")
    assert why in caplog.text
    world.settle()


def begin(world: World, data: bytes = DATA, others: bool = False) -> tuple[Destination, End]:
    """A cell gets a row that refers to a content; ``others``: S3 has a readable cell, too."""
    node, source = fetching(world, FEATURE_BLOBS)
    if others:
        address = "127.0.0.1", 2003
        world.notify(node.master, (NodeType.STORAGE, address, 3, NodeState.RUNNING, 23.0))
        node.master.send(NotifyPartitionChanges(2, 0, [(0, 3, UP)]))
    node.serve(source, 0, 12, {(12, 2): record_of(data)})
    return node, source


def done(node: Destination) -> None:
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


# -- transfers -----------------------------------------------------------------------------------


def test_a_row_is_written_when_its_content_is_durable(world: World, folder: Path) -> None:
    """Specification 26.6, 26.17."""
    node, source = begin(world)
    world.wait(lambda: bool(source.inbox), "the content is not asked for")
    world.settle()
    assert not has_row(world) and not node.master.inbox
    assert give(source, DATA) == 0
    done(node)
    assert files(folder) == names(DATA) and parts(folder) == []
    assert has_row(world)


def test_an_empty_content_is_not_asked_for(world: World, folder: Path) -> None:
    node, _ = begin(world, b"")
    done(node)
    assert files(folder) == names(b"")


def test_a_content_that_is_here_is_not_asked_for(world: World, folder: Path) -> None:
    """Specification 26.17: another object has it."""
    node, source = fetching(world, FEATURE_BLOBS)
    node.serve(source, 0, 12, {(12, 2): record_of(DATA), (12, 4): record_of(DATA)})
    give(source, DATA)
    done(node)
    assert has_row(world, 2) and has_row(world, 4) and files(folder) == names(DATA)


def test_few_pieces_are_ahead(world: World, folder: Path) -> None:
    """Specification 26.17."""
    node, source = begin(world, LARGE)
    offsets: list[int] = []
    while len(offsets) < 6:
        ahead = min(PIECES_AHEAD, 6 - len(offsets))
        world.wait(lambda ahead=ahead: len(source.inbox) >= ahead, "too few pieces")
        assert len(source.inbox) == ahead
        offsets.append(give(source, LARGE))
    assert offsets == list(range(0, len(LARGE), PIECE_BYTES))
    done(node)
    assert files(folder) == names(LARGE)


def test_another_node_goes_on_where_the_first_one_stopped(world: World, folder: Path) -> None:
    """Specification 26.17. What that node keeps is known only after it has accepted."""
    _, source = begin(world, LARGE, others=True)
    give(source, LARGE)
    refuse(source)
    other = holder(world, 3)
    offsets = [give(other, LARGE) for _ in range(5)]
    assert offsets == list(range(PIECE_BYTES, len(LARGE), PIECE_BYTES))
    world.wait(lambda: has_row(world), "the row is not written")
    assert files(folder) == names(LARGE) and lost(world) == []


def test_an_interrupted_transfer_is_resumed(world: World, folder: Path) -> None:
    """Specification 26.17."""
    node, source = begin(world, LARGE)
    give(source, LARGE)
    world.wait(lambda: len(source.inbox) == PIECES_AHEAD, "the piece is not written")
    source.disconnect()
    world.settle()
    assert parts(folder) == [f"fetch-{names(LARGE)[0]}"] and not has_row(world)
    world.host.advance(RETRY_SECONDS)
    source = node.source(FEATURE_BLOBS)
    node.serve(source, 0, 12, {(12, 2): record_of(LARGE)})
    offsets = [give(source, LARGE) for _ in range(5)]
    assert offsets == list(range(PIECE_BYTES, len(LARGE), PIECE_BYTES))
    done(node)
    assert files(folder) == names(LARGE)


def test_a_damaged_content_is_reported_and_asked_from_another_node(
    world: World, folder: Path
) -> None:
    """Specification 26.17."""
    _, source = begin(world, others=True)
    give(source, DATA, sent=b"the damaged")
    report = NotifyBlobDamaged(p64(2), content_of(DATA).checksum)
    assert source.take(NotifyBlobDamaged) == report
    assert give(holder(world, 3), DATA) == 0
    world.wait(lambda: has_row(world), "the row is not written")
    assert files(folder) == names(DATA) and lost(world) == []


def test_a_whole_of_two_nodes_is_asked_anew_before_anyone_is_blamed(
    world: World, folder: Path
) -> None:
    """Specification 26.17: the first one may have sent the damaged piece."""
    _, source = begin(world, LARGE, others=True)
    give(source, LARGE, sent=b"\1" + LARGE[1:])
    refuse(source)
    other = holder(world, 3)
    offsets = [give(other, LARGE) for _ in range(5 + 6)]
    assert offsets[0] == PIECE_BYTES and offsets[5] == 0
    world.wait(lambda: has_row(world), "the row is not written")
    assert files(folder) == names(LARGE)
    assert not any(isinstance(m, NotifyBlobDamaged) for _, m in (*source.inbox, *other.inbox))


# -- contents that cannot be had -----------------------------------------------------------------


def test_what_no_node_has_is_lost_and_asked_for_again(
    world: World, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 26.21: the row is not held back."""
    node, source = begin(world)
    with caplog.at_level(logging.ERROR, "neo.storage"):
        refuse(source)
        world.wait(lambda: bool(source.inbox), "it is not asked for again")
    assert [r.getMessage() for r in caplog.records] == [
        f"content {content_of(DATA)} of object {p64(2).hex()} is lost: no node has it; it is asked for"
        " again"
    ]
    done(node)
    assert has_row(world) and lost(world) == [content_of(DATA).checksum]
    give(source, DATA)
    world.wait(lambda: not lost(world), "it is not mended")
    assert files(folder) == names(DATA)


def test_a_node_that_refuses_for_now_may_have_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 26.17: the round fails, and is made again."""
    _, source = begin(world)
    refuse(source, ErrorCode.NOT_READY)
    wait_for_failure(
        world, caplog, f"content {content_of(DATA)} of object {p64(2).hex()} cannot be"
    )
    assert not has_row(world) and lost(world) == []


def test_a_content_that_was_packed_away_is_not_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 10.24, 26.21: the row is not current at the source any more."""
    node, source = fetching(world, FEATURE_OURS, FEATURE_BLOBS)
    packed(source, 0)
    node.serve(source, 0, 12, {(12, 2): record_of(DATA)})
    refuse(source)
    packed(source, 12)
    wait_for_failure(world, caplog, "was packed meanwhile")
    assert not has_row(world) and lost(world) == []


def packed(source: End, tid: int) -> None:
    reply(source, AskPackState, AnswerPackState(p64(tid)))


def test_a_row_that_was_damaged_in_transit_is_not_followed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 10.9: its reference means nothing."""
    node, source = fetching(world, FEATURE_BLOBS)
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    message_id, _ = take_question(source, AskFetchObjects)
    checksum = sha1(record_of(DATA)).digest()
    row = AddObject(p64(2), p64(12), 0, checksum, record_of(b"damaged"), None)
    source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))
    wait_for_failure(world, caplog, "does not match its checksum")
    assert not any(isinstance(m, AskBlob) for _, m in source.inbox)
    assert not has_row(world) and lost(world) == []


def test_no_row_is_written_to_a_cell_that_was_taken_away_meanwhile(
    world: World, folder: Path
) -> None:
    """Specification 26.17: the eraser would not see it."""
    node, source = begin(world)
    world.wait(lambda: bool(source.inbox), "the content is not asked for")
    node.master.send(NotifyPartitionChanges(2, 0, [(0, 1, DISCARDED)]))
    give(source, DATA)
    world.wait(lambda: bool(files(folder)), "the content is not kept")
    world.settle()
    assert not has_row(world)


@pytest.mark.parametrize("blob_dir", [None])
def test_a_node_without_folder_does_not_write_the_row(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 26.18."""
    _, source = begin(world)
    world.settle()
    assert not has_row(world) and not source.inbox
    assert "set blob_dir" in caplog.text


# -- backups -------------------------------------------------------------------------------------


def test_a_backup_asks_upstream_again_for_what_it_lacks(world: World, folder: Path) -> None:
    """Specification 26.20, 26.21."""
    master = backup(world)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    source = upstream(world, FEATURE_BLOBS)
    Destination.serve(source, 0, 12, {(12, 2): record_of(DATA)})
    refuse(source)
    give(source, DATA)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    world.wait(lambda: not lost(world), "it is not mended")
    assert files(folder) == names(DATA)


def test_a_backup_asks_its_own_nodes_too(world: World, folder: Path) -> None:
    """Specification 26.17, 26.20."""
    rows: Any = [[(1, UP), (2, UP)], [(1, UP)]]
    master = backup(world, rows)
    world.notify(master, storage_row(2))
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    source = upstream(world, FEATURE_BLOBS)
    Destination.serve(source, 0, 12, {(12, 2): record_of(DATA)})
    refuse(source)
    give(holder(world, 2), DATA)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    assert files(folder) == names(DATA) and lost(world) == []
