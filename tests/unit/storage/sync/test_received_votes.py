"""A storage node of a synchronous backup keeps votes of the upstream cluster (specification 25.7 to
25.9)."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from neo.protocol.codec import LIMIT_GUEST
from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.ids import p64, u64
from neo.protocol.packets import (
    AbortTransaction,
    AddVoted,
    AddVotedObject,
    AnswerFetchVoted,
    AnswerFinalTID,
    AnswerInformationLocked,
    AnswerPack,
    AnswerStoreVoted,
    AnswerVoted,
    AskFetchVoted,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskLockInformation,
    AskPack,
    AskRecovery,
    AskStoreVoted,
    NotifyAborted,
    NotifyPartitionChanges,
    NotifyReady,
    NotifySynced,
    NotifyUnlockInformation,
    PreparedMetadata,
    Replicate,
    StartOperation,
    StopOperation,
    SyncMark,
    ValidateTransaction,
)
from neo.storage.backend.api import TransactionMeta
from neo.storage.maintenance.pack import LOOK_SECONDS
from tests.unit.storage.replicas import OTHER, answer, take_question
from tests.unit.storage.requests import data_of, load
from tests.unit.storage.syncing import ask_voted, connected, kept, meta, row, send, store_later
from tests.unit.storage.upstream import SOURCE, backup
from tests.unit.storage.world import DISCARDED, OUT, UP, End, MakeWorld, World, refused


@pytest.fixture
def master(world: World) -> End:
    """The own cluster is a backup, and complete up to 8."""
    master = backup(world)
    master.send(Replicate(p64(8), "", {0: None, 1: None}))
    return master


@pytest.fixture
def source(world: World, master: End) -> End:
    return connected(world, master)


def confirm(master: End, ttid: int, *oids: int) -> None:
    """The own master asks for rows that are here."""
    asked = ask_voted(master, ttid, *oids, sources={0: SOURCE})
    master.world.wait(lambda: bool(asked), "AskVoted is not answered")
    assert asked == [AnswerVoted(p64(ttid))]


def has_stored(source: End, ttid: int, *partitions: int) -> None:
    """The node makes durable what was sent, and says so."""
    question = AskStoreVoted(p64(ttid), [*partitions])
    assert source.ask(question) == AnswerStoreVoted(p64(ttid))


def confirmed(master: End, source: End, ttid: int, *rows: AddVotedObject) -> None:
    """These rows of partition 0 are here, and the own master asks for them."""
    send(source, ttid, 0, *rows, metadata=True)
    store_later(source, ttid, 0)
    confirm(master, ttid, *(u64(each.oid) for each in rows))


def lock(master: End, ttid: int, tid: int) -> None:
    locked = master.ask(AskLockInformation(p64(ttid), p64(tid)))
    assert locked == AnswerInformationLocked(p64(ttid))


def unlock(master: End, ttid: int) -> None:
    master.send(NotifyUnlockInformation(p64(ttid)))
    master.world.settle()


# -- rows ------------------------------------------------------------------------------------------


def test_rows_are_stored_and_then_answered(world: World, master: End, source: End) -> None:
    """Specification 25.7."""
    send(source, 10, 0, row(10, 2, b"x"), row(10, 4, None), metadata=True)
    send(source, 10, 1, row(10, 3, b"y"))
    stored = store_later(source, 10, 0, 1)
    assert not stored, "the database has not called back"
    world.settle()
    assert stored == [AnswerStoreVoted(p64(10))]
    rows = world.backend.commits.prepared_rows(p64(10))
    assert rows.metadata == TransactionMeta(*meta(2, 4))
    assert [change.oid for change in rows.stored] == [p64(2), p64(3), p64(4)]
    assert world.backend.commits.locked_transactions() == {p64(10): None}


def test_what_the_master_locks_and_unlocks_is_committed(
    world: World, master: End, source: End
) -> None:
    """Specification 25.20."""
    confirmed(master, source, 10, row(10, 2, data_of(10)))
    lock(master, 10, 12)
    assert world.backend.commits.locked_transactions() == {p64(10): p64(12)}
    unlock(master, 10)
    assert world.backend.commits.locked_transactions() == {}
    assert world.backend.reads.transaction(p64(12)).oids == [p64(2)]
    master.send(Replicate(p64(12), "", {0: None, 1: None}))
    assert load(world.client(master), 2).data == data_of(10)


def test_rows_of_the_same_vote_that_come_again_replace_the_first(
    world: World, master: End, source: End
) -> None:
    """Specification 25.7."""
    send(source, 10, 0, row(10, 2, b"first"), row(10, 4, b"gone"), metadata=True)
    send(source, 10, 1, row(10, 3, b"stays"))
    store_later(source, 10, 0, 1)
    send(source, 10, 0, row(10, 2, b"second"), row(10, 6, b"new"), metadata=True)
    has_stored(source, 10, 0)
    assert kept(world, 10) == [p64(2), p64(3), p64(6)]
    rows = world.backend.commits.prepared_rows(p64(10))
    assert rows.metadata.oids == [p64(2), p64(6)]
    values = [world.backend.values.load_data(change.data_id)[2] for change in rows.stored]
    assert values == [b"second", b"stays", b"new"]


def test_what_another_node_sends_replaces_rows_too(world: World, master: End, source: End) -> None:
    """Two nodes of the upstream cluster have the partition; the first one sends on in vain."""
    other = connected(world, master, OTHER)
    send(source, 10, 0, row(10, 2, b"first"))
    send(other, 10, 0, row(10, 4, b"second"))
    source.send(row(10, 6, b"late"))
    stored = [store_later(source, 10, 0), store_later(other, 10, 0)]
    world.settle()
    assert stored == [[AnswerStoreVoted(p64(10))]] * 2
    assert kept(world, 10) == [p64(4)]


def test_an_undo_keeps_the_revision_that_it_goes_back_to(
    world: World, master: End, source: End
) -> None:
    """It shares the data if it is here, and brings its own otherwise."""
    confirmed(master, source, 5, row(5, 2, b"old"))
    lock(master, 5, 6)
    unlock(master, 5)
    undos = row(10, 2, b"old", 6), row(10, 4, b"older", 3), row(10, 8, None, 6)
    asked = ask_voted(master, 10, 2, 4, 8, sources={0: SOURCE})
    message_id, _ = take_question(source, AskFetchVoted)
    send(source, 10, 0, *undos, metadata=True)
    answer(source, message_id, AnswerFetchVoted(p64(10)))
    world.wait(lambda: bool(asked), "AskVoted is not answered")
    assert asked == [AnswerVoted(p64(10))]
    lock(master, 10, 12)
    unlock(master, 10)
    records = [world.backend.reads.load(p64(oid), None, None) for oid in (2, 4, 8)]
    assert [(r.data, r.data_serial) for r in records] == [
        (b"old", p64(6)),
        (b"older", p64(3)),
        (b"", p64(6)),
    ]
    data = world.backend.engine.read("SELECT COUNT(*) FROM data")
    assert [tuple(each) for each in data] == [(2,)]


@pytest.mark.parametrize("partition", [0, 2, 2**32 - 1])
def test_rows_of_partitions_that_are_not_here_are_ignored(world: World, partition: int) -> None:
    """The node of the upstream cluster sends what was subscribed, and cells may be taken away."""
    master = backup(world, [[(2, UP)], [(1, UP)]])
    source = connected(world, master)
    send(source, 10, partition, row(10, 2, b"x"), metadata=True)
    has_stored(source, 10, partition)
    assert world.backend.commits.locked_transactions() == {}


def test_a_row_without_a_beginning_is_ignored(world: World, master: End, source: End) -> None:
    source.send(row(10, 2, b"x"))
    send(source, 10, 0, row(10, 4, b"y"))
    source.send(row(10, 3, b"z"))
    store_later(source, 10, 0, 1)
    source.send(row(10, 6, b"late"))
    world.settle()
    assert kept(world, 10) == [p64(4)]


def test_a_cell_that_is_out_of_date_keeps_rows(world: World) -> None:
    """Specification 25.10: the answer may be needed before it can be read."""
    master = backup(world, [[(1, OUT), (2, UP)], [(1, UP)]])
    master.inbox.clear()
    source = connected(world, master)
    confirmed(master, source, 10, row(10, 2, b"x"))
    assert kept(world, 10) == [p64(2)]


# -- refusals --------------------------------------------------------------------------------------


def test_a_damaged_row_is_refused(world: World, master: End, source: End) -> None:
    """Specification 25.7."""
    source.send(AddVoted(p64(10), 0, None))
    source.send(replace(row(10, 2, b"x"), data=b"y"))
    code, text = refused(source.ask(AskStoreVoted(p64(10), [0])))
    assert code == ErrorCode.INCOMPLETE_TRANSACTION.value
    assert p64(2).hex() in text and "does not match its checksum" in text
    assert not source.closed
    send(source, 10, 0, row(10, 2, b"x"))
    has_stored(source, 10, 0)
    assert kept(world, 10) == [p64(2)]


def test_what_the_database_refuses_is_refused(world: World, master: End, source: End) -> None:
    """Specification 25.7."""
    world.backend.engine.value_max = 10
    send(source, 10, 0, row(10, 2, b"x" * 11))
    assert "11 bytes" in refused(source.ask(AskStoreVoted(p64(10), [0])))[1]
    send(source, 10, 1, row(10, 3, b"x"))
    has_stored(source, 10, 1)


def test_rows_behind_a_refused_beginning_are_ignored(
    world: World, master: End, source: End
) -> None:
    """Nothing was replaced, so that the rows of the first time are still there."""
    send(source, 10, 0, row(10, 2, b"first"))
    store_later(source, 10, 0)
    engine = world.backend.engine
    engine.dialect = dataclasses.replace(engine.dialect, text_max=3)
    send(source, 10, 0, row(10, 2, b"second"), metadata=True)
    assert "at most 3" in refused(source.ask(AskStoreVoted(p64(10), [0])))[1]
    assert kept(world, 10) == [p64(2)] and world.host.restarts == 0
    source.send(NotifyAborted(p64(10)))
    assert kept(world, 10) == []


# -- ends ------------------------------------------------------------------------------------------


def test_what_the_master_did_not_ask_for_is_dropped_at_its_end(
    world: World, master: End, source: End
) -> None:
    """Specification 25.9."""
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    send(source, 14, 0, row(14, 4, b"y"))
    store_later(source, 10, 0)
    source.send(NotifyAborted(p64(10)))
    source.send(NotifyAborted(p64(99)))
    assert world.backend.commits.locked_transactions() == {p64(14): None}


def test_what_the_master_did_not_ask_for_is_dropped_with_its_connection(
    world: World, master: End, source: End
) -> None:
    """Specification 25.9."""
    other = connected(world, master, OTHER)
    send(source, 10, 0, row(10, 2, b"x"))
    store_later(source, 10, 0)
    send(source, 14, 0, row(14, 4, b"unfinished"))
    send(other, 18, 0, row(18, 6, b"z"))
    source.disconnect()
    assert world.backend.commits.locked_transactions() == {p64(18): None}
    world.settle()
    assert len(world.backend.engine.read("SELECT id FROM data")) == 1


@pytest.mark.parametrize("state", [DISCARDED, CellState.CORRUPTED])
def test_what_is_only_in_cells_that_are_taken_away_is_dropped(
    world: World, master: End, source: End, state: CellState
) -> None:
    """Specification 25.63. What the master asked for is ended by the master."""
    for ttid, partitions in ((10, [0]), (14, [0, 1]), (18, [0])):
        for partition in partitions:
            send(source, ttid, partition, row(ttid, 2 + partition, b"x"), metadata=not partition)
            store_later(source, ttid, partition)
    confirm(master, 18, 2)
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, state), (0, 2, UP)]))
    assert world.backend.commits.locked_transactions() == {p64(14): None, p64(18): None}
    source.disconnect()
    assert world.backend.commits.locked_transactions() == {p64(18): None}
    master.send(AbortTransaction(p64(18), []))
    assert world.backend.commits.locked_transactions() == {}


def test_what_the_master_asked_for_is_kept(world: World, master: End, source: End) -> None:
    """Specification 25.9, 25.10."""
    confirmed(master, source, 10, row(10, 2, data_of(10)))
    source.send(NotifyAborted(p64(10)))
    source.disconnect()
    assert kept(world, 10) == [p64(2)]
    lock(master, 10, 12)
    unlock(master, 10)
    assert world.backend.reads.load(p64(2), None, None).data == data_of(10)


def test_what_the_master_asked_for_is_not_replaced(world: World, master: End, source: End) -> None:
    """It relies on the rows."""
    confirmed(master, source, 10, row(10, 2, b"x"))
    send(source, 10, 0, row(10, 4, b"y"), metadata=True)
    lock(master, 10, 12)
    send(source, 10, 0, row(10, 4, b"y"), metadata=True)
    send(source, 10, 1, row(10, 3, b"late"))
    has_stored(source, 10, 0, 1)
    assert kept(world, 10) == [p64(2)]


def test_the_master_aborts_what_it_asked_for(world: World, master: End, source: End) -> None:
    """Specification 25.18."""
    confirmed(master, source, 10, row(10, 2, b"x"))
    master.send(AbortTransaction(p64(10), []))
    assert world.backend.commits.locked_transactions() == {}
    world.settle()
    assert world.backend.engine.read("SELECT id FROM data") == []


def undone(master: End, source: End) -> list[object]:
    """Object 2 has the revisions 6 and 8, a vote of 10 undoes the second one, and the own master asks
    for a pack up to it."""
    for ttid, tid in ((5, 6), (7, 8)):
        confirmed(master, source, ttid, row(ttid, 2, data_of(ttid)))
        lock(master, ttid, tid)
        unlock(master, ttid)
    send(source, 10, 0, row(10, 2, data_of(5), 6), metadata=True)
    store_later(source, 10, 0)
    packing: list[object] = master.ask_later(AskPack(p64(8)))
    looked(master.world)
    return packing


def prepare_undo(master: End) -> None:
    """The own master asks for the vote with the mark of a prepared transaction."""
    mark: SyncMark = (p64(10), b"order-7", 1000.0, b"", [0], [p64(2)], [])
    asked = ask_voted(master, 10, 2, sources={0: SOURCE}, mark=mark)
    master.world.wait(lambda: bool(asked), "AskVoted is not answered")


def looked(world: World) -> None:
    """A pack has looked for undos some times, and did what it can."""
    for _ in range(5):
        world.settle()
        world.host.advance(LOOK_SECONDS)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_pack_waits_for_undos_of_the_upstream_cluster(
    world: World, master: End, source: End, prepared: bool
) -> None:
    """Else the undo would go back to a revision that is gone; if it is prepared, from its lock on
    (specification 24.37, 25.64)."""
    packing = undone(master, source)
    if prepared:
        prepare_undo(master)
    else:
        confirm(master, 10, 2)
        looked(world)
    assert not packing and not world.core.packer.packed(0)
    lock(master, 10, 12)
    looked(world)
    assert not packing
    unlock(master, 10)
    looked(world)
    assert packing == [AnswerPack(True)]
    found = world.backend.reads.load(p64(2), None, None)
    assert (found.serial, found.data, found.data_serial) == (p64(12), data_of(5), None)


def test_a_pack_goes_on_when_the_undo_is_dropped(world: World, master: End, source: End) -> None:
    """Specification 25.64."""
    packing = undone(master, source)
    assert not packing
    source.send(NotifyAborted(p64(10)))
    looked(world)
    assert packing == [AnswerPack(True)]


def test_a_pack_does_not_wait_for_an_undo_that_is_prepared(
    world: World, master: End, source: End
) -> None:
    """Specification 24.37, 25.64."""
    packing = undone(master, source)
    prepare_undo(master)
    looked(world)
    assert packing == [AnswerPack(True)]


# -- orders of the own master ----------------------------------------------------------------------


def test_a_lock_is_answered_when_it_is_durable(world: World, master: End, source: End) -> None:
    """Specification 25.20."""
    confirmed(master, source, 10, row(10, 2, b"x"))
    locked = master.ask_later(AskLockInformation(p64(10), p64(12)))
    assert not locked, "the database has not called back"
    world.settle()
    assert locked == [AnswerInformationLocked(p64(10))]


def test_what_is_not_locked_is_not_unlocked(world: World, master: End, source: End) -> None:
    confirmed(master, source, 10, row(10, 2, b"x"))
    unlock(master, 10)
    unlock(master, 99)
    assert world.backend.reads.load(p64(2), None, None) is None
    lock(master, 10, 12)
    unlock(master, 10)
    assert world.backend.reads.load(p64(2), None, None).data == b"x"


def test_a_transaction_that_is_unknown_here_is_locked_and_aborted_without_rows(
    world: World, master: End, source: End
) -> None:
    """Specification 7.30: a node without any part of it answers as well."""
    lock(master, 10, 12)
    master.send(AbortTransaction(p64(10), []))
    unlock(master, 10)
    assert world.backend.reads.transaction(p64(12)) is None and not master.closed


# -- restarts --------------------------------------------------------------------------------------


def verify(world: World) -> End:
    """The node joins in VERIFYING."""
    master = world.join()
    world.send_table(master)
    return master


def test_what_is_locked_survives_a_crash_and_the_rest_is_dropped(make_world: MakeWorld) -> None:
    """Specification 25.24."""
    world = make_world()
    master = backup(world)
    master.send(Replicate(p64(8), "", {0: None, 1: None}))
    source = connected(world, master)
    for ttid, oid in ((10, 2), (14, 4), (18, 6)):
        send(source, ttid, 0, row(ttid, oid, data_of(ttid)), metadata=True)
        store_later(source, ttid, 0)
    confirm(master, 10, 2)
    confirm(master, 14, 4)
    lock(master, 10, 12)
    world = make_world()
    master = verify(world)
    locked = master.ask(AskLockedTransactions())
    assert locked.tid_dict == {p64(10): p64(12), p64(14): None, p64(18): None}
    assert master.ask(AskFinalTID(p64(10))) == AnswerFinalTID(p64(12))
    master.send(NotifySynced(p64(12)))
    master.send(ValidateTransaction(p64(10), p64(12)))
    master.ask(AskLastIDs())
    master.send(StartOperation(True))
    master.take(NotifyReady)
    assert world.backend.commits.locked_transactions() == {}
    assert master.ask(AskRecovery()).backup_tid == p64(12)
    assert load(world.client(master), 2).data == data_of(10)
    world.settle()
    assert len(world.backend.engine.read("SELECT id FROM data")) == 1


def test_the_tid_of_a_backup_rises_only(world: World, master: End) -> None:
    """Specification 25.24: a node may be complete further than what is locked."""
    master.send(StopOperation())
    for tid, remembered in ((12, 12), (10, 12), (14, 14)):
        master.send(NotifySynced(p64(tid)))
        assert master.ask(AskRecovery()).backup_tid == p64(remembered)


def test_a_node_without_the_data_of_a_backup_does_not_become_one(world: World) -> None:
    """Specification 13.4, 25.24: the first order makes it one."""
    master = verify(world)
    master.send(NotifySynced(p64(12)))
    assert master.ask(AskRecovery()).backup_tid is None


def test_rows_are_dropped_when_the_operation_starts_again(
    world: World, master: End, source: End
) -> None:
    """Specification 25.24."""
    confirmed(master, source, 10, row(10, 2, b"x"))
    master.send(StopOperation())
    assert source.closed
    assert world.backend.commits.locked_transactions() == {p64(10): None}, "verification looks at it"
    master.send(StartOperation(True))
    master.take(NotifyReady)
    assert world.backend.commits.locked_transactions() == {}
    source = connected(world, master)
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    assert source.take(AskFetchVoted) == AskFetchVoted(p64(10), [0]) and not asked


# -- sizes -----------------------------------------------------------------------------------------


def test_a_long_record_and_a_long_list_arrive(world: World, master: End, source: End) -> None:
    """The upstream cluster is trusted, as the source of replication is."""
    data = bytes(LIMIT_GUEST + 1)
    oids = [p64(oid) for oid in range(100_000)]
    metadata: PreparedMetadata = (b"", b"", b"", oids)
    source.send(AddVoted(p64(10), 0, metadata))
    source.send(row(10, 2, data))
    has_stored(source, 10, 0)
    rows = world.backend.commits.prepared_rows(p64(10))
    assert rows.metadata.oids == oids
    assert len(world.backend.values.load_data(rows.stored[0].data_id)[2]) == len(data)
