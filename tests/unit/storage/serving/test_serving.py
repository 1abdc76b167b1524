"""Commits and other requests of clients, as a storage node answers them."""

from __future__ import annotations

import sqlite3
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from neo.protocol.enums import ErrorCode, NodeState
from neo.protocol.ids import ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerFinalTID,
    AnswerObject,
    AnswerPack,
    AnswerRebaseObject,
    AnswerStoreTransaction,
    AnswerVoteTransaction,
    AskCheckCurrentSerial,
    AskFinalTID,
    AskLockInformation,
    AskObjectUndoSerial,
    AskPack,
    AskRebaseObject,
    AskRebaseTransaction,
    AskRecovery,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteTransaction,
    Error,
    NotifyDeadlock,
    NotifyPartitionChanges,
    NotifyRepair,
    NotifyUnlockInformation,
    StartOperation,
)
from tests.unit.storage.requests import (
    commit,
    commit_twice,
    data_of,
    finish,
    load,
    store,
    store_request,
    vote,
    voted,
)
from tests.unit.storage.world import (
    C1,
    C2,
    DISCARDED,
    OUT,
    UP,
    End,
    MakeWorld,
    World,
    check_refused,
    refused,
)

# -- commits -------------------------------------------------------------------------------------


def test_a_wrong_checksum_is_answered_and_not_stored(world: World, client: End) -> None:
    """Specification 1.10, 7.12, 15.15."""
    request = replace(store_request(10, 1), data=b"damaged")
    check_refused(client.ask(request), ErrorCode.PROTOCOL_ERROR, "does not match its checksum")
    assert world.backend.maintenance.prune_orphans(True, 0, 10)[0] == 0
    assert not client.closed
    assert store(client, 10, 1) is None


def test_an_unknown_compression_is_refused(client: End) -> None:
    """Specification 7.12."""
    check_refused(
        client.ask(replace(store_request(10, 1), compression=2)),
        ErrorCode.PROTOCOL_ERROR,
        "compression 2",
    )


def test_conflicts_leave_no_data_behind(world: World, master: End, client: End) -> None:
    """Specification 8.9."""
    commit(master, client, 10, 12, 1)
    assert store(client, 14, 1) == p64(12)
    assert world.backend.values.pending == {}


def test_an_absent_cell_answers_lockless_and_keeps_nothing(world: World) -> None:
    """Specification 7.14."""
    master = world.operate([[(2, UP)], [(1, UP)]])
    client = world.client(master)
    assert store(client, 10, 0) == ZERO_TID
    assert client.ask(AskVoteTransaction(p64(10))) == AnswerVoteTransaction()
    finish(master, 10, 12)
    assert not world.backend.reads.object_exists(p64(0))


def test_an_out_of_date_cell_accepts_blindly(world: World) -> None:
    master = world.operate([[(1, OUT)], [(1, UP)]])
    client = world.client(master)
    assert store(client, 11, 0, serial=5) == ZERO_TID
    assert client.ask(AskVoteTransaction(p64(11))) == AnswerVoteTransaction()
    finish(master, 11, 13)
    assert world.backend.reads.last_serial(p64(0)) == p64(13)


def test_checks_are_answered_like_stores(master: End, client: End, other: End) -> None:
    """Specification 7.14, 7.16."""
    commit(master, client, 10, 12, 1)
    assert client.ask(AskCheckCurrentSerial(p64(14), p64(1), p64(11))).locked == p64(12)
    assert client.ask(AskCheckCurrentSerial(p64(14), p64(1), p64(12))).locked is None
    waiting = other.ask_later(store_request(16, 1, 12))
    assert not waiting
    client.send(AbortTransaction(p64(14), []))
    assert waiting[0].locked is None


def test_a_vote_is_durable_before_it_is_answered(world: World) -> None:
    """Specification 1.9, 7.20, 14.21."""
    client = world.client(world.operate())
    store(client, 10, 1)
    answers = client.ask_later(AskStoreTransaction(p64(10), b"", b"", b"", [p64(1)]))
    assert not answers  # not before the disk said so
    world.settle()
    assert answers == [AnswerStoreTransaction()]


