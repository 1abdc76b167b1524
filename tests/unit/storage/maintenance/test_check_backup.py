"""A backup compares its cells with those of the upstream cluster, and fetches what it lacks."""

from __future__ import annotations

from hashlib import sha1

import pytest

from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AddObject,
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AnswerPackState,
    AskFetchObjects,
    AskFetchTransactions,
    AskPackState,
    CheckPartition,
    MendCell,
    NotifyFeatures,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    NotifyReplicationDone,
    Replicate,
)
from neo.storage.backend.api import Transaction
from neo.storage.maintenance.check import AGAIN_SECONDS
from tests.unit.storage.comparing import FINE, MAX, Compared, Comparison, digest
from tests.unit.storage.replicas import Destination, answer, reply, take_question
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import World


class Followed(Comparison):
    """S1 is a backup that has the objects 0 and 2 of 12, and is complete up to 12."""

    def __init__(self, world: World, rows: object = None) -> None:
        super().__init__(world, backup(world, rows))
        self.master.send(NotifyFeatures([FEATURE_OURS]))
        self.master.send(Replicate(ZERO_TID, "", {0: None, 1: None}))
        self.master.send(Replicate(p64(12), "up", {0: SOURCE}))
        self.source = self.others[0] = upstream(world, FEATURE_OURS)
        self.packed(0)
        self.sent({(12, 0): b"a", (12, 2): b"b"})
        self.packed(0)
        self.master.take(NotifyReplicationDone)

    def packed(self, tid: int) -> None:
        question = reply(self.source, AskPackState, AnswerPackState(p64(tid)))
        assert question == AskPackState(0)

    def sent(self, rows: dict[tuple[int, int], bytes | None]) -> None:
        Destination.serve(self.source, 0, 12, rows)

    def check(self) -> None:
        self.master.send(CheckPartition(0, ("up", SOURCE), ZERO_TID, p64(12)))


UP_TIDS = AnswerCheckTIDRange(1, digest(12), p64(12))
UP_SERIALS = AnswerCheckSerialRange(2, digest(12, 12), p64(12), digest(0, 2), p64(2))
UP_MORE = AnswerCheckSerialRange(3, digest(12, 12, 12), p64(12), digest(0, 2, 4), p64(4))
UP_OTHERS = AnswerCheckSerialRange(2, digest(12, 12), p64(12), digest(0, 4), p64(4))


def test_one_copy_of_a_backup_is_compared_with_the_upstream_cluster(world: World) -> None:
    followed = Followed(world)
    followed.check()
    followed.packed(0)
    followed.replies(0, UP_TIDS, UP_SERIALS)
    assert followed.result() == [FINE]
    assert not followed.source.closed and not world.host.dialed


def test_the_upstream_cluster_is_right(world: World) -> None:
    """Specification 11.9."""
    followed = Followed(world)
    followed.check()
    followed.packed(0)
    followed.replies(0, UP_TIDS)
    followed.insist({0: UP_MORE})
    followed.packed(0)
    # This node may be behind only: it is not, because the first two of the upstream cluster are others.
    followed.replies(0, UP_OTHERS)
    assert followed.result() == [NotifyPartitionCorrupted(0, [1]), FINE]


@pytest.mark.parametrize("later", [False, True])
def test_cells_that_are_not_packed_alike_are_not_called_wrong(world: World, later: bool) -> None:
    """Specification 11.14."""
    followed = Followed(world)
    followed.check()
    if later:
        followed.packed(0)
        followed.insist({0: AnswerCheckTIDRange(0, ZERO_HASH, ZERO_TID)})
    followed.packed(11)
    (end,) = followed.result()
    assert isinstance(end, NotifyPartitionChecked) and "not packed alike" in end.problem


def test_an_upstream_node_that_does_not_answer_ends_the_check(world: World) -> None:
    followed = Followed(world)
    followed.check()
    followed.source.disconnect()
    for pause in AGAIN_SECONDS:
        world.host.advance(pause)
        world.wait(lambda: bool(world.host.dialed), "upstream is not dialed again")
        world.take_dial().disconnect()
    (end,) = followed.result()
    assert isinstance(end, NotifyPartitionChecked)
    assert "the reference does not answer: 127.0.0.1:7001 of the upstream cluster" in end.problem


def test_no_cluster_but_a_backup_asks_another_one(world: World) -> None:
    checked = Compared(world, 2)
    checked.master.send(CheckPartition(0, ("up", SOURCE), ZERO_TID, p64(12)))
    (end,) = checked.result()
    assert isinstance(end, NotifyPartitionChecked) and "only cells of a standby" in end.problem


def test_a_check_and_a_fetch_share_a_connection_that_is_dialed(world: World) -> None:
    master = backup(world)
    master.send(NotifyFeatures([FEATURE_OURS]))
    master.send(Replicate(p64(10), "", {0: None, 1: None}))
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    master.send(CheckPartition(0, ("up", SOURCE), ZERO_TID, p64(10)))
    source = upstream(world, FEATURE_OURS)
    assert not world.host.dialed
    world.settle()
    assert [type(m) for _, m in source.inbox].count(AskPackState) == 2


def revisions(world: World) -> list[tuple[bytes, bytes]]:
    world.settle()
    return world.backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX, 100)


def test_a_cell_gets_what_it_lacks_and_loses_what_was_never_upstream(world: World) -> None:
    """Specification 11.19."""
    followed = Followed(world)
    world.backend.replication.delete_objects([(p64(12), p64(2))])
    world.backend.replication.add_transaction(Transaction(p64(8), b"", b"", b"", False, [], p64(8)))
    followed.master.send(MendCell(0, ("up", SOURCE), p64(12)))
    followed.packed(0)
    followed.packed(0)
    tids = reply(
        followed.source, AskFetchTransactions, AnswerFetchTransactions(None, None, [p64(8)])
    )
    assert tids.tid_list == [p64(8), p64(12)]
    message_id, objects = take_question(followed.source, AskFetchObjects)
    assert objects.object_dict == {p64(12): [p64(0)]}
    row = AddObject(p64(2), p64(12), 0, sha1(b"b").digest(), b"b", None)
    followed.source.connection.send(row, message_id)
    answer(followed.source, message_id, AnswerFetchObjects(None, None, None, {}))
    followed.packed(0)
    assert followed.result() == [FINE]
    assert revisions(world) == [(p64(12), p64(0)), (p64(12), p64(2))]
    assert world.backend.reads.tids_ascending(ZERO_TID, MAX, 9, 0) == [p64(12)]


def test_a_cell_is_not_mended_from_one_that_is_packed_at_another_tid(world: World) -> None:
    """Specification 11.19."""
    followed = Followed(world)
    followed.master.send(MendCell(0, ("up", SOURCE), p64(12)))
    followed.packed(11)
    (end,) = followed.result()
    assert isinstance(end, NotifyPartitionChecked) and "packed at another tid" in end.problem
    assert len(revisions(world)) == 2


@pytest.mark.parametrize(("partition", "last"), [(0, 13), (9, 12), (2**32 - 1, 12)])
def test_only_what_is_complete_is_mended(world: World, partition: int, last: int) -> None:
    followed = Followed(world)
    followed.master.send(MendCell(partition, ("up", SOURCE), p64(last)))
    (end,) = followed.result()
    assert isinstance(end, NotifyPartitionChecked) and "no cell that is complete" in end.problem
    assert not any(isinstance(m, AskFetchTransactions) for _, m in followed.source.inbox)
