"""RECOVERING (specification 4): the tables and nodes that a start needs, and what it makes of them."""

from __future__ import annotations

import pytest

from neo.master.clock import CHECK_SECONDS
from neo.master.ids import LOST_TIDS, UNKNOWN_TIDS
from neo.master.phases.recovery import GIVEN_UP_TABLES, UNKNOWN_TABLES
from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import add64, tid_from_time
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerObstacle,
    AnswerRecovery,
    AskFinishTransaction,
    AskObstacle,
    AskPartitionTable,
    AskRecovery,
    NotifyNodeInformation,
    SendPartitionTable,
    SetClusterState,
    StartOperation,
    StopOperation,
    Truncate,
)
from tests.unit.master.cluster import (
    OUT,
    RECOVERING,
    RUNNING,
    UP,
    VERIFYING,
    MasterWorld,
    Rows,
    spread,
    tid,
)
from tests.unit.master.committing import begin, lock

#: Two copies of all partitions.
BOTH: Rows = [[(1, UP), (2, UP)]] * 4


def test_autostart_creates_the_database_when_enough_storages_are_there() -> None:
    """Specification 4.17, 4.25."""
    world = MasterWorld(autostart=2)
    world.storage(1)
    assert world.master.cluster.state is RECOVERING
    world.storage(2)
    assert world.master.cluster.state is VERIFYING
    assert world.master.partitions.nodes() == {1, 2}


def test_newcomer_gets_its_identity_first_and_storages_are_asked_what_they_know(
    world: MasterWorld,
) -> None:
    """Specification 3.19, 3.21, 4.14."""
    storage = world.join(NodeType.STORAGE, port=9101)
    assert storage.names() == ["AcceptIdentification", "NotifyNodeInformation", "AskRecovery"]


def test_first_row_of_the_node_table_is_the_newcomer(world: MasterWorld) -> None:
    """Specification 3.17, 3.20."""
    world.storage(1)
    storage = world.storage(2)
    accepted = storage.take(AcceptIdentification)
    rows = storage.take(NotifyNodeInformation).node_list
    assert accepted.your_nid == rows[0][2] == 2
    assert rows[0][3] is NodeState.PENDING
    assert {row[0] for row in rows[1:]} == {NodeType.STORAGE, NodeType.MASTER}


def test_order_of_messages_at_start(world: MasterWorld) -> None:
    """Specification 4.25."""
    storage = world.storage(1)
    storage.received.clear()
    world.admin().ask(SetClusterState(VERIFYING))
    assert storage.names() == [
        "NotifyNodeInformation",
        "NotifyClusterInformation",
        "SendPartitionTable",
        "AskLockedTransactions",
    ]


def test_existing_database_starts_when_all_its_readable_nodes_are_back(world: MasterWorld) -> None:
    """Specification 4.18."""
    rows = spread(1, 2)
    first = world.storage(1, 5, rows, nid=1)
    assert world.master.cluster.state is RECOVERING
    second = world.storage(2, 5, nid=2)
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second, ltid=tid(77))
    assert world.master.cluster.state is RUNNING
    assert world.master.cluster.last_tid == tid(77)


def test_table_is_asked_from_a_node_that_has_the_newest(world: MasterWorld) -> None:
    """With two tables of one version, the next master could take the wrong one for the last. So numbers
    are left out, of tables that unconnected nodes may have (specification 4.15, 9.18)."""
    old = world.storage(1, 5, spread(1, 3), nid=1)
    new = world.storage(2, 6, spread(2), nid=2)
    assert world.master.partitions.ptid == 6 + UNKNOWN_TABLES
    assert not old.has(AskPartitionTable)  # it gave it when it was the only one
    assert world.master.cluster.state is VERIFYING
    assert new.has(SendPartitionTable)


def test_another_node_is_asked_when_the_one_with_the_table_is_lost(world: MasterWorld) -> None:
    """Specification 4.15."""
    first = world.storage(1, 5, nid=1)
    second = world.storage(2, 5, nid=2)
    assert first.has(AskPartitionTable) and not second.has(AskPartitionTable)
    first.lose()
    assert second.has(AskPartitionTable)


