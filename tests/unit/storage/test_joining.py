"""A storage node joins a cluster: its first words, recovery, and operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from neo.operations.model import Operation, State, Step, encode
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    BLANK,
    GREATEST_NID,
    AnswerPartitionTable,
    AnswerRecovery,
    AskFinalTID,
    AskPartitionTable,
    AskRecovery,
    AskVoteTransaction,
    Error,
    FlushLog,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyOperation,
    NotifyOperationEnded,
    NotifyOperationState,
    NotifyPartitionChanges,
    NotifyReady,
    StartOperation,
    StopOperation,
    Truncate,
)
from neo.storage.backend.api import BackendFailure
from neo.storage.node import NodeSettings, StorageNode
from neo.storage.operations.move import READY
from tests.unit.storage.requests import commit, store
from tests.unit.storage.world import C1, MASTER, OUT, STORAGE, UP, End, MakeWorld, World


def test_identifies_with_its_address_and_properties(world: World) -> None:
    """Specification 3.3, 3.5, 21.8."""
    world.join()
    assert world.request.node_type is NodeType.STORAGE
    assert (world.request.nid, world.request.address) == (None, STORAGE)
    assert world.request.extra["new_nid"] == []
    assert world.request.extra["devpath"] == ["host", "disk"]


def test_remembers_its_node_id(make_world: MakeWorld, world: World) -> None:
    """Specification 3.3."""
    world.join(nid=7)
    world = make_world()
    world.join()
    assert world.request.nid == 7


def test_tells_whether_its_database_is_blank(make_world: MakeWorld, world: World) -> None:
    """The master must not take it for another node then: neo.master.phases.empty_database
    (specification 18.9)."""
    world.join()
    assert (world.request.nid, world.request.extra[BLANK]) == (None, True)
    world = make_world()
    world.join()
    assert (world.request.nid, world.request.extra[BLANK]) == (1, True)
    world = make_world()
    world.operate()
    world = make_world()
    world.join()
    assert world.request.extra[BLANK] is False


def test_a_node_that_may_have_got_cells_is_not_blank(make_world: MakeWorld, world: World) -> None:
    """It was killed before it knew them, and would get another id: the operation that gives them would
    wait for ever (specification 18.9, 27.74)."""
    master = world.join()
    step = Step(READY, (1,), False, False)
    body = encode(Operation(7, "add", {}, 1, (step,), (), 0.0, 1.0, True))
    master.send(NotifyOperation(7, body))
    master.send(NotifyOperationState(7, State.RUNNING.value, 0, []))
    world.settle()
    world = make_world()
    master = world.join()
    assert (world.request.nid, world.request.extra[BLANK]) == (1, False)
    master.send(NotifyOperationEnded(7))
    world.settle()
    world = make_world()
    world.join()
    assert world.request.extra[BLANK] is True


def test_remembers_the_greatest_id_that_it_heard_of(make_world: MakeWorld) -> None:
    """Of a node that is away when another master gives ids (specification 18.14)."""
    world = make_world()
    master = world.operate()
    assert world.request.extra[GREATEST_NID] == 0
    row = NodeType.STORAGE, ("127.0.0.1", 9200), 5, NodeState.PENDING, 3.0
    master.send(NotifyNodeInformation(9e9, [row]))
    master.send(NotifyNodeInformation(9.1e9, [(*row[:3], NodeState.UNKNOWN, 3.0)]))
    world = make_world()
    world.join()
    assert world.request.extra[GREATEST_NID] == 5


def test_a_database_of_another_cluster_is_refused(world: World) -> None:
    world.close()
    world.backend.open()
    with pytest.raises(ValueError, match="belongs to cluster 'test', not 'other'"):
        StorageNode(world.host, NodeSettings("other", STORAGE), world.core.masters, world.backend)
    world.backend.close()


@pytest.mark.parametrize("ptid", [1, 2])
def test_a_table_of_another_database_changes_nothing(
    make_world: MakeWorld, world: World, master: End, caplog: pytest.LogCaptureFixture, ptid: int
) -> None:
    """Each table of a database has a greater id than those before. Else the cells would be erased
    (specification 9.7)."""
    master.send(NotifyPartitionChanges(2, 0, [(0, 2, OUT)]))
    before = world.backend.tables.cells()
    world.send_table(master, [[(2, UP)]] * 2, ptid)
    assert world.host.exit_code == 1
    assert "which serves another database" in caplog.text
    world = make_world()
    assert world.backend.tables.cells() == before and world.core.cells.partitions.ptid == 2
    world.send_table(world.join(), [[(2, UP)]] * 2, 3)
    assert world.core.cells.partitions.ptid == 3
    world.close()


def test_who_has_no_complete_cell_takes_every_table(make_world: MakeWorld, world: World) -> None:
    """A table with cells of this node may be lost with the nodes that knew it; no data is lost
    (specification 9.7)."""
    rows = [[(1, OUT), (2, UP)]] * 2
    world.send_table(world.join(), rows, 7)
    world = make_world()
    world.send_table(world.join(), [[(2, UP)]] * 2, 6)
    assert world.host.exit_code is None and world.core.cells.partitions.ptid == 6
    world.close()


def test_joins_again_after_the_loss_of_the_master(world: World, master: End, client: End) -> None:
    """Specification 4.31, 4.41."""
    world.host.advance(5)
    master.disconnect()
    assert client.closed
    assert not world.core.cluster.operational
    master = world.operate()
    assert world.request.nid == 1


def test_a_master_that_drops_us_at_once_is_not_dialed_in_a_loop(world: World) -> None:
    """Specification 2.33."""
    world.join().disconnect()
    assert not world.host.dialed
    world.host.advance(1.5)
    assert world.host.dialed


def test_masters_heard_of_are_remembered(world: World) -> None:
    """Specification 4.40."""
    master = world.join()
    world.notify(master, (NodeType.MASTER, ("127.0.0.1", 1001), None, NodeState.DOWN, None))
    assert world.remembered == [[MASTER, ("127.0.0.1", 1001)]]


# -- recovery ------------------------------------------------------------------------------------


def test_recovery_of_an_empty_database(world: World) -> None:
    """Specification 4.14."""
    master = world.join(state=NodeState.PENDING)
    assert master.ask(AskRecovery()) == AnswerRecovery(None, None, None)
    assert master.ask(AskPartitionTable()) == AnswerPartitionTable(None, 0, [])


def test_the_partition_table_survives_a_restart(make_world: MakeWorld, world: World) -> None:
    """Specification 9.6."""
    master = world.join()
    rows = [[(1, UP), (2, OUT)], [(1, CellState.FEEDING)], [(2, CellState.CORRUPTED)]]
    world.send_table(master, rows, ptid=5)
    master.send(NotifyPartitionChanges(6, 1, [(0, 1, OUT), (1, 2, UP)]))
    world = make_world()
    master = world.join()
    assert master.ask(AskRecovery()).ptid == 6
    rows[0][0] = (1, OUT)
    rows[1].append((2, UP))
    answer = master.ask(AskPartitionTable())
    assert answer.num_replicas == 1
    assert [[tuple(cell) for cell in row] for row in answer.row_list] == rows


def test_truncation_is_remembered_before_it_is_confirmed(make_world: MakeWorld) -> None:
    """Specification 4.14, 4.22."""
    world = make_world()
    master = world.join()
    master.send(Truncate(p64(50)))
    assert master.ask(AskRecovery()).truncate_tid == p64(50)
    world = make_world()
    assert world.join().ask(AskRecovery()).truncate_tid == p64(50)


# -- operation -----------------------------------------------------------------------------------


def test_ready_is_notified_once(world: World) -> None:
    """Specification 4.27, 4.28, 13.2."""
    master = world.join()
    world.send_table(master)
    master.send(StartOperation(False))
    master.take(NotifyReady)
    master.send(StartOperation(True))
    master.send(NotifyClusterInformation(ClusterState.BACKINGUP))
    assert not master.inbox


def test_start_without_a_partition_table_is_a_protocol_error(world: World) -> None:
    """Specification 4.29."""
    master = world.join()
    master.send(StartOperation(False))
    assert master.closed
    assert "before any partition table" in master.complaint


def test_stop_operation_disconnects_clients_and_forgets_their_transactions(world: World) -> None:
    """Specification 3.25, 4.31."""
    master = world.operate()
    client = world.client(master)
    store(client, 10, 1)
    master.send(StopOperation())
    assert client.closed
    assert not master.closed
    stranger = world.stranger()
    assert world.identify(stranger) == Error(2, "Retry Later")
    master.send(StartOperation(False))
    other = world.client(master)
    assert store(other, 11, 1) is None  # the lock of the first is gone


@pytest.mark.parametrize("ptid", [1, 3])
def test_a_gap_in_partition_table_ids_is_a_protocol_error(master: End, ptid: int) -> None:
    """Specification 9.4."""
    master.send(NotifyPartitionChanges(ptid, 0, []))
    assert master.closed
    assert "wrong partition table id" in master.complaint


def test_a_change_of_an_unknown_partition_is_a_protocol_error(master: End) -> None:
    master.send(NotifyPartitionChanges(2, 0, [(2, 1, UP)]))
    assert master.closed


def test_a_table_with_another_number_of_partitions_stops_the_node(world: World) -> None:
    """Specification 1.8, 9.7."""
    master = world.operate()
    world.send_table(master, [[(1, UP)]], ptid=2)
    assert world.host.exit_code == 1


def test_logs_are_reopened_on_demand(world: World) -> None:
    world.join().send(FlushLog())
    assert world.host.reopened == 1


# -- the end -------------------------------------------------------------------------------------


def test_stops_when_told_to_be_down(world: World, master: End) -> None:
    """Specification 4.7."""
    world.notify(master, (NodeType.STORAGE, STORAGE, 1, NodeState.DOWN, None))
    assert world.host.exit_code == 0
    assert master.closed


def test_erases_its_database_when_dropped_for_ever(make_world: MakeWorld) -> None:
    """Specification 4.7."""
    world = make_world()
    master = world.operate()
    commit(master, world.client(master), 10, 12, 1)
    world.notify(master, (NodeType.STORAGE, STORAGE, 1, NodeState.UNKNOWN, None))
    assert world.host.exit_code == 0
    world = make_world()
    world.join()
    assert world.request.nid is None
    assert not world.backend.reads.object_exists(p64(1))


def test_a_failing_database_ends_the_core_and_asks_for_another(world: World) -> None:
    """Specification 14.24."""
    master = world.operate()
    client = world.client(master)
    world.backend.close()  # whatever is asked of it now fails
    client.ask_later(AskFinalTID(p64(1)))
    assert world.host.restarts == 1
    assert master.closed and client.closed
    assert world.host.exit_code is None


def test_everybody_who_is_identified_hears_why_a_node_leaves(
    world: World, master: End, client: End
) -> None:
    """Specification 22.4."""
    stranger = world.stranger()
    world.core.backend_failed(BackendFailure("/data/x.sqlite: no space is left"))
    why = "the peer says: the database failed: /data/x.sqlite: no space is left"
    assert (master.complaint, client.complaint, stranger.complaint) == (why, why, "")
    assert master.closed and client.closed and stranger.closed


def test_a_node_whose_database_was_deleted_ends(
    world: World, client: End, caplog: pytest.LogCaptureFixture
) -> None:
    """To open it again would begin an empty one under the same name (specification 22.4)."""
    Path(world.backend.engine.name).unlink()
    store(client, 10, 1)
    answers = client.ask_later(AskVoteTransaction(p64(10)))
    world.wait(lambda: world.host.exit_code is not None, "the node goes on")
    assert not answers and world.host.exit_code == 1 and world.host.restarts == 0
    assert "is gone: it was deleted, moved or replaced while this node ran" in caplog.text
    assert "is gone" in client.complaint
    assert not Path(world.backend.engine.name).exists()


def test_unvoted_data_is_deleted_at_a_clean_stop(make_world: MakeWorld) -> None:
    world = make_world()
    master = world.operate()
    store(world.client(master, C1), 10, 1)
    world.core.terminate()
    assert world.host.exit_code == 0
    world = make_world()
    assert world.backend.maintenance.prune_orphans(True, 0, 100)[0] == 0
