"""What stays prepared when a cluster starts (specification 24.17 to 24.23)."""

from __future__ import annotations

import pytest

from neo.master.phases.memory import Memory
from neo.master.phases.survivors import Found, settle
from neo.protocol.enums import CellState, ClusterState, NodeType
from neo.protocol.ids import ZERO_TID, add64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerPreparedTransactions,
    AskLockInformation,
    AskNewOIDs,
    AskPreparedTransactions,
    AskRecovery,
    AskRollbackPrepared,
    NotifyPrepared,
    SetClusterState,
    StartOperation,
    ValidateTransaction,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import lock, oid_of
from tests.unit.master.prepared_world import (
    NOTHING,
    XID,
    PreparedWorld,
    ask_prepare,
    decide,
    mark_of,
    prepared,
    refusal,
    remember,
    states,
)

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
ALL = [0, 1, 2, 3]
#: S2 misses what S1 has.
BEHIND = [[(1, UP), (2, OUT)]] * 4


def marks(*found: tuple[object, ...]) -> AnswerPreparedTransactions:
    return AnswerPreparedTransactions(list(found), [])  # type: ignore[arg-type]


@pytest.fixture
def world() -> PreparedWorld:
    world = PreparedWorld()
    world.master.cluster.last_tid = tid(100)
    return world


@pytest.fixture
def ttid(world: PreparedWorld) -> bytes:
    return prepared(world, world.client())


def survivors(storages: list[Remote]) -> list[list[bytes]]:
    """Return what nodes were told to keep; each is told before it operates."""
    told = []
    for storage in storages:
        names = [type(message).__name__ for message in storage.received]
        assert names.index("NotifyPrepared") < names.index("StartOperation")
        told.append(storage.take(NotifyPrepared).ttid_list)
    return told


@pytest.mark.parametrize("commits", [True, False])
def test_what_all_nodes_have_stays_prepared(
    world: PreparedWorld, ttid: bytes, commits: bool
) -> None:
    """Specification 24.12, 24.19, 24.20, requirement 5 of issue 23: a restart of the whole cluster."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], [0, 1]))
    again, storages = world.restart([known, known])
    assert survivors(storages) == [[ttid], [ttid]]
    again.make_ready(*storages)
    assert states(again) == [(XID, "prepared")]
    again.master.coordinator.transactions.validate()
    answer = decide(again.client(), commits)
    for storage in storages:
        assert (lock(storage) if commits else remember(storage)).ttid == ttid
    final = answer.result().tid
    assert final > ttid if commits else final is None
    for storage in storages:
        aborted = [m.ttid for m in storage.received if type(m) is AbortTransaction]
        assert aborted == ([] if commits else [ttid])


def test_new_ids_are_not_those_of_what_is_prepared(world: PreparedWorld) -> None:
    """Specification 24.20: the oids that it stores are in no table of objects yet."""
    late = add64(world.master.cluster.tids.last, 2**40)
    known = marks(mark_of(late, [tid(5000)], ALL))
    again, storages = world.restart([known, known])
    again.make_ready(*storages)
    client = again.client()
    assert client.ask(AskNewOIDs(1)).result().oid_list == [tid(5001)]
    assert again.master.cluster.tids.ttid() > late


@pytest.mark.parametrize("marked", [True, False])
def test_new_ids_are_later_than_what_nodes_that_are_behind_remember(
    world: PreparedWorld, ttid: bytes, marked: bool
) -> None:
    """Specification 24.20: the clock of the former master was ahead. An xid that is used again must get a
    later ttid."""
    late = add64(world.master.cluster.tids.last, 2**40)
    mark, outcome = mark_of(late, [], ALL), (XID, late, None, 7.0)
    behind = AnswerPreparedTransactions([mark] if marked else [], [] if marked else [outcome])
    again, storages = world.restart([NOTHING, behind], BEHIND)
    again.make_ready(*storages)
    assert states(again) == []
    assert again.master.cluster.tids.ttid() > late


@pytest.mark.parametrize("commit", [True, False])
def test_what_one_copy_has_stays_and_the_other_copy_is_behind(
    world: PreparedWorld, ttid: bytes, caplog: pytest.LogCaptureFixture, commit: bool
) -> None:
    """Specification 24.19, 24.40: the disk of S2 lost the mark, or S2 was never told."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], [0, 1]))
    again, storages = world.restart([known, NOTHING])
    assert survivors(storages) == [[ttid], [ttid]]
    table = again.master.partitions
    assert [table.state(p, 1) for p in ALL] == [UP] * 4
    assert [table.state(p, 2) for p in ALL] == [OUT, OUT, UP, UP]
    for storage in storages:
        names = [type(message).__name__ for message in storage.received]
        assert names.index("NotifyPartitionChanges") < names.index("StartOperation")
    assert "S2 lacks prepared transactions" in caplog.text
    assert "copied to partitions 0, 1" in caplog.text
    again.make_ready(*storages)
    assert states(again) == [(XID, "prepared")]
    answer = decide(again.client(), commit)
    if commit:
        assert not storages[1].has(AskLockInformation)
        lock(storages[0])
    else:
        for storage in storages:
            remember(storage)
    assert isinstance(again, PreparedWorld)
    again.confirm(*storages)
    assert answer.done