@pytest.mark.parametrize(("clock", "ptid"), [(0.0, 6 + GIVEN_UP_TABLES), (1.8e9, 1_800_000_000_001)])
def test_what_was_given_up_has_older_tables_whatever_its_masters_did(
    world: MasterWorld, clock: float, ptid: int
) -> None:
    """S2 went on alone, and its master was restarted again and again; then the operator starts with S1
    alone. Else S2 could not come back: its table would be newer, or another one of that number. And if
    S2 was started so, too, the start that was later counts (specification 9.18)."""
    world.host.now = clock
    world.storage(1, 5, BOTH, nid=1)
    world.admin().ask(SetClusterState(VERIFYING)).result()
    assert world.master.partitions.ptid == ptid
    assert 5 + 100 * (UNKNOWN_TABLES + 1) < GIVEN_UP_TABLES


#: Later than the clock of the world, which is therefore behind.
AHEAD = tid(2**62)


@pytest.mark.parametrize("state", [UP, OUT])
def test_tids_that_absent_nodes_may_have_are_left_out(world: MasterWorld, state: CellState) -> None:
    """A node that was given up must not take another transaction for its own when it comes back. Once a
    table was published, it does not show any more which nodes were given up (specification 5.12)."""
    storage = world.storage(1, 5, [[(1, UP), (2, state)]] * 4, nid=1)
    if world.master.cluster.state is RECOVERING:
        world.admin().ask(SetClusterState(VERIFYING)).result()
    world.verify(storage, ltid=AHEAD)
    begun = begin(world.client())
    assert add64(AHEAD, UNKNOWN_TIDS) < begun <= add64(AHEAD, 2 * UNKNOWN_TIDS)
    assert world.master.cluster.last_tid == AHEAD


def test_two_masters_that_leave_out_tids_do_not_go_on_with_the_same_ones() -> None:
    """S1 and S2 have the same last transaction. Each goes on alone, under a master that was restarted
    within a minute: first S2, then S1, when the operator has given up S2. When S2 comes back, it would
    take the transactions of S1 for its own."""
    begun = set()
    for nid in (1, 2):
        world = MasterWorld()
        world.host.random.seed(nid)
        storage = world.storage(nid, 5, [[(nid, UP), (3 - nid, OUT)]] * 4, nid=nid)
        world.verify(storage, ltid=AHEAD)
        begun.add(begin(world.client()))
    assert len(begun) == 2


def test_no_tids_are_left_out_when_every_copy_is_there(world: MasterWorld) -> None:
    """Specification 5.12."""
    first, second = world.storage(1, 5, spread(1, 2), nid=1), world.storage(2, 5, nid=2)
    last = tid_from_time(world.host.time() - 1)
    world.verify(first, second, ltid=last)
    assert begin(world.client()) == tid_from_time(world.host.time())


def test_a_new_master_whose_clock_is_behind_does_not_give_the_ttid_of_a_lost_vote_again(
    world: MasterWorld,
) -> None:
    """A crash took the vote of a transaction with one storage node, and its client asks for the outcome
    (specification 5.12, 7.54)."""
    world.verify(world.storage(1, 5, spread(1), nid=1), ltid=AHEAD)
    begun = begin(world.client())
    assert add64(AHEAD, LOST_TIDS[0]) < begun <= add64(AHEAD, LOST_TIDS[1])