def test_that_nothing_was_committed_is_said_when_the_vote_is_dropped_durably(
    world: World, master: End, client: End
) -> None:
    """Else it could still be committed: by a node that locked it, and comes back when this one has
    crashed and has its vote again (specification 6.20)."""
    voted(client, 10, 1)
    master.send(AbortTransaction(p64(10), []))
    answers = client.ask_later(AskFinalTID(p64(10)))
    assert not answers  # not before the disk said so
    world.settle()
    assert answers == [AnswerFinalTID(None)]


def test_votes_that_cannot_be_complete_are_refused(client: End, other: End) -> None:
    """Specification 7.21."""
    check_refused(client.ask(AskVoteTransaction(p64(10))), ErrorCode.PROTOCOL_ERROR, "unknown here")
    store(client, 10, 1)
    other.ask_later(store_request(12, 1))
    assert "cannot vote: 1 requests wait" in refused(other.ask(AskVoteTransaction(p64(12))))[1]
    assert "another connection" in refused(other.ask(store_request(10, 1)))[1]


def test_undo_brings_back_the_data_of_an_older_serial(
    world: World, master: End, client: End
) -> None:
    """Specification 6.11, 6.21, 7.13."""
    commit_twice(master, client, 1)
    answer = client.ask(AskObjectUndoSerial(p64(20), p64(17), p64(16), [p64(1), p64(3)]))
    assert {o: tuple(s) for o, s in answer.undo_dict.items()} == {p64(1): (p64(16), p64(12), True)}
    undo = AskStoreObject(p64(1), p64(16), 0, ZERO_HASH, b"", p64(12), p64(20))
    assert client.ask(replace(undo, data_serial=p64(11))).code == ErrorCode.OID_NOT_FOUND.value
    assert client.ask(undo).locked is None
    vote(client, 20, 1)
    finish(master, 20, 22)
    record = load(client, 1)
    assert (record.serial, record.data, record.data_serial) == (p64(22), data_of(10), p64(12))


def test_undo_of_a_creation(master: End, client: End) -> None:
    """Specification 6.12."""
    commit(master, client, 10, 12, 1)
    undo = AskStoreObject(p64(1), p64(12), 0, ZERO_HASH, b"", None, p64(14))
    assert client.ask(undo).locked is None
    vote(client, 14, 1)
    finish(master, 14, 16)
    assert load(client, 1) == AnswerObject(p64(1), p64(16), None, None, ZERO_HASH, b"", None)


