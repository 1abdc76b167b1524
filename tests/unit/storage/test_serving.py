"""A storage node and its clients: identification, reads, commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.ids import INVALID_PARTITION, ZERO_HASH, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURES,
    AbortTransaction,
    AcceptIdentification,
    AnswerFinalTID,
    AnswerObject,
    AnswerPack,
    AnswerRebaseObject,
    AnswerStoreTransaction,
    AnswerVoteTransaction,
    AskCheckCurrentSerial,
    AskFinalTID,
    AskLockInformation,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskOIDs,
    AskPack,
    AskRebaseObject,
    AskRebaseTransaction,
    AskRecovery,
    AskRevisions,
    AskStoreObject,
    AskStoreTransaction,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    AskVoteTransaction,
    Error,
    NotifyDeadlock,
    NotifyFeatures,
    NotifyPartitionChanges,
    NotifyRepair,
    NotifyUnlockInformation,
    StartOperation,
)
from neo.storage.backend import pages
from tests.unit.storage.world import C1, C2, DISCARDED, OUT, UP, End, World, refused

MakeWorld = Callable[[], World]


def data_of(number: int) -> bytes:
    return b"data of %d" % number


def store_request(
    ttid: int, oid: int, serial: int = 0, data: bytes | None = None
) -> AskStoreObject:
    data = data_of(ttid) if data is None else data
    return AskStoreObject(p64(oid), p64(serial), 0, sha1(data).digest(), data, None, p64(ttid))


def store(client: End, ttid: int, oid: int, serial: int = 0) -> bytes | None:
    answer = client.ask(store_request(ttid, oid, serial))
    locked: bytes | None = answer.locked
    return locked


def vote(client: End, ttid: int, *oids: int) -> None:
    request = AskStoreTransaction(p64(ttid), b"user", b"note", b"ext", [p64(oid) for oid in oids])
    assert client.ask(request) == AnswerStoreTransaction()


def finish(master: End, ttid: int, tid: int) -> None:
    assert master.ask(AskLockInformation(p64(ttid), p64(tid))).ttid == p64(ttid)
    master.send(NotifyUnlockInformation(p64(ttid)))
    master.world.settle()


def commit(master: End, client: End, ttid: int, tid: int, oid: int, serial: int = 0) -> None:
    assert store(client, ttid, oid, serial) is None
    vote(client, ttid, oid)
    finish(master, ttid, tid)


def load(client: End, oid: int, at: int | None = None, before: int | None = None) -> Any:
    at_tid = None if at is None else p64(at)
    return client.ask(AskObject(p64(oid), at_tid, None if before is None else p64(before)))


# -- identification ---------------------------------------------------------------------------------


def test_features_are_told_to_who_announces_some(world: World, master: End) -> None:
    world.notify(master, world.client_row(C1))
    end = world.stranger()
    assert isinstance(world.identify(end, extra={FEATURES: ["oids"]}), AcceptIdentification)
    assert end.take(NotifyFeatures).features == ["oids", "pages"]


def test_nobody_is_served_before_the_operation_starts(world: World) -> None:
    world.join()
    end = world.stranger()
    assert refused(world.identify(end)) == (ErrorCode.NOT_READY.value, "Retry Later")
    assert end.closed


def test_wrong_names_and_kinds_of_nodes_are_refused(world: World, master: End) -> None:
    code, text = refused(world.identify(world.stranger(), name="other"))
    assert code == ErrorCode.PROTOCOL_ERROR.value and "invalid cluster name" in text
    code, text = refused(world.identify(world.stranger(), node_type=NodeType.ADMIN))
    assert code == ErrorCode.PROTOCOL_ERROR.value


def test_clients_that_the_master_forgot_are_refused(world: World, master: End) -> None:
    world.notify(master, world.client_row(C1))
    for changes in {"id_timestamp": 0.5}, {"id_timestamp": None}, {"nid": C2, "id_timestamp": 1.0}:
        end = world.stranger()
        assert refused(world.identify(end, **changes)) == (2, "unknown by master")
        assert end.closed


def test_a_client_newer_than_the_node_table_waits_for_it(world: World, master: End) -> None:
    end = world.stranger()
    from neo.protocol.packets import RequestIdentification

    answers = end.ask_later(RequestIdentification(NodeType.CLIENT, C1, None, "test", 99.0, {}))
    assert not answers and not end.closed
    world.timestamp = 99.0
    world.notify(master, (NodeType.CLIENT, None, C1, NodeState.RUNNING, 99.0))
    assert answers == [AcceptIdentification(NodeType.STORAGE, 1, C1)]


# -- reads ------------------------------------------------------------------------------------------


def test_a_committed_object_is_loaded(master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    first = AnswerObject(p64(1), p64(12), p64(16), 0, sha1(data_of(10)).digest(), data_of(10), None)
    assert load(client, 1, before=16) == first
    assert load(client, 1, at=12) == first
    assert load(client, 1, at=12, before=999) == first
    assert load(client, 1).data == data_of(14)


def test_missing_objects(master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    assert load(client, 1, before=12) == Error(ErrorCode.OID_NOT_FOUND.value, p64(1).hex())
    assert load(client, 1, at=13) == Error(ErrorCode.OID_NOT_FOUND.value, p64(1).hex())
    assert load(client, 3) == Error(ErrorCode.OID_DOES_NOT_EXIST.value, p64(3).hex())


def test_cells_that_are_not_readable_are_not_read(world: World) -> None:
    master = world.operate([[(1, OUT)], [(2, UP)]])
    client = world.client(master)
    for message in (
        AskObject(p64(0), None, None),
        AskObject(p64(1), None, None),
        AskObjectHistory(p64(0), 0, 1),
        AskTransactionInformation(p64(1)),
        AskObjectUndoSerial(p64(9), p64(9), p64(8), [p64(1)]),
        AskTIDs(0, 10, 0),
        AskTIDsFrom(ZERO_TID, p64(99), 10, 1),
        AskOIDs(0, ZERO_OID, 10),
        AskFinalTID(p64(0)),
        AskFinalTID(p64(1)),
        AskRevisions(0, 0, ZERO_TID, p64(99), None, 1, False),
    ):
        assert refused(client.ask(message)) == (ErrorCode.NON_READABLE_CELL.value, "")
    assert client.ask(AskTIDs(0, 10, INVALID_PARTITION)).tid_list == []


def test_reads_wait_for_the_unlock_of_a_locked_transaction(
    world: World, master: End, client: End, other: End
) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 20, 22, 2)
    store(client, 30, 1, serial=12)
    vote(client, 30, 1)
    master.ask(AskLockInformation(p64(30), p64(32)))
    assert load(other, 2).serial == p64(22)
    waiting = [
        other.ask_later(message)
        for message in (
            AskObject(p64(1), None, None),
            AskTIDs(0, 1, INVALID_PARTITION),
            AskTIDsFrom(p64(30), p64(99), 10, 0),
            AskTransactionInformation(p64(32)),
            AskObjectHistory(p64(1), 0, 1),
            AskFinalTID(p64(30)),
            AskObjectUndoSerial(p64(40), p64(33), p64(12), [p64(1)]),
            AskOIDs(1, ZERO_OID, 10),
            AskRevisions(1, 0, ZERO_TID, p64(99), None, 1000, False),
        )
    ]
    world.settle()
    assert not any(waiting)
    master.send(NotifyUnlockInformation(p64(30)))
    world.settle()
    assert waiting[0][0].serial == p64(32)
    assert waiting[1][0].tid_list == [p64(32)]
    assert waiting[2][0].tid_list == [p64(32)]
    assert waiting[3][0].description == b"note"
    assert waiting[4][0].history_list == [(p64(32), 10)] or waiting[4][0].history_list == [
        [p64(32), 10]
    ]
    assert waiting[5][0].tid == p64(32)
    assert p64(1) in waiting[6][0].undo_dict
    assert waiting[7][0].oid_list == [p64(1)]
    assert [row[1] for row in waiting[8][0].revision_list] == [p64(32)]


def test_transactions_are_listed_and_described(master: End, client: End) -> None:
    for number in range(4):
        commit(master, client, 10 + 2 * number, 10 + 2 * number, number)
    assert client.ask(AskTIDs(1, 3, INVALID_PARTITION)).tid_list == [p64(14), p64(12)]
    assert client.ask(AskTIDs(0, 9, 1)).tid_list == []
    assert client.ask(AskTIDsFrom(p64(12), p64(14), 9, 0)).tid_list == [p64(12), p64(14)]
    assert client.ask(AskTIDsFrom(p64(12), p64(14), 1, 0)).tid_list == [p64(12)]
    answer = client.ask(AskTransactionInformation(p64(12)))
    assert tuple(answer) == (p64(12), b"user", b"note", b"ext", False, [p64(1)])
    assert client.ask(AskTransactionInformation(p64(13))) == Error(
        ErrorCode.TID_NOT_FOUND.value, p64(13).hex()
    )
    assert client.ask(AskFinalTID(p64(12))).tid == p64(12)
    assert client.ask(AskFinalTID(p64(99))).tid is None
    assert client.ask(AskOIDs(0, ZERO_OID, 10)).oid_list == [p64(0), p64(2)]
    assert client.ask(AskOIDs(0, p64(1), 10)).oid_list == [p64(2)]


def test_pages_of_revisions_have_data_as_stored(master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    answer = client.ask(AskRevisions(1, 1, ZERO_TID, p64(99), None, 1, True))
    row = (p64(1), p64(12), 0, sha1(data_of(10)).digest(), len(data_of(10)), data_of(10), None)
    assert (list(map(tuple, answer.revision_list)), answer.more) == ([row], True)
    answer = client.ask(AskRevisions(1, 1, ZERO_TID, p64(99), row[:2], 1000, True))
    assert ([r[1] for r in answer.revision_list], answer.more) == ([p64(16)], False)


def test_a_page_is_put_together_in_steps_between_which_others_are_served(
    world: World, master: End, client: End, other: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        commit(master, client, 10 + 2 * number, 11 + 2 * number, 1 + 2 * number)
    monkeypatch.setattr(pages, "ROWS_MAX", 2)
    for order, first, last in (0, 0, 9), (0, 0, 99), (1, 47, 99), (2, 47, 99):
        waiting = client.ask_later(AskRevisions(1, order, p64(first), p64(last), None, 1000, False))
        steps = 1
        while not waiting:
            assert load(other, 1).serial == p64(11)
            world.shell.advance(0)
            world.core.flush()
            steps += 1
        tids = [p64(tid) for tid in range(11, 51, 2) if first <= tid <= last]
        # Rows of 64 bytes fill a page of 1000 with 16 of them.
        assert [row[1] for row in waiting[0].revision_list] == tids[:16]
        assert waiting[0].more == (len(tids) > 16)
        assert steps == (8 if waiting[0].more else 2 if order == 2 else 11)


def test_a_page_is_not_gone_on_with_for_a_client_that_left(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        commit(master, client, 10 + 2 * number, 11 + 2 * number, 1 + 2 * number)
    monkeypatch.setattr(pages, "ROWS_MAX", 1)
    client.ask_later(AskRevisions(1, 0, ZERO_TID, p64(9), None, 1000, False))
    client.disconnect()
    monkeypatch.setattr(world.backend, "revisions", lambda ask: pytest.fail("it is read"))
    world.shell.advance(0)


def test_pages_of_what_a_pack_may_have_removed_are_refused(
    world: World, master: End, client: End
) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    assert master.ask(AskPack(p64(20))) == AnswerPack(True)

    def revisions(order: int, first: int, last: int) -> Any:
        return client.ask(AskRevisions(1, order, p64(first), p64(last), None, 1000, False))

    for order, first, last in ((0, 0, 19), (1, 0, 19), (2, 0, 19), (1, 1, 99), (2, 20, 99)):
        refusal = revisions(order, first, last)
        assert refusal.code == ErrorCode.TID_NOT_FOUND.value
        assert "packed up to 0000000000000014" in refusal.message
    for answer in (revisions(0, 0, 20), revisions(1, 0, 99), revisions(2, 0, 99)):
        assert [row[1] for row in answer.revision_list] == [p64(16)]
    assert revisions(2, 21, 99).revision_list == []


def test_pages_of_no_sense_are_refused(client: End) -> None:
    for message in (
        AskRevisions(0, 3, ZERO_TID, p64(9), None, 1000, True),
        AskRevisions(0, 0, ZERO_TID, p64(9), None, 0, True),
        AskRevisions(7, 0, ZERO_TID, p64(9), None, 1000, True),
    ):
        assert client.ask(message).code == ErrorCode.PROTOCOL_ERROR.value


def test_histories_are_newest_first(master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    answer = client.ask(AskObjectHistory(p64(1), 0, 2))
    assert [tuple(item) for item in answer.history_list] == [(p64(16), 10), (p64(12), 10)]
    answer = client.ask(AskObjectHistory(p64(1), 1, 2))
    assert [tuple(item) for item in answer.history_list] == [(p64(12), 10)]
    assert refused(client.ask(AskObjectHistory(p64(2), 0, 1)))[0] == ErrorCode.OID_NOT_FOUND.value
    assert refused(client.ask(AskObjectHistory(p64(1), 1, 1)))[0] == ErrorCode.PROTOCOL_ERROR.value


# -- commits ----------------------------------------------------------------------------------------


def test_a_wrong_checksum_is_answered_and_not_stored(world: World, client: End) -> None:
    request = store_request(10, 1)._replace(data=b"damaged")
    code, text = refused(client.ask(request))
    assert code == ErrorCode.PROTOCOL_ERROR.value and "does not match its checksum" in text
    assert world.backend.prune_orphans(True, 0, 10)[0] == 0
    assert not client.closed
    assert store(client, 10, 1) is None


def test_an_unknown_compression_is_refused(client: End) -> None:
    code, text = refused(client.ask(store_request(10, 1)._replace(compression=2)))
    assert code == ErrorCode.PROTOCOL_ERROR.value and "compression 2" in text


def test_conflicts_leave_no_data_behind(world: World, master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    assert store(client, 14, 1) == p64(12)
    assert world.backend._pending == {}


def test_an_absent_cell_answers_lockless_and_keeps_nothing(world: World) -> None:
    master = world.operate([[(2, UP)], [(1, UP)]])
    client = world.client(master)
    assert store(client, 10, 0) == ZERO_TID
    assert client.ask(AskVoteTransaction(p64(10))) == AnswerVoteTransaction()
    finish(master, 10, 12)
    assert not world.backend.object_exists(p64(0))


def test_an_out_of_date_cell_accepts_blindly(world: World) -> None:
    master = world.operate([[(1, OUT)], [(1, UP)]])
    client = world.client(master)
    assert store(client, 11, 0, serial=5) == ZERO_TID
    assert client.ask(AskVoteTransaction(p64(11))) == AnswerVoteTransaction()
    finish(master, 11, 13)
    assert world.backend.last_serial(p64(0)) == p64(13)


def test_checks_are_answered_like_stores(master: End, client: End, other: End) -> None:
    commit(master, client, 10, 12, 1)
    assert client.ask(AskCheckCurrentSerial(p64(14), p64(1), p64(11))).locked == p64(12)
    assert client.ask(AskCheckCurrentSerial(p64(14), p64(1), p64(12))).locked is None
    waiting = other.ask_later(store_request(16, 1, 12))
    assert not waiting
    client.send(AbortTransaction(p64(14), []))
    assert waiting[0].locked is None


def test_a_vote_is_durable_before_it_is_answered(make_world: MakeWorld) -> None:
    world = make_world()
    client = world.client(world.operate())
    store(client, 10, 1)
    answers = client.ask_later(AskStoreTransaction(p64(10), b"", b"", b"", [p64(1)]))
    assert not answers  # not before the disk said so
    world.settle()
    assert answers == [AnswerStoreTransaction()]


def test_that_nothing_was_committed_is_said_when_the_vote_is_dropped_durably(
    make_world: MakeWorld,
) -> None:
    """Else it could still be committed: by a node that locked it, and comes back when this one has
    crashed and has its vote again."""
    world = make_world()
    master = world.operate()
    client = world.client(master)
    store(client, 10, 1)
    vote(client, 10, 1)
    master.send(AbortTransaction(p64(10), []))
    answers = client.ask_later(AskFinalTID(p64(10)))
    assert not answers  # not before the disk said so
    world.settle()
    assert answers == [AnswerFinalTID(None)]


def test_votes_that_cannot_be_complete_are_refused(client: End, other: End) -> None:
    code, text = refused(client.ask(AskVoteTransaction(p64(10))))
    assert code == ErrorCode.PROTOCOL_ERROR.value and "unknown here" in text
    store(client, 10, 1)
    other.ask_later(store_request(12, 1))
    assert "cannot vote" in refused(other.ask(AskVoteTransaction(p64(12))))[1]
    assert "another connection" in refused(other.ask(store_request(10, 1)))[1]


def test_undo_brings_back_the_data_of_an_older_serial(
    world: World, master: End, client: End
) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    answer = client.ask(AskObjectUndoSerial(p64(20), p64(17), p64(16), [p64(1), p64(3)]))
    assert {o: tuple(s) for o, s in answer.undo_dict.items()} == {p64(1): (p64(16), p64(12), True)}
    undo = AskStoreObject(p64(1), p64(16), 0, ZERO_HASH, b"", p64(12), p64(20))
    assert client.ask(undo._replace(data_serial=p64(11))).code == ErrorCode.OID_NOT_FOUND.value
    assert client.ask(undo).locked is None
    vote(client, 20, 1)
    finish(master, 20, 22)
    record = load(client, 1)
    assert (record.serial, record.data, record.data_serial) == (p64(22), data_of(10), p64(12))


def test_undo_of_a_creation(master: End, client: End) -> None:
    commit(master, client, 10, 12, 1)
    undo = AskStoreObject(p64(1), p64(12), 0, ZERO_HASH, b"", None, p64(14))
    assert client.ask(undo).locked is None
    vote(client, 14, 1)
    finish(master, 14, 16)
    assert load(client, 1) == AnswerObject(p64(1), p64(16), None, None, ZERO_HASH, b"", None)


def test_deadlock_and_rebase_on_the_wire(
    world: World, master: End, client: End, other: End
) -> None:
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
    store(client, 10, 1)
    store(client, 12, 3)
    vote(client, 12, 3)
    waiting = [other.ask_later(store_request(20, oid)) for oid in (1, 3)]
    client.disconnect()
    assert waiting[0][0].locked is None
    assert not waiting[1]
    world.notify(master, world.client_row(C1, NodeState.DOWN))
    assert waiting[1][0].locked is None
    assert world.backend.locked_transactions() == {}


def test_a_client_that_the_master_lost_is_disconnected(
    world: World, master: End, client: End, other: End
) -> None:
    store(client, 10, 1)
    world.notify(master, world.client_row(C1, NodeState.UNKNOWN))
    assert client.closed
    assert store(other, 12, 1) is None


def test_the_master_aborts_a_voted_transaction(world: World, master: End, client: End) -> None:
    store(client, 10, 1)
    vote(client, 10, 1)
    master.send(AbortTransaction(p64(10), []))
    assert world.backend.locked_transactions() == {}
    assert store(client, 10, 1) == ZERO_TID
    master.send(AbortTransaction(p64(99), []))
    assert not master.closed


def test_locking_a_transaction_that_did_not_vote_is_refused(master: End, client: End) -> None:
    store(client, 10, 1)
    code, text = refused(master.ask(AskLockInformation(p64(10), p64(12))))
    assert code == ErrorCode.PROTOCOL_ERROR.value and "before it voted" in text
    assert master.ask(AskLockInformation(p64(50), p64(52))).ttid == p64(50)
    master.send(NotifyUnlockInformation(p64(50)))
    assert not master.closed


def test_losing_a_cell_answers_the_stores_that_wait_for_it(
    world: World, master: End, client: End, other: End
) -> None:
    store(client, 10, 1)
    waiting = other.ask_later(store_request(12, 1))
    master.send(NotifyPartitionChanges(2, 0, [(1, 1, DISCARDED)]))
    assert waiting[0].locked == ZERO_TID


def test_unlocked_transactions_are_committed_soon(make_world: MakeWorld) -> None:
    world = make_world()
    master = world.operate()
    client = world.client(master)
    store(client, 10, 1)
    vote(client, 10, 1)
    master.ask(AskLockInformation(p64(10), p64(12)))
    master.send(NotifyUnlockInformation(p64(10)))
    assert world.core._commit_planned
    world.shell.advance(1.0)
    assert not world.core._commit_planned


# -- maintenance ------------------------------------------------------------------------------------


def test_pack_forgets_old_revisions_and_answers_when_done(
    world: World, master: End, client: End
) -> None:
    commit(master, client, 10, 12, 1)
    commit(master, client, 14, 16, 1, serial=12)
    packing = master.ask_later(AskPack(p64(16)))
    world.wait(lambda: bool(packing), "the pack does not end")
    assert packing == [AnswerPack(True)]
    assert isinstance(load(client, 1, at=12), Error)
    assert load(client, 1).data == data_of(14)
    assert master.ask(AskPack(p64(16))) == AnswerPack(True)


@pytest.mark.parametrize("dry_run", [True, False])
def test_orphans_are_counted_or_deleted(world: World, master: End, dry_run: bool) -> None:
    data_id = world.backend.store_data(p64(1), 0, sha1(b"x").digest(), b"x")
    del world.backend._pending[data_id]
    master.send(NotifyRepair(dry_run))
    world.wait(lambda: not world.core.jobs, "the repair does not end")
    assert world.backend.prune_orphans(True, 0, 10)[0] == dry_run


# -- backups ----------------------------------------------------------------------------------------


def test_a_backup_cluster_refuses_writes(world: World) -> None:
    master = world.join()
    world.send_table(master)
    master.send(StartOperation(True))
    master.inbox.clear()
    client = world.client(master)
    for message in store_request(10, 1), AskCheckCurrentSerial(p64(10), p64(1), ZERO_TID):
        assert refused(client.ask(message))[0] == ErrorCode.READ_ONLY_ACCESS.value
    assert master.ask(AskRecovery()).ptid == 1


# -- limits of the database -------------------------------------------------------------------------


def test_an_object_larger_than_the_database_accepts_is_refused_and_the_node_goes_on(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # Nobody is disconnected, nothing is left, and the object can be stored by others.
    client.send(AbortTransaction(p64(14), []))
    commit(master, other, 16, 18, 2)
    commit(master, client, 20, 22, 1, serial=12)
    assert not client.closed and not other.closed and world.shell.restarts == 0
    assert load(other, 1).data == data_of(20) and load(client, 2).data == data_of(16)
    world.close()
    with connect(tmp_path / "node.sqlite") as connection:
        assert connection.execute("SELECT COUNT(*) FROM data").fetchone() == (3,)
    connection.close()