@pytest.mark.parametrize("behind", [59, 61])
def test_a_clock_that_is_behind_the_last_transaction_is_told(
    world: MasterWorld, behind: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Tids are times (specification 15.11). Only the log explains why new transactions have a wrong
    time."""
    last = tid_from_time(world.host.time() + behind)
    world.verify(world.storage(1, 5, spread(1), nid=1), ltid=last)
    told = [r.getMessage() for r in caplog.records if "behind the last transaction" in r.getMessage()]
    assert len(told) == (behind > 60)
    assert all("61 s" in line and last.hex() in line for line in told)


def test_a_clock_that_jumps_back_is_told_once_until_it_is_right_again(
    world: MasterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum("behind the last transaction" in r.getMessage() for r in caplog.records)

    now = world.host.time()
    world.verify(world.storage(1, 5, spread(1), nid=1), ltid=tid_from_time(now))
    for jump, expected in ((0, 0), (-3600, 1), (0, 1), (3600, 1), (-3600, 2)):
        world.host.now += jump
        world.host.advance(CHECK_SECONDS)
        assert told() == expected


def test_loss_of_a_needed_storage_stops_the_operation(world: MasterWorld) -> None:
    """Specification 4.12, 4.13."""
    first, second = world.running()
    client = world.client()
    client.received.clear()
    second.lose()
    assert world.master.cluster.state is RECOVERING
    assert client.has(StopOperation) and client.closed
    names = first.names()
    assert names.index("StopOperation") < names.index("NotifyClusterInformation")
    assert names[-2] == "AskRecovery" or names[-1] == "AskRecovery"


def test_the_cluster_comes_back_by_itself(world: MasterWorld) -> None:
    first, second = world.running()
    rows = world.master.partitions.row_list()
    second.lose()
    world.remember(first, 1, rows)
    assert world.master.cluster.state is RECOVERING
    second = world.storage(2, 1, nid=2)
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second)
    assert world.master.cluster.state is RUNNING


def test_a_table_older_than_the_one_in_use_is_refused() -> None:
    """Specification 4.16: with it an acknowledged commit would be lost."""
    world = MasterWorld(replicas=1)
    first, second = world.running()
    rows = world.master.partitions.row_list()
    first.lose()
    assert world.master.cluster.state is RUNNING and world.master.partitions.ptid == 2
    client = world.client()
    ttid = begin(client)
    answer = client.ask(AskFinishTransaction(ttid, [], []))
    lock(second)
    assert answer.done
    second.lose()
    assert world.master.cluster.state is RECOVERING
    world.storage(1, 1, rows, nid=1)
    assert world.master.cluster.state is RECOVERING
    assert "2 was in use" in world.denied(SetClusterState(VERIFYING))


def test_a_table_that_nobody_committed_with_is_not_missed() -> None:
    """A storage node may lose what it was told just before its end; nothing depends on it
    (specification 4.19)."""
    world = MasterWorld(replicas=1)
    first, second = world.running()
    rows = world.master.partitions.row_list()
    first.lose()
    second.lose()
    world.storage(2, 1, rows, nid=2)
    assert world.master.cluster.state is VERIFYING


def test_storage_without_cells_stays_pending_and_others_are_told(world: MasterWorld) -> None:
    """Specification 3.17, 3.21."""
    (first,) = world.running(1)
    spare = world.join(NodeType.STORAGE, port=9109)
    assert world.master.nodes.get(2).state is NodeState.PENDING  # type: ignore[union-attr]
    assert spare.has(SendPartitionTable) and not spare.has(StartOperation)
    assert first.has(NotifyNodeInformation)


# -- storage nodes that a start waits for ---------------------------------------------------------


def test_a_node_that_is_back_is_pending_until_the_cluster_starts(world: MasterWorld) -> None:
    """Specification 3.17, 4.25."""
    first = world.storage(1, 5, spread(1, 2), nid=1)
    second = world.join_storage(2)
    assert second.take(NotifyNodeInformation).node_list[0][2:4] == (2, NodeState.PENDING)
    first.received.clear()
    world.remember(second, 5)
    assert world.master.cluster.state is VERIFYING
    states = {row[2]: row[3] for row in first.take(NotifyNodeInformation).node_list}
    assert states == {1: NodeState.RUNNING, 2: NodeState.RUNNING}


def test_storage_nodes_are_pending_when_the_operation_stops(world: MasterWorld) -> None:
    """Specification 4.12."""
    first, second = world.running()
    first.received.clear()
    second.lose()
    rows = [row for m in first.received if type(m) is NotifyNodeInformation for row in m.node_list]
    assert [row[2:4] for row in rows] == [(2, NodeState.DOWN), (1, NodeState.PENDING)]
    assert not first.closed


def test_a_truncation_waits_for_nodes_that_are_out_of_date_too() -> None:
    """Specification 4.18: such a node would come back with what the others delete."""
    world = MasterWorld(replicas=1)
    first = world.join_storage(1)
    first.answer(first.take(AskRecovery), AnswerRecovery(5, None, tid(50)))
    world.tell_table(first, 5, [[(1, UP), (2, OUT)]] * 4)
    assert world.master.cluster.state is RECOVERING
    second = world.storage(2, 5, nid=2)
    assert second.take(Truncate).tid == tid(50)
    second.answer(second.take(AskRecovery), AnswerRecovery(5, None, tid(50)))
    assert world.master.cluster.state is VERIFYING


# -- what a start waits for, as the operator is told ----------------------------------------------


def obstacle(world: MasterWorld) -> AnswerObstacle:
    answer = world.admin().ask(AskObstacle()).result()
    assert isinstance(answer, AnswerObstacle)
    return answer


def starts(world: MasterWorld) -> bool:
    """Return whether the operator can start the cluster."""
    try:
        world.admin().ask(SetClusterState(VERIFYING)).result()
    except ErrorAnswer as e:
        assert e.code is ErrorCode.DENIED
        return False
    return True


def test_nobody_is_here(world: MasterWorld) -> None:
    """Specification 4.26."""
    text = "no storage node is connected"
    assert obstacle(world) == AnswerObstacle(text, text)
    assert not starts(world)


def test_a_new_database_waits_for_the_operator(world: MasterWorld) -> None:
    """Specification 4.17."""
    world.storage(1)
    assert obstacle(world).reason.startswith("a new database is created when")
    assert obstacle(world).forced == ""
    assert starts(world)
    assert world.master.cluster.state is VERIFYING and world.master.partitions.ptid == 1


def test_the_only_copy_is_away(world: MasterWorld) -> None:
    """Specification 4.18, 4.26."""
    world.storage(1, 5, spread(1, 2), nid=1)
    told = obstacle(world)
    assert told.reason == "S2 must be connected first"
    assert told.forced == "some partitions cannot be read without S2"
    assert not starts(world)


def test_a_copy_that_is_away_is_out_of_date_when_the_operator_starts_without_it(
    world: MasterWorld,
) -> None:
    """Specification 4.19, 4.25, 17.17."""
    world.storage(1, 5, BOTH, nid=1)
    assert obstacle(world) == AnswerObstacle("S2 must be connected first", "")
    assert starts(world)
    assert world.master.partitions.rows == [{1: UP, 2: OUT}] * 4


def test_a_cluster_that_serves_waits_for_nothing(world: MasterWorld) -> None:
    """Specification 17.17."""
    world.running(1)
    assert world.denied(AskObstacle())


def test_nodes_that_go_one_after_the_other_are_all_missed(world: MasterWorld) -> None:
    """The table is dropped when the first node is lost (specification 4.6)."""
    first, second = world.running(2)
    third = world.join_storage(3)
    for storage in (first, second, third):
        storage.lose()
    rows = {row[2]: row[3] for row in (node.row() for node in world.master.nodes)}
    assert rows[1] is rows[2] is NodeState.DOWN and 3 not in rows


def test_to_ask_makes_nobody_truncate(world: MasterWorld) -> None:
    """A truncation waits for S2. Only an order to start may go on without it."""
    first = world.join_storage(1)
    first.answer(first.take(AskRecovery), AnswerRecovery(1, None, None))
    world.tell_table(first, 1, BOTH)
    world.master.cluster.truncate_tid = tid(50)
    first.received.clear()
    text = "S2 must be connected first"
    assert obstacle(world) == AnswerObstacle(text, text)
    assert not first.received
    assert not starts(world), "it must remember the truncation first"
    assert first.take(Truncate).tid == tid(50)