def test_a_partition_of_which_no_copy_has_it_was_not_acknowledged(
    world: PreparedWorld, ttid: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 24.19: S2, with the only copies of partitions 2 and 3, was not told."""
    rows = [[(1, UP)], [(1, UP), (2, UP)], [(2, UP)], [(2, UP)]]
    known = marks(mark_of(ttid, [oid_of(world, 0)], [0, 1, 2]))
    again, storages = world.restart([known, NOTHING], rows)
    assert survivors(storages) == [[], []]
    assert again.master.partitions.row_list() == rows
    again.make_ready(*storages)
    assert states(again) == []
    assert (
        f"prepared transaction order-7 ({ttid.hex()}) is dropped: no copy of partition 2 has it, so it"
        " was not acknowledged" in caplog.text
    )


def test_of_two_that_cannot_both_stay_the_later_does(
    world: PreparedWorld, ttid: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 24.41: S1 has the latest mark, so it ended the earlier transactions, or their mark is
    not on its disk. The disk of S2 lost the latest. What has other partitions stays, too."""
    late, aside = add64(ttid, 1), add64(ttid, 2)
    known = [
        marks(mark_of(late, [], [0], b"late", 7.0)),
        marks(mark_of(ttid, [], [0, 1], b"early", 5.0), mark_of(aside, [], [1], b"aside", 6.0)),
    ]
    again, storages = world.restart(known)
    assert survivors(storages) == [[aside, late], [aside, late]]
    table = again.master.partitions
    assert [(table.state(p, 1), table.state(p, 2)) for p in (0, 1)] == [(UP, OUT), (OUT, UP)]
    assert "is dropped: no copy of partition 0 has it and what was prepared later" in caplog.text


@pytest.mark.parametrize("takes_over", [True, False])
def test_a_backup_keeps_only_what_all_copies_have(
    world: PreparedWorld, ttid: bytes, takes_over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 24.42: S2 may have dropped it, because later transactions had come."""
    answers = {1: marks(mark_of(ttid, [oid_of(world, 0)], [0, 1])), 2: NOTHING}
    found = Found(answers, {}, *((tid(100), None) if takes_over else (None, Memory({}, frozenset()))))
    cluster = world.master.cluster
    before = cluster.partitions.ptid
    assert not settle(cluster, found).survivors
    assert cluster.partitions.ptid == before
    assert "S2 did not prepare it, so it was not acknowledged" in caplog.text


def test_a_mark_of_partitions_that_do_not_exist_is_dropped(
    world: PreparedWorld, ttid: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    known = marks(mark_of(ttid, [], [77]))
    _, storages = world.restart([known, known])
    assert survivors(storages) == [[], []]
    assert "it names partitions that do not exist; there are 4" in caplog.text


def test_cells_that_are_not_readable_prove_nothing(world: PreparedWorld, ttid: bytes) -> None:
    """Specification 24.19, 24.21: S2 was lost before, and is copied again."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    again, storages = world.restart([known, NOTHING], BEHIND)
    assert survivors(storages) == [[ttid], [ttid]]
    again.make_ready(*storages)
    answer = decide(again.client(), True)
    assert not storages[1].has(AskLockInformation)
    lock(storages[0])
    assert answer.done


def test_a_mark_that_only_a_node_that_is_behind_has_is_dropped(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.19: the transaction ended while S2 was away."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    again, storages = world.restart([NOTHING, known], BEHIND)
    assert survivors(storages) == [[], []]


def test_what_was_committed_is_finished(world: PreparedWorld, ttid: bytes) -> None:
    """Specification 24.18: the first durable lock was the point of no return."""
    final = add64(ttid, 4)
    known = marks(mark_of(ttid, [oid_of(world, 0)], [0, 1]))
    again, storages = world.restart([known, known], locked=[{ttid: final}] * 2, ltid=final)
    for storage in storages:
        assert storage.take(ValidateTransaction) == ValidateTransaction(ttid, final)
    assert survivors(storages) == [[], []]
    again.make_ready(*storages)
    assert states(again) == [(XID, "committed")]
    assert decide(again.client(), True).result().tid == final


def test_what_some_node_has_unlocked_is_finished(world: PreparedWorld, ttid: bytes) -> None:
    """Specification 24.18: AskFinalTID finds it."""
    final = add64(ttid, 4)
    known = marks(mark_of(ttid, [oid_of(world, 0)], [0, 1]))
    outcome = AnswerPreparedTransactions([], [(XID, ttid, final, 7.0)])
    again, storages = world.restart([known, outcome], final=final, ltid=final)
    assert storages[0].take(ValidateTransaction) == ValidateTransaction(ttid, final)
    again.make_ready(*storages)
    assert states(again) == [(XID, "committed")]


@pytest.mark.parametrize("readable", [True, False])
def test_a_rollback_counts_when_a_readable_cell_remembers_it(
    world: PreparedWorld, ttid: bytes, readable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 24.19, 24.23: the nodes were not told to abort before the crash."""
    row = mark_of(ttid, [oid_of(world, 0)], ALL)
    outcome = AnswerPreparedTransactions([row], [(XID, ttid, None, 7.0)])
    rows = None if readable else BEHIND
    again, storages = world.restart([marks(row), outcome], rows)
    again.make_ready(*storages)
    if readable:
        assert states(again) == [(XID, "rolling back")]
        for storage in storages:
            assert remember(storage) == AskRollbackPrepared(XID, ttid, 7.0)
        assert states(again) == [(XID, "rolled back")]
        assert "is dropped: the transaction of this xid was rolled back" in caplog.text
    else:
        assert states(again) == [(XID, "prepared")]


def test_a_rollback_of_an_unknown_xid_counts_against_a_mark(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.13: an aborted prepare must not come back after it."""
    other = add64(ttid, 1)
    row = mark_of(ttid, [oid_of(world, 0)], ALL)
    outcome = AnswerPreparedTransactions([row], [(XID, other, None, 7.0)])
    again, storages = world.restart([outcome, outcome])
    again.make_ready(*storages)
    assert states(again) == [(XID, "rolled back")]
    assert again.master.cluster.tids.ttid() > other


@pytest.mark.parametrize("tid", [None, b"\0" * 7 + b"\5"])
def test_an_outcome_of_an_earlier_transaction_does_not_count_against_a_mark(
    world: PreparedWorld, ttid: bytes, tid: bytes | None
) -> None:
    """Specification 24.19: the xid was forgotten, and used again, while a node was away."""
    row = mark_of(ttid, [oid_of(world, 0)], ALL)
    stale = AnswerPreparedTransactions([row], [(XID, add64(ttid, -1), tid, 99e9)])
    again, storages = world.restart([stale, marks(row)])
    again.make_ready(*storages)
    assert states(again) == [(XID, "prepared")]


def test_the_lock_of_a_node_that_was_away_does_not_commit_what_stays_prepared(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.18: S1 has committed later transactions since."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    locks: list[dict[bytes, bytes | None]] = [{}, {ttid: add64(ttid, 4)}]
    again, storages = world.restart([known, known], BEHIND, locked=locks, ltid=add64(ttid, 400))
    assert not any(storage.has(ValidateTransaction) for storage in storages)
    assert survivors(storages) == [[ttid], [ttid]]
    again.make_ready(*storages)
    answer = decide(again.client(), True)
    for storage in storages:
        lock(storage)
    assert answer.result().tid > add64(ttid, 400)


def test_the_lock_of_a_node_that_is_behind_commits_what_was_finished_in_part(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.18: a verification was interrupted, after which S1 has no mark any more."""
    final = add64(ttid, 4)
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    _, storages = world.restart(
        [NOTHING, known], BEHIND, locked=[{ttid: None}, {ttid: final}], ltid=final
    )
    assert storages[0].take(ValidateTransaction) == ValidateTransaction(ttid, final)


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("final", [None, b"\0" * 6 + b"\1\0"])
def test_the_lock_of_a_node_that_was_away_is_not_the_outcome(
    world: PreparedWorld, ttid: bytes, later: int, final: bytes | None
) -> None:
    """Specification 24.23: S2 was lost when it had locked the transaction, and S1, which had not, was
    asked for another decision; or the outcome was forgotten and the xid used again."""
    outcome = (XID, add64(ttid, later), final, 7.0)
    away = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    answers = [AnswerPreparedTransactions([], [outcome]), away]
    again, storages = world.restart(answers, BEHIND, locked=[{}, {ttid: add64(ttid, 4)}])
    again.make_ready(*storages)
    assert states(again) == [(XID, "committed" if final else "rolled back")]
    assert decide(again.client(), final is not None).result().tid == final


def test_of_two_transactions_with_an_xid_the_later_one_was_acknowledged(
    world: PreparedWorld, ttid: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 24.33: the first prepare was aborted, and no node had made that durable."""
    later = add64(ttid, 1)
    known = marks(mark_of(ttid, [], [0], since=5.0), mark_of(later, [], [1], since=6.0))
    again, storages = world.restart([known, known])
    assert survivors(storages) == [[later], [later]]
    assert f"({ttid.hex()}) is dropped: its xid was used again" in caplog.text


def test_outcomes_are_remembered_in_the_order_of_their_times(world: PreparedWorld) -> None:
    """Specification 24.16, 24.23."""
    rows = [(b"new", tid(9), tid(10), 9.0), (b"old", tid(5), None, 5.0)]
    answer = AnswerPreparedTransactions([], rows)
    again, storages = world.restart([answer, answer], ltid=tid(10))
    again.make_ready(*storages)
    assert states(again) == [(b"new", "committed"), (b"old", "rolled back")]


def test_a_node_without_the_feature_is_not_asked_and_has_no_mark(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.17, 24.19, 24.28: its program is an older one now."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    again = MasterWorld(replicas=1)
    rows, ptid = world.master.partitions.row_list(), world.master.partitions.ptid
    again.extra = {FEATURES: [FEATURE_OURS]}
    first = again.join_storage(1)
    again.extra = {}
    second = again.join_storage(2)
    for storage in (first, second):
        again.remember(storage, ptid, rows)
    world.confirm(first)
    world.find([first, second], [known, NOTHING])
    assert again.master.cluster.state is ClusterState.RUNNING
    assert survivors([first]) == [[ttid]]
    assert [again.master.partitions.state(p, 2) for p in ALL] == [OUT] * 4
    assert not second.has(AskPreparedTransactions) and not second.has(NotifyPrepared)


def test_a_node_that_joins_later_is_not_told_to_keep_its_marks(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.21: its cells are out of date."""
    world.storages[1].lose()
    world.confirm(world.storages[0])
    back = world.join_storage(2)
    assert back.has(StartOperation) and not back.has(NotifyPrepared)


def test_a_start_that_the_operator_forces_keeps_what_the_present_nodes_have(
    world: PreparedWorld, ttid: bytes
) -> None:
    """Specification 24.19: S2 is away."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    again = MasterWorld(replicas=1)
    again.extra = world.extra
    storage = again.join_storage(1)
    again.remember(storage, world.master.partitions.ptid, world.master.partitions.row_list())
    assert again.master.cluster.state is ClusterState.RECOVERING
    again.admin().ask(SetClusterState(ClusterState.VERIFYING)).result()
    world.confirm(storage)
    world.find([storage], [known])
    assert survivors([storage]) == [[ttid]]
    assert states(again) == [(XID, "prepared")]


def test_the_same_master_finds_it_again_after_a_loss(world: PreparedWorld, ttid: bytes) -> None:
    """Specification 24.17: what the master knew is forgotten with the operation."""
    known = marks(mark_of(ttid, [oid_of(world, 0)], ALL))
    rows, ptid = world.master.partitions.row_list(), world.master.partitions.ptid
    for storage in world.storages:
        storage.lose()
    assert len(world.master.coordinator.prepared) == 0
    storages = [world.join(NodeType.STORAGE, nid, port=9100 + nid) for nid in (1, 2)]
    for storage in storages:
        world.remember(storage, ptid, rows)
    for storage in storages:
        if storage.has(AskRecovery):
            world.confirm(storage)
    world.find(storages, [known, known])
    world.make_ready(*storages)
    assert states(world) == [(XID, "prepared")]
    assert refusal(ask_prepare(world.client(), ZERO_TID, [])).startswith("PROTOCOL_ERROR")
