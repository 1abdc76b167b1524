"""Every command in every state of the cluster, and with every wrong argument: a clear refusal, and
nothing is changed. For several masters see ``test_bad_master_commands``."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.serving.admin import MAX_REPLICAS
from neo.protocol.enums import ClusterState, ErrorCode, NodeState
from neo.protocol.ids import INVALID_TID, MAX_TID, ZERO_TID, parse_nid
from neo.protocol.packets import (
    AddPendingNodes,
    AskFinishPrepared,
    AskPrepared,
    CheckReplicas,
    FlushLog,
    ForgetPrepared,
    ForgetTable,
    Repair,
    RepairCells,
    Request,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    SetPrimary,
    Truncate,
    TweakPartitionTable,
)
from tests.support.remote import error_of
from tests.unit.master import worlds
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.worlds import (
    BACKINGUP,
    DAMAGED,
    RECOVERING,
    RUNNING,
    SERVING,
    STARTING_BACKUP,
    STOPPING,
    THREE,
    VERIFYING,
    WORLDS,
    Make,
)

DOWN, UNKNOWN, PENDING = NodeState.DOWN, NodeState.UNKNOWN, NodeState.PENDING
M1, M2, A1 = parse_nid("M1"), parse_nid("M2"), parse_nid("A1")
STOPPING_BACKUP = ClusterState.STOPPING_BACKUP


def snapshot(world: MasterWorld) -> object:
    """Return all state that a command could change, and all messages to other nodes."""
    master = world.master
    storages = world.storages
    return (
        master.cluster.state,
        master.partitions.ptid,
        master.partitions.replicas,
        master.partitions.row_list(),
        [node.row() for node in master.nodes],
        master.cluster.truncate_tid,
        master.packs.tid,
        master.checks.report(),
        [list(storage.received) for storage in storages],
        [storage.closed for storage in storages],
        world.host.exit_code,
    )


def refused(world: MasterWorld, message: Request[Any]) -> str:
    """Return the text of the refusal. Nothing else may have happened."""
    admin = world.admin()
    before = snapshot(world)
    error = error_of(admin.ask(message))
    assert error.code is ErrorCode.DENIED, error
    assert snapshot(world) == before
    assert not admin.closed and not admin.complaint
    assert len(error.message) > 10 and error.message == error.message.strip()
    return error.message


# -- states -------------------------------------------------------------------------------------

IN_SERVICE = {worlds.starting, worlds.without_cells}
#: Commands that are answered when the nodes remember them (specification 12.20, 13.28, 13.33), and the
#: state until then.
REMEMBERED: list[tuple[Request[Any], ClusterState]] = [
    (Truncate(tid(50)), RECOVERING),
    (SetClusterState(STOPPING_BACKUP), RECOVERING),
    (SetClusterState(STARTING_BACKUP), STARTING_BACKUP),
]
#: Valid commands, and the worlds in which each may be executed; it is refused in all others.
COMMANDS: list[tuple[Request[Any], set[Make]]] = [
    (SetClusterState(STOPPING), set(WORLDS)),
    (SetClusterState(VERIFYING), {worlds.new}),
    *((SetClusterState(s), set()) for s in (RECOVERING, RUNNING, BACKINGUP)),
    (
        SetClusterState(STARTING_BACKUP),
        {worlds.configured, worlds.checking, worlds.pending, worlds.without_cells},
    ),
    (SetClusterState(STOPPING_BACKUP), {worlds.starting_backup, worlds.backingup}),
    (AddPendingNodes([]), SERVING),
    (AddPendingNodes([1]), SERVING),
    (AddPendingNodes([1, 2]), SERVING - DAMAGED),
    (AddPendingNodes([1, 3]), THREE),
    (TweakPartitionTable(False, []), SERVING - DAMAGED),
    (TweakPartitionTable(True, []), SERVING - DAMAGED),
    (TweakPartitionTable(False, [2]), SERVING),
    (TweakPartitionTable(False, [1, 2]), IN_SERVICE),
    (TweakPartitionTable(False, [3]), THREE),
    (SetNumReplicas(0), SERVING),
    (CheckReplicas({0: None}, ZERO_TID, None), SERVING - {worlds.packing}),
    (CheckReplicas({0: 1}, ZERO_TID, None), SERVING - {worlds.packing}),
    (CheckReplicas({0: 3}, ZERO_TID, None), set()),
    (RepairCells([]), SERVING),
    (RepairCells([(0, 2)]), set()),
    (RepairCells([(0, 3)]), set()),
    (
        Truncate(tid(50)),
        SERVING - DAMAGED - {worlds.starting_backup, worlds.backingup, worlds.packing},
    ),
    (SetNodeState(2, DOWN), {worlds.new, worlds.verifying, worlds.stopping} | SERVING - DAMAGED),
    (SetNodeState(3, DOWN), THREE),
    (SetNodeState(2, UNKNOWN), DAMAGED),
    (SetNodeState(3, UNKNOWN), {worlds.pending}),
    (SetNodeState(1, UNKNOWN), set()),
    (Repair([1], True), SERVING),
    (Repair([3], True), IN_SERVICE),
    (SetPrimary(M2), set()),
    (ForgetTable(1), set()),
    (AskPrepared(9, None), SERVING),
    (AskFinishPrepared(b"x", True), set()),
    (AskFinishPrepared(b"x", False), set()),  # the storage nodes could not remember it
    (ForgetPrepared(b"x"), {make for make, state in WORLDS.items() if state is RUNNING}),
]


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_commands_are_obeyed_or_refused_as_the_state_of_the_cluster_is(make: Make) -> None:
    """Specification 4.9, 17.10, 17.11."""
    unchanged = make()
    assert unchanged.master.cluster.state is WORLDS[make]
    for message, obeyed in COMMANDS:
        if make in obeyed:
            world = make()
            answer = world.admin().ask(message)
            until = [state for each, state in REMEMBERED if each == message]
            if until:
                assert [world.master.cluster.state] == until
            else:
                answer.result()
        else:
            refused(unchanged, message)


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_logs_are_written_out_in_every_state(make: Make) -> None:
    world = make()
    admin = world.admin()
    for storage in world.storages:
        storage.received.clear()
    before = snapshot(world)
    admin.send(FlushLog())
    connected = [storage for storage in world.storages if not storage.closed]
    assert [storage.take(FlushLog) for storage in connected] == [FlushLog()] * len(connected)
    assert world.host.logs_reopened == 1 and not admin.received and not admin.closed
    assert snapshot(world) == before


def test_every_state_is_there() -> None:
    """STOPPING_BACKUP is left within the call that enters it, so no command finds it."""
    assert set(WORLDS.values()) == set(ClusterState) - {STOPPING_BACKUP}


# -- arguments ----------------------------------------------------------------------------------

#: Commands that are refused in all states.
WRONG: list[Request[Any]] = [
    *(SetNodeState(nid, state) for nid in (9, M1, A1, 0, -1) for state in (DOWN, UNKNOWN)),
    *(SetNodeState(nid, state) for nid in (1, 9) for state in (NodeState.RUNNING, PENDING)),
    *(AddPendingNodes([nid]) for nid in (9, M1, A1)),
    AddPendingNodes([1, 9]),
    *(TweakPartitionTable(False, [nid]) for nid in (9, M1, A1)),
    TweakPartitionTable(False, [1, 2, 3]),
    TweakPartitionTable(True, [1, 9]),
    *(SetNumReplicas(number) for number in (-1, MAX_REPLICAS + 1, 2**31)),
    CheckReplicas({}, ZERO_TID, None),
    *(CheckReplicas({partition: None}, ZERO_TID, None) for partition in (-1, 4, 2**32)),
    *(CheckReplicas({0: nid}, ZERO_TID, None) for nid in (9, M1, A1)),
    CheckReplicas({0: None, 4: None}, ZERO_TID, None),
    CheckReplicas({0: None}, tid(101), None),
    CheckReplicas({0: None}, tid(51), tid(50)),
    CheckReplicas({0: None}, INVALID_TID, None),
    *(RepairCells([(partition, 1)]) for partition in (-1, 4, 0)),
    *(RepairCells([(0, nid)]) for nid in (9, M1, A1)),
    *(Repair([nid], dry_run) for nid in (9, M1, A1) for dry_run in (True, False)),
    Repair([1, 9], False),
    *(Repair([], dry_run) for dry_run in (True, False)),
    *(SetPrimary(nid) for nid in (9, M1, A1, 0)),
    *(ForgetTable(ptid) for ptid in (0, 99)),
    *(Truncate(tid_) for tid_ in (tid(101), MAX_TID, INVALID_TID)),
]
#: Commands that are refused before the cluster serves, with the state that they need.
NEED_SERVICE: list[Request[Any]] = [
    AddPendingNodes([1]),
    SetNumReplicas(1),
    TweakPartitionTable(True, []),
    CheckReplicas({}, ZERO_TID, None),
    Truncate(ZERO_TID),
]


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_wrong_arguments_are_refused_in_every_state(make: Make) -> None:
    world = make()
    for message in WRONG:
        refused(world, message)


@pytest.mark.parametrize(
    ("make", "message", "text"),
    [
        (worlds.finishing, SetClusterState(STARTING_BACKUP), "a transaction is being finished"),
        (worlds.starting, SetClusterState(STARTING_BACKUP), "a storage node is starting"),
        (worlds.packing, SetClusterState(STARTING_BACKUP), "a pack is at work"),
        (worlds.packing, CheckReplicas({0: None}, ZERO_TID, None), "a pack is running"),
        (worlds.packing, Truncate(tid(50)), "the database was packed at 000000000000003c"),
        (worlds.empty, SetClusterState(VERIFYING), "the cluster cannot start: "),
        (worlds.waiting, SetClusterState(VERIFYING), "the cluster cannot start: "),
        (worlds.damaged, SetNodeState(2, DOWN), "S2 is already down"),
        (worlds.damaged, AddPendingNodes([2]), "S2 is down: start it"),
        (worlds.damaged, Repair([2], False), "S2 is not connected"),
        (worlds.damaged, RepairCells([(0, 2)]), "S2 does not run: start it first"),
        (worlds.pending, Repair([3], False), "S3 is PENDING: add it first"),
        (worlds.verifying, Repair([1], False), "the cluster must be RUNNING to look for orphans"),
        (worlds.running, Repair([], False), "no storage node is named"),
        (worlds.without_cells, RepairCells([(0, 3)]), "S3 has no cell of partition 0"),
        (worlds.running, SetPrimary(M2), "this cluster has one master: there is no election"),
        (worlds.running, ForgetTable(1), "the cluster is RUNNING: its partition table is not lost"),
        (worlds.new, ForgetTable(1), "no partition table is missed"),
        (worlds.running, SetClusterState(STARTING_BACKUP), "this cluster is not configured to be"),
        (worlds.configured, SetClusterState(STOPPING_BACKUP), "this cluster is RUNNING, not a standby"),
        (worlds.damaged, SetNodeState(1, DOWN), "S1 has the only readable copy"),
        (worlds.running, SetNodeState(1, PENDING), "a node cannot be made PENDING"),
        (worlds.running, SetNodeState(M1, DOWN), "can not kill primary master node"),
        (worlds.running, SetNumReplicas(-1), "invalid number"),
        (worlds.running, TweakPartitionTable(False, [1, 2]), "no node would be left"),
        (worlds.running, Truncate(tid(101)), "the last transaction is 0000000000000064: nothing"),
        (worlds.running, CheckReplicas({}, ZERO_TID, None), "no partition is named"),
        (worlds.running, CheckReplicas({4: None}, ZERO_TID, None), "there is no partition 4: 0 to 3"),
        (worlds.running, CheckReplicas({0: 9}, ZERO_TID, None), "unknown node"),
        (worlds.running, CheckReplicas({0: None}, tid(101), None), "no transaction from"),
        (worlds.running, RepairCells([(4, 1)]), "there is no partition 4"),
        (worlds.running, RepairCells([(0, 9)]), "unknown node"),
        (worlds.running, RepairCells([(0, 1)]), "the cell of partition 0 of S1 is UP_TO_DATE: only"),
        (worlds.running, AddPendingNodes([7]), "unknown node"),
        (worlds.running, TweakPartitionTable(False, [7]), "unknown node"),
        (worlds.running, Repair([7], True), "unknown node"),
        *((worlds.new, message, "the cluster must be RUNNING") for message in NEED_SERVICE),
        # It would erase what may be the only copy.
        (worlds.new, SetNodeState(1, UNKNOWN), "the cluster must be RUNNING to drop a node"),
        (worlds.waiting, SetNodeState(1, UNKNOWN), "the cluster must be RUNNING to drop a node"),
        # Scripts know these texts.
        (worlds.running, SetNodeState(9, DOWN), "unknown node"),
        (worlds.running, SetNodeState(1, UNKNOWN), "a running node must be stopped before removal"),
        (worlds.running, SetClusterState(RECOVERING), "Invalid state requested"),
        (worlds.running, SetClusterState(VERIFYING), "Can not switch to this state"),
    ],
)
def test_the_reason_is_told(make: Make, message: Request[Any], text: str) -> None:
    """Specification 1.11, 9.5, 9.19, 11.1, 12.19, 13.1, 17.10, 17.11."""
    assert refused(make(), message).startswith(text)


@pytest.mark.parametrize(
    ("make", "nids", "text"),
    [
        (worlds.pending, [3], "Nodes added: S3"),
        (worlds.pending, [3, 1, 3, 2], "Nodes added: S3; in service already: S1, S2"),
        (worlds.pending, [], "No node added"),
        (worlds.starting, [3], "No node added"),
    ],
)
def test_what_became_of_each_node_is_told(make: Make, nids: list[int], text: str) -> None:
    assert make().admin().ask(AddPendingNodes(nids)).result().message == text


def test_commands_of_one_kind_are_refused_as_a_whole() -> None:
    """The second argument is wrong: nothing is done for the first one either."""
    world = worlds.damaged()
    world.storages[1] = world.join_storage(2)
    for message in (
        RepairCells([(0, 2), (1, 1)]),
        RepairCells([(0, 2), (9, 2)]),
        CheckReplicas({1: None, 2: 9}, ZERO_TID, None),
        Repair([1, 9], False),
    ):
        refused(world, message)