def test_deadlock_and_rebase_on_the_wire(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 8.14, 8.21, 8.22."""
    assert store(client, 10, 1) is None
    assert store(other, 12, 3) is None
    late = other.ask_later(store_request(12, 1))
    waiting = client.ask_later(store_request(10, 3))
    assert master.take(NotifyDeadlock) == NotifyDeadlock(p64(10), p64(10))
    assert late[0].locked is None
    assert client.ask(AskRebaseTransaction(p64(10), p64(20))).oid_list == [p64(1)]
    rebase = client.ask_later(AskRebaseObject(p64(10), p64(1)))
    vote(other, 12, 1, 3)
    finish(master, 12, 22)
    assert waiting[0].locked == p64(22)
    data = (0, sha1(data_of(10)).digest(), data_of(10))
    conflict = rebase[0].conflict
    assert (conflict[0], conflict[1], tuple(conflict[2])) == (ZERO_TID, p64(22), data)
    assert store(client, 10, 1, serial=22) is None
    assert client.ask(AskRebaseObject(p64(10), p64(1))) == AnswerRebaseObject(None)


def test_a_lost_connection_drops_the_transaction_unless_it_voted(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 4.8, 7.46."""
    store(client, 10, 1)
    voted(client, 12, 3)
    waiting = [other.ask_later(store_request(20, oid)) for oid in (1, 3)]
    client.disconnect()
    assert waiting[0][0].locked is None
    assert not waiting[1]
    world.notify(master, world.client_row(C1, NodeState.DOWN))
    assert waiting[1][0].locked is None
    assert world.backend.commits.locked_transactions() == {}


def test_a_client_that_the_master_lost_is_disconnected(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 4.8."""
    store(client, 10, 1)
    world.notify(master, world.client_row(C1, NodeState.UNKNOWN))
    assert client.closed
    assert store(other, 12, 1) is None


def test_the_master_aborts_a_voted_transaction(world: World, master: End, client: End) -> None:
    voted(client, 10, 1)
    master.send(AbortTransaction(p64(10), []))
    assert world.backend.commits.locked_transactions() == {}
    assert store(client, 10, 1) == ZERO_TID
    master.send(AbortTransaction(p64(99), []))
    assert not master.closed


def test_locking_a_transaction_that_did_not_vote_is_refused(master: End, client: End) -> None:
    """Specification 7.30."""
    store(client, 10, 1)
    check_refused(
        master.ask(AskLockInformation(p64(10), p64(12))),
        ErrorCode.PROTOCOL_ERROR,
        "before it voted",
    )
    assert master.ask(AskLockInformation(p64(50), p64(52))).ttid == p64(50)
    master.send(NotifyUnlockInformation(p64(50)))
    assert not master.closed


def test_losing_a_cell_answers_the_stores_that_wait_for_it(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 9.8."""
    store(client, 10, 1)
    waiting = other.ask_later(store_request(12, 1))
    master.send(NotifyPartitionChanges(2, 0, [(1, 1, DISCARDED)]))
    assert waiting[0].locked == ZERO_TID


def test_unlocked_transactions_are_committed_soon(world: World, master: End, client: End) -> None:
    """Specification 7.35, 14.21."""
    voted(client, 10, 1)
    master.ask(AskLockInformation(p64(10), p64(12)))
    master.send(NotifyUnlockInformation(p64(10)))
    assert world.core.database._commit_planned
    world.host.advance(1.0)
    assert not world.core.database._commit_planned


# -- maintenance ---------------------------------------------------------------------------------


def test_pack_forgets_old_revisions_and_answers_when_done(
    world: World, master: End, client: End
) -> None:
    commit_twice(master, client, 1)
    packing = master.ask_later(AskPack(p64(16)))
    world.wait(lambda: bool(packing), "the pack does not end")
    assert packing == [AnswerPack(True)]
    assert isinstance(load(client, 1, at=12), Error)
    assert load(client, 1).data == data_of(14)
    assert master.ask(AskPack(p64(16))) == AnswerPack(True)


@pytest.mark.parametrize("dry_run", [True, False])
def test_orphans_are_counted_or_deleted(world: World, master: End, dry_run: bool) -> None:
    """Specification 11.20."""
    data_id = world.backend.values.store_data(p64(1), 0, sha1(b"x").digest(), b"x")
    del world.backend.values.pending[data_id]
    master.send(NotifyRepair(dry_run))
    world.wait(lambda: not world.core.background.jobs, "the repair does not end")
    assert world.backend.maintenance.prune_orphans(True, 0, 10)[0] == dry_run


# -- backups -------------------------------------------------------------------------------------


def test_a_backup_cluster_refuses_writes(world: World) -> None:
    """Specification 7.15."""
    master = world.join()
    world.send_table(master)
    master.send(StartOperation(True))
    master.inbox.clear()
    client = world.client(master)
    for message in store_request(10, 1), AskCheckCurrentSerial(p64(10), p64(1), ZERO_TID):
        check_refused(client.ask(message), ErrorCode.READ_ONLY_ACCESS)
    assert master.ask(AskRecovery()).ptid == 1


# -- limits of the database ----------------------------------------------------------------------


def test_an_object_larger_than_the_database_accepts_is_refused_and_the_node_goes_on(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.25."""
    connect = sqlite3.connect

    def limited(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    world = make_world()
    master = world.operate()
    client, other = world.client(master), world.client(master, C2)
    commit(master, client, 10, 12, 1)
    assert store(client, 14, 1, serial=12) is None
    code, text = refused(client.ask(store_request(14, 2, data=bytes(100_000))))
    assert code == ErrorCode.DENIED.value
    assert "the object has 100000 bytes; " in text and "keeps at most 99900 in one record" in text
    # No peer is disconnected, nothing is left, and the object can be stored by others.
    client.send(AbortTransaction(p64(14), []))
    commit(master, other, 16, 18, 2)
    commit(master, client, 20, 22, 1, serial=12)
    assert not client.closed and not other.closed and world.host.restarts == 0
    assert load(other, 1).data == data_of(20) and load(client, 2).data == data_of(16)
    world.close()
    with connect(tmp_path / "node.sqlite") as connection:
        assert connection.execute("SELECT COUNT(*) FROM data").fetchone() == (3,)
    connection.close()
