"""Truncation is done on all nodes or on none, whatever is lost meanwhile (specification 4.21)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState, NodeState
from neo.protocol.ids import ZERO_TID, add64, tid_from_time
from neo.protocol.packets import (
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerPartitionTable,
    AnswerRecovery,
    AskLastIDs,
    AskLockedTransactions,
    AskPartitionTable,
    AskRecovery,
    SendPartitionTable,
    SetClusterState,
    SetNodeState,
    StopOperation,
    Truncate,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import (
    FEEDING,
    OUT,
    RECOVERING,
    RUNNING,
    UP,
    VERIFYING,
    MasterWorld,
    Rows,
    tid,
)

ROWS: Rows = [[(1, UP), (2, UP)]] * 4


def served() -> tuple[MasterWorld, list[Remote]]:
    world = MasterWorld(replicas=1)
    storages = world.running(2)
    world.master.cluster.last_tid = tid(90)
    return world, storages


@pytest.mark.parametrize(
    "mistyped",
    [ZERO_TID, tid(1795171507), tid(1795171507000), tid(0x40D276B), add64(tid_from_time(0), -1)],
)
def test_a_time_without_dot_and_a_tid_that_is_cut_off_delete_nothing(mistyped: bytes) -> None:
    """Specification 12.19."""
    world, _ = served()
    world.master.cluster.last_tid = tid_from_time(1795171600)
    text = world.denied(Truncate(mistyped))
    assert text.startswith(f"the tid {mistyped.hex()} is before 1970: everything would be deleted")
    assert world.master.cluster.state is RUNNING and world.master.cluster.truncate_tid is None


def test_a_database_of_small_tids_is_truncated_at_any() -> None:
    """Such tids are imported, or come from tests."""
    world, _ = served()
    world.admin().ask(Truncate(ZERO_TID))
    assert world.master.cluster.state is RECOVERING


def recovery(storage: Remote, truncate_tid: bytes | None, rows: Rows = ROWS) -> None:
    storage.answer(storage.take(AskRecovery), AnswerRecovery(1, None, truncate_tid))
    if storage.has(AskPartitionTable):
        storage.answer(storage.take(AskPartitionTable), AnswerPartitionTable(1, 1, rows))


def remembering() -> tuple[MasterWorld, list[Remote]]:
    """Both storage nodes remember the truncation, and VERIFYING has begun."""
    world, storages = served()
    answer = world.admin().ask(Truncate(tid(50)))
    assert world.master.cluster.state is RECOVERING
    for storage in storages:
        assert storage.has(StopOperation)
        recovery(storage, None)
    for storage in storages:
        assert storage.take(Truncate).tid == tid(50)
        assert not storage.has(AskLockedTransactions), "all remember it before any is truncated"
        assert not answer.done, "it is promised before it would outlive this master (12.20)"
        recovery(storage, tid(50))
    assert answer.result().message.startswith(f"everything after {tid(50).hex()} is deleted")
    assert world.master.cluster.state is VERIFYING
    for storage in storages:
        storage.answer(storage.take(AskLockedTransactions), AnswerLockedTransactions({}))
    return world, storages


def test_refused_while_a_node_with_cells_is_away() -> None:
    """Specification 12.19."""
    world, (_, second) = served()
    second.lose()
    text = world.denied(Truncate(tid(50)))
    assert text == "S2 must run, or be dropped: what is deleted would come back with it"
    assert world.master.cluster.state is RUNNING and world.master.cluster.truncate_tid is None
    world.admin().ask(SetNodeState(2, NodeState.UNKNOWN)).result()
    world.admin().ask(Truncate(tid(50)))
    assert world.master.cluster.state is RECOVERING


def test_refused_before_the_last_pack() -> None:
    """Specification 12.19."""
    world, _ = served()
    world.master.packs.tid = tid(60)
    assert "packed at 000000000000003c" in world.denied(Truncate(tid(59)))
    world.admin().ask(Truncate(tid(60)))
    assert world.master.cluster.state is RECOVERING


def test_a_node_that_is_lost_before_it_truncated_is_waited_for() -> None:
    """Specification 4.13, 4.21, 12.20."""
    world, (first, second) = remembering()
    first.answer(first.take(AskLastIDs), AnswerLastIDs(None, tid(50)))
    second.lose()
    assert world.master.cluster.state is RECOVERING
    recovery(first, None)  # it has truncated
    assert world.master.cluster.state is RECOVERING and not first.has(Truncate)
    second = world.storage(2, 1, ROWS, nid=2)
    # All nodes remember it again before any node truncates.
    assert first.take(Truncate).tid == second.take(Truncate).tid == tid(50)
    recovery(first, tid(50))
    assert world.master.cluster.state is RECOVERING
    recovery(second, tid(50))
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second, ltid=tid(50))
    assert world.master.cluster.state is RUNNING and world.master.cluster.truncate_tid is None


def test_ids_are_those_of_the_database_that_is_left(caplog: pytest.LogCaptureFixture) -> None:
    world, storages = served()
    given = world.master.cluster.tids.ttid()
    assert world.admin().ask(AskLastIDs()).result().ltid == given
    world.admin().ask(Truncate(tid(50)))
    for remembered in (None, tid(50)):
        for storage in storages:
            recovery(storage, remembered)
    world.verify(*storages, ltid=tid(50))
    assert world.master.cluster.state is RUNNING
    assert world.admin().ask(AskLastIDs()).result().ltid == tid(50)
    assert world.master.cluster.tids.ttid() > given
    assert "as the operator asked: everything after 0000000000000032 is deleted" in caplog.text
    assert all(record.levelname != "ERROR" for record in caplog.records)


@pytest.mark.parametrize("first_done", [False, True])
def test_another_master_goes_on_with_it(first_done: bool) -> None:
    world = MasterWorld(replicas=1)
    first = world.join_storage(1)
    second = world.join_storage(2)
    recovery(first, None if first_done else tid(50))
    assert world.master.cluster.state is RECOVERING
    recovery(second, tid(50))
    if first_done:
        assert first.take(Truncate).tid == tid(50)
        recovery(first, tid(50))
    assert world.master.cluster.state is VERIFYING
    assert world.master.cluster.truncate_tid == tid(50)


def test_another_master_ends_a_backup_mode_that_some_nodes_have_left_already() -> None:
    """The earlier master died while it sent Truncate, which makes a storage node forget
    ``backup_tid``."""
    world = MasterWorld(replicas=1)
    first, second = world.join_storage(1), world.join_storage(2)
    recovery(first, tid(50))
    second.answer(second.take(AskRecovery), AnswerRecovery(1, tid(60), None))
    assert world.master.cluster.state is RECOVERING
    assert second.take(Truncate).tid == tid(50)
    recovery(second, tid(50))
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second, ltid=tid(50))
    assert world.master.cluster.state is RUNNING


def test_another_master_waits_for_all_nodes_with_cells() -> None:
    """Specification 4.18."""
    world = MasterWorld(replicas=1)
    first = world.join_storage(1)
    recovery(first, tid(50))
    assert world.master.cluster.state is RECOVERING


def test_what_a_node_with_an_older_history_remembers_is_of_no_concern() -> None:
    """The node was absent; the others went on without it, and have commits since."""
    world = MasterWorld(replicas=1)
    rows = [[(1, UP), (2, OUT)]] * 4
    first = world.join_storage(1)
    second = world.join_storage(2)
    second.answer(second.take(AskRecovery), AnswerRecovery(1, None, tid(50)))
    if second.has(AskPartitionTable):
        second.answer(second.take(AskPartitionTable), AnswerPartitionTable(1, 1, ROWS))
    assert world.master.cluster.state is RECOVERING
    first.answer(first.take(AskRecovery), AnswerRecovery(5, None, None))
    first.answer(first.take(AskPartitionTable), AnswerPartitionTable(5, 1, rows))
    assert world.master.cluster.state is VERIFYING
    assert world.master.cluster.truncate_tid is None
    assert not first.has(Truncate)


@pytest.mark.parametrize("own", [UP, FEEDING], ids=["a copy", "the only copy, which moved there"])
def test_a_forced_start_takes_the_cells_of_who_is_absent(own: CellState) -> None:
    """The node may have data that the others delete, and must not come back with it. No cell is copied
    there any more, so a FEEDING one stays (specification 4.23)."""
    world = MasterWorld(replicas=1)
    first = world.join_storage(1)
    recovery(first, tid(50), [[(1, own), (2, UP if own is UP else OUT)]] * 4)
    world.admin().ask(SetClusterState(VERIFYING)).result()
    assert world.master.cluster.state is VERIFYING
    table = first.take(SendPartitionTable)
    assert [dict(row) for row in table.row_list] == [{1: UP}] * 4
    world.verify(first, ltid=tid(50))
    assert world.master.cluster.state is RUNNING
    assert world.master.partitions.rows == [{1: UP}] * 4
    back = world.join_storage(2)
    assert world.master.nodes.get(2).state is NodeState.PENDING  # type: ignore[union-attr]
    assert back.has(SendPartitionTable)
