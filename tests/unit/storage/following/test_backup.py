"""A storage node of a backup: it executes orders, and reports only what is durable."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AcceptIdentification,
    AddTransaction,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AnswerPackState,
    AnswerRecovery,
    AnswerUnfinishedTransactions,
    AskFetchObjects,
    AskFetchTransactions,
    AskLastIDs,
    AskPack,
    AskPackState,
    AskPartitionTable,
    AskRecovery,
    AskUnfinishedTransactions,
    NotifyPartitionChanges,
    NotifyReady,
    NotifyReplicationDone,
    Replicate,
    RequestIdentification,
    StartOperation,
    StopOperation,
    Truncate,
)
from neo.storage.following.replicator import RETRY_SECONDS
from tests.unit.storage.replicas import (
    MAX,
    OTHER,
    Destination,
    answer,
    full,
    reply,
    storage,
    storage_row,
    take_question,
)
from tests.unit.storage.requests import data_of, load
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import OUT, STORAGE, UP, End, MakeWorld, World, check_refused


def backup_tid(master: End) -> bytes | None:
    tid: bytes | None = master.ask(AskRecovery()).backup_tid
    return tid


def complete(world: World, tid: int) -> End:
    """A backup whose cells are complete up to this tid."""
    master = backup(world)
    master.send(Replicate(p64(tid), "", {0: None, 1: None}))
    return master


def serve(world: World, source: End, first: int, last: int, oid: int, tid: int) -> None:
    Destination.serve(source, first, last, {(tid, oid): data_of(tid)})


def test_knows_durably_that_it_is_a_backup_with_the_first_order(world: World) -> None:
    """Specification 13.4."""
    master = backup(world)
    assert backup_tid(master) is None
    master.send(Replicate(p64(10), "", {0: None, 1: None}))
    assert backup_tid(master) == p64(10)


def test_fetches_from_upstream_and_says_so_when_it_is_durable(world: World) -> None:
    """Specification 13.13, 13.17, 13.18."""
    master = complete(world, 0)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    source = upstream(world)
    serve(world, source, 0, 12, 2, 12)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    assert backup_tid(master) == ZERO_TID, "the other cell has less"
    master.send(Replicate(p64(12), "", {1: None}))
    assert backup_tid(master) == p64(12)
    client = world.client(master)
    assert load(client, 2).data == data_of(12)
    # The connection is kept, and it goes on where it was.
    master.send(Replicate(p64(14), "up", {0: SOURCE}))
    serve(world, source, 13, 14, 2, 14)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(14))


def test_a_source_that_fails_is_tried_again_until_there_is_another_order(world: World) -> None:
    """Specification 13.15."""
    master = backup(world)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    world.wait(lambda: bool(world.host.dialed), "upstream is not dialed")
    world.take_dial().disconnect()
    assert not world.host.dialed
    world.host.advance(RETRY_SECONDS)
    world.wait(lambda: bool(world.host.dialed), "upstream is not dialed again")
    world.take_dial().disconnect()
    master.send(Replicate(p64(14), "up", {0: OTHER}))
    source = upstream(world)
    serve(world, source, 0, 14, 2, 14)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(14))


def test_an_order_that_comes_again_with_a_greater_tid_is_done_once_more(world: World) -> None:
    """Specification 13.15."""
    master = backup(world)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    source = upstream(world)
    master.send(Replicate(p64(14), "", {0: None}))  # nothing has changed after 12
    serve(world, source, 0, 12, 2, 12)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    m = reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    assert (m.min_tid, m.max_tid) == (p64(13), p64(14))


def test_is_no_source_for_what_it_has_not(world: World) -> None:
    """Specification 10.10."""
    master = complete(world, 10)
    peer = storage(world, master, 2)
    found = peer.ask(AskFetchTransactions(0, 1000, ZERO_TID, p64(11), []))
    check_refused(found, ErrorCode.REPLICATION_ERROR)
    found = peer.ask(AskFetchTransactions(0, 1000, ZERO_TID, p64(10), []))
    assert found == AnswerFetchTransactions(None, None, [])


def test_serves_backups_of_its_cluster(world: World, master: End) -> None:
    """Specification 21.12."""
    full(world, master)
    peer = world.stranger()
    request = RequestIdentification(NodeType.STORAGE, None, OTHER, "test", 3.0, {})
    assert peer.ask(request) == AcceptIdentification(NodeType.STORAGE, None, None)
    found = peer.ask(AskFetchTransactions(0, 1000, ZERO_TID, MAX, []))
    assert found == AnswerFetchTransactions(None, None, [])
    assert len(peer.inbox) == 2
    world.host.advance(100)  # it is no stranger any more
    assert not peer.closed
    master.send(StopOperation())
    assert peer.closed


def test_goes_on_after_a_restart_where_all_cells_were(world: World) -> None:
    master = complete(world, 10)
    assert backup_tid(master) == p64(10)
    master.disconnect()
    world.host.advance(5)
    master = backup(world)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    serve(world, upstream(world), 11, 12, 2, 12)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


def test_a_cell_that_is_lost_counts_no_more(world: World) -> None:
    """Specification 13.17."""
    master = complete(world, 10)
    master.send(Replicate(p64(12), "", {0: None}))
    assert backup_tid(master) == p64(10)
    master.send(NotifyPartitionChanges(2, 0, [(1, 1, OUT), (1, 2, UP)]))
    assert backup_tid(master) == p64(12)


def joining(world: World, readable: bool) -> End:
    """The cell of partition 0 is complete up to 12, and the master was told, but has not answered yet.
    ``readable``: the other one can be read, up to 14."""
    master = backup(world, [[(1, OUT), (2, UP)], [(1 if readable else 2, UP)]])
    if readable:
        master.send(Replicate(p64(14), "", {1: None}))
    reply(master, AskUnfinishedTransactions, AnswerUnfinishedTransactions(p64(12), []))
    node = Destination.__new__(Destination)
    node.world = world
    node.serve(node.source(), 0, 12, {(12, 2): data_of(12)})
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    return master


@pytest.mark.parametrize(("readable", "remembered"), [(True, 14), (False, 12)])
def test_remembers_to_be_a_backup_before_its_first_cell_can_be_read(
    world: World, readable: bool, remembered: int
) -> None:
    """The other copy may be dropped as soon as the master knows of this one (specification 13.17)."""
    assert backup_tid(joining(world, readable)) == p64(remembered)


@pytest.mark.parametrize("readable", [True, False])
def test_a_cell_that_is_readable_since_the_node_was_lost_is_complete_up_to_where_it_was(
    world: World, readable: bool
) -> None:
    master = joining(world, readable)
    master.disconnect()
    world.host.advance(5)
    master = world.join()
    world.notify(master, storage_row(2))
    world.send_table(master, [[(1, UP)], [(1 if readable else 2, UP)]], 2)
    assert backup_tid(master) == p64(12)
    master.send(StartOperation(True))
    master.take(NotifyReady)
    master.send(Replicate(p64(15), "up", {0: SOURCE}))
    serve(world, upstream(world), 13, 15, 2, 15)


def test_truncation_ends_the_backup(world: World) -> None:
    """Specification 4.22, 13.29."""
    master = complete(world, 10)
    master.send(StopOperation())
    master.send(Truncate(p64(10)))
    ptid = master.ask(AskPartitionTable()).ptid
    assert master.ask(AskRecovery()) == AnswerRecovery(ptid, None, p64(10)), "it is no backup's now"
    master.ask(AskLastIDs())
    answered = master.ask(AskRecovery())
    assert answered.truncate_tid is None is answered.backup_tid
    assert world.backend.tables.get_config("_left_backup_tid") is None


def test_the_end_of_the_backup_survives_a_crash_before_the_data_is_cut(
    make_world: MakeWorld, world: World
) -> None:
    """A second Truncate may come with the next master, and the tables of a start without this node
    (specification 13.29)."""
    master = complete(world, 10)
    master.send(StopOperation())
    master.send(Truncate(p64(14)))
    master.ask(AskRecovery())
    world = make_world()
    master = world.join()
    recovery = master.ask(AskRecovery())
    assert (recovery.backup_tid, recovery.truncate_tid) == (None, p64(14))
    master.send(Truncate(p64(12)))
    recovery = master.ask(AskRecovery())
    assert (recovery.backup_tid, recovery.truncate_tid) == (None, p64(12))
    world.send_table(master, [[(1, OUT), (2, UP)], [(1, OUT), (2, UP)]], 2)
    assert {c.tid for c in world.backend.tables.cells() if c.nid == 1} == {10}, "less than 12"
    master.send(StartOperation(False))
    master.take(NotifyReady)
    recovery = master.ask(AskRecovery())
    assert (recovery.backup_tid, recovery.truncate_tid) == (None, None)


def test_what_was_fetched_in_part_is_fetched_again_after_the_backup_ended(world: World) -> None:
    """Metadata came, objects did not: the cell is not complete up to there."""
    master = complete(world, 10)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    source = upstream(world)
    message_id, _ = take_question(source, AskFetchTransactions)
    row = AddTransaction(p64(12), b"", b"", b"", False, p64(12), [p64(2)])
    source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchTransactions(None, None, []))
    world.settle()
    master.send(StopOperation())
    master.send(Truncate(p64(12)))
    world.send_table(master, [[(1, OUT), (2, UP)], [(1, UP)]], 2)
    master.ask(AskLastIDs())
    world.settle()
    assert {(c.partition, c.tid) for c in world.backend.tables.cells() if c.nid == 1 and c.tid >= 0} == {
        (0, 10)
    }


def test_who_missed_the_end_of_the_backup_is_compared_in_whole(world: World) -> None:
    """Specification 13.30."""
    master = complete(world, 10)
    assert backup_tid(master) == p64(10)
    master.disconnect()
    world.host.advance(5)
    node = Destination(world, ptid=2)
    node.unfinished(12)
    node.serve(node.source(), 0, 12, {})


@pytest.mark.parametrize("partition", [7, 2**32 - 1])
def test_orders_for_unknown_cells_are_ignored(world: World, partition: int) -> None:
    """Specification 13.16."""
    master = backup(world, [[(1, UP)], [(2, UP)]])
    master.send(Replicate(p64(12), "up", {partition: SOURCE, 1: SOURCE}))
    world.settle()
    assert not world.host.dialed and not master.closed


def has(world: World, oid: int) -> list[tuple[int, bool]]:
    """Serials of the revisions, and whether they have data."""
    world.settle()
    found = world.backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX, 100)
    records = [(tid, world.backend.reads.load(o, tid, None)) for tid, o in found if o == p64(oid)]
    return [
        (int.from_bytes(tid, "big"), record is not None and record.compression is not None)
        for tid, record in records
    ]


def behind(world: World) -> tuple[End, End]:
    """What it has up to 12 can be read, with objects 0, 2 and 4; the upstream has committed 14 to 18."""
    master = complete(world, 0)
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    source = upstream(world, FEATURE_OURS)
    pack_state(source, 0)
    Destination.serve(
        source,
        0,
        12,
        {(12, oid): b"old" for oid in (0, 2, 4)},
    )
    pack_state(source, 0)
    master.take(NotifyReplicationDone)
    return master, source


def pack_state(source: End, tid: int) -> None:
    m = reply(source, AskPackState, AnswerPackState(p64(tid)))
    assert m == AskPackState(0)


def compared(source: End, first: int, last: int, *gone: int) -> None:
    """Objects of 12 are compared; these are not at the source any more."""
    deleted = {p64(12): [p64(oid) for oid in gone]}
    m = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, deleted))
    assert (m.min_tid, m.max_tid) == (p64(first), p64(last))
    assert m.object_dict == {p64(12): [p64(0), p64(2), p64(4)]}


def test_what_was_deleted_and_packed_away_before_it_was_fetched_is_deleted(world: World) -> None:
    """Specification 13.22."""
    master, source = behind(world)
    master.send(Replicate(p64(18), "up", {0: SOURCE}))
    pack_state(source, 16)
    # 2 has a new revision at 14, 4 was deleted then, and the pack took all but 0 and the new one.
    Destination.serve(source, 13, 18, {(14, 2): b"new", (18, 0): b"later"})
    compared(source, 0, 12, 2, 4)
    pack_state(source, 16)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(18))
    assert has(world, 0) == [(12, True), (18, True)]
    assert has(world, 2) == [(12, True), (14, True)], "clients may see 12 until all cells are at 18"
    assert has(world, 4) == [(12, True), (16, False)]
    master.ask(AskPack(p64(16)))
    assert has(world, 0) == [(12, True), (18, True)]
    assert has(world, 2) == [(14, True)]
    assert has(world, 4) == [(16, False)], "the deletion of the last object stays"


def test_the_tid_of_a_pack_is_not_that_of_the_last_transaction(world: World) -> None:
    """It is unknown upstream: a node that is lost before it has the next tid could not continue
    (specification 5.10)."""
    master, source = behind(world)
    master.send(Replicate(p64(16), "up", {0: SOURCE}))
    pack_state(source, 16)
    Destination.serve(source, 13, 16, {})
    compared(source, 0, 12, 4)
    pack_state(source, 16)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(16))
    assert has(world, 4) == [(12, True), (16, False)]
    master.disconnect()
    world.host.advance(5)
    master = world.join()
    world.notify(master, storage_row(2))
    world.send_table(master)
    assert master.ask(AskLastIDs()).ltid == p64(12)


def test_a_pack_of_what_it_has_already_is_not_waited_for(world: World) -> None:
    master, source = behind(world)
    master.send(Replicate(p64(18), "up", {0: SOURCE}))
    pack_state(source, 12)
    serve(world, source, 13, 18, 2, 18)
    pack_state(source, 12)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(18))


def test_an_order_up_to_before_the_pack_waits_for_a_later_one(world: World) -> None:
    """Specification 13.23."""
    master, source = behind(world)
    master.send(Replicate(p64(14), "up", {0: SOURCE}))
    pack_state(source, 16)
    world.settle()
    assert not source.inbox and not master.inbox
    master.send(Replicate(p64(16), "up", {0: SOURCE}))
    world.host.advance(RETRY_SECONDS)
    pack_state(source, 16)
    serve(world, source, 13, 16, 2, 16)
    compared(source, 0, 12)
    pack_state(source, 16)
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(16))


def test_a_source_that_was_packed_meanwhile_is_fetched_from_again(world: World) -> None:
    """Specification 13.23."""
    master, source = behind(world)
    master.send(Replicate(p64(18), "up", {0: SOURCE}))
    pack_state(source, 0)
    serve(world, source, 13, 18, 2, 18)
    pack_state(source, 16)
    world.settle()
    assert not master.inbox
    world.host.advance(RETRY_SECONDS)
    pack_state(source, 16)


def test_an_order_without_the_name_of_a_cluster_is_for_a_node_of_the_own_one(world: World) -> None:
    """Specification 13.13."""
    master = complete(world, 0)
    master.send(Replicate(p64(12), "", {0: OTHER}))
    world.wait(lambda: bool(world.host.dialed), "the other node is not dialed")
    source = world.take_dial()
    extra = {FEATURES: [FEATURE_OURS]}
    request = reply(source, RequestIdentification, AcceptIdentification(NodeType.STORAGE, 2, 1))
    assert request == RequestIdentification(NodeType.STORAGE, 1, STORAGE, "test", 1.5, extra)
    Destination.serve(source, 0, 12, {(12, 2): data_of(12)})
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


def test_an_order_that_comes_after_the_operation_is_ignored(world: World) -> None:
    """Specification 13.16."""
    master = complete(world, 0)
    master.send(StopOperation())
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    world.settle()
    assert not world.host.dialed and not master.closed
