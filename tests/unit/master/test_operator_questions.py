"""What the master answers an admin node, and the order in which it tells nodes of a command."""

from __future__ import annotations

from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AnswerLastIDs,
    AskClusterState,
    AskFinishTransaction,
    AskLastIDs,
    AskLastTransaction,
    AskNewOIDs,
    AskRecovery,
    Error,
    InvalidateObjects,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyUpstreamAdmin,
    SetNodeState,
)
from tests.unit.master.backup_world import BackupWorld, complete, fetched
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import begin, lock


def test_a_node_that_is_dropped_is_told_between_its_cells_and_the_others() -> None:
    """Specification 9.12, 17.14."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    first.lose()
    admin = world.admin()
    second.received.clear()
    admin.ask(SetNodeState(1, NodeState.UNKNOWN)).result()
    told = [m for m in admin.received if not isinstance(m, Error)]
    assert [type(m) for m in told] == [NotifyPartitionChanges, NotifyNodeInformation]
    at = [type(m) for m in admin.received].index(Error)
    assert at == 1, "the answer stands between"
    assert told[1].node_list[0][2:4] == (1, NodeState.UNKNOWN)
    assert second.names() == ["NotifyPartitionChanges", "NotifyNodeInformation"]
    assert world.master.partitions.nodes() == {2} and world.master.nodes.get(1) is None


def test_last_ids_are_those_that_the_master_gave() -> None:
    """Not those that are committed (specification 17.15, 17.16)."""
    world = MasterWorld()
    (storage,) = world.running(1)
    client, admin = world.client(), world.admin()
    assert admin.ask(AskClusterState()).result().state is ClusterState.RUNNING
    assert admin.ask(AskLastIDs()).result() == AnswerLastIDs(ZERO_TID, ZERO_TID)
    assert admin.ask(AskLastTransaction()).result().tid == ZERO_TID
    oids = client.ask(AskNewOIDs(3)).result().oid_list
    done = begin(client)
    client.ask(AskFinishTransaction(done, [], []))
    final = lock(storage).tid
    running = begin(client)
    answer = admin.ask(AskLastIDs()).result()
    assert (answer.loid, answer.ltid) == (oids[-1], running)
    assert admin.ask(AskLastTransaction()).result().tid == final < running
    recovery = admin.ask(AskRecovery()).result()
    assert (recovery.ptid, recovery.backup_tid, recovery.truncate_tid) == (1, None, None)


def test_in_a_backup_the_last_transaction_is_that_of_the_upstream_cluster() -> None:
    """Readers see less (specification 17.16)."""
    world = BackupWorld()
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    admin = world.admin()
    assert admin.ask(AskLastTransaction()).result().tid == tid(21)
    assert admin.ask(AskRecovery()).result().backup_tid == ZERO_TID
    fetched(storage, 21, 1)
    complete(21, storage)
    assert admin.ask(AskRecovery()).result().backup_tid == tid(21)


def test_an_admin_node_that_joins_hears_where_the_one_of_the_upstream_is() -> None:
    """Specification 17.22."""
    world = BackupWorld()
    upstream, _ = world.backingup()
    address = ("127.0.0.1", 7200)
    row = (NodeType.ADMIN, address, -0x2FFFFFFF, NodeState.RUNNING, 7.0)
    upstream.send(NotifyNodeInformation(2.0, [row]))
    late = world.join(NodeType.ADMIN, port=9001)
    assert late.take(NotifyUpstreamAdmin) == NotifyUpstreamAdmin(address)
