"""Every command in every state of the cluster, and with every wrong argument: a clear refusal, and
nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neo.master.administration import MAX_REPLICAS
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState
from neo.protocol.ids import INVALID_TID, MAX_TID, ZERO_TID, parse_nid
from neo.protocol.packets import (
    AddPendingNodes,
    AskBeginTransaction,
    CheckReplicas,
    Message,
    Repair,
    RepairCells,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    Truncate,
    TweakPartitionTable,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, tid

RECOVERING, VERIFYING = ClusterState.RECOVERING, ClusterState.VERIFYING
RUNNING, STOPPING = ClusterState.RUNNING, ClusterState.STOPPING
DOWN, UNKNOWN, PENDING = NodeState.DOWN, NodeState.UNKNOWN, NodeState.PENDING
M1 = parse_nid("M1")
A1 = parse_nid("A1")
BACKUP = [ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP, ClusterState.STOPPING_BACKUP]


# -- clusters -----------------------------------------------------------------------------------


def empty() -> MasterWorld:
    world = MasterWorld(replicas=1)
    world.storages = []  # type: ignore[attr-defined]
    return world


def new() -> MasterWorld:
    world = MasterWorld(replicas=1)
    world.storages = [world.storage(1), world.storage(2)]  # type: ignore[attr-defined]
    return world


def waiting() -> MasterWorld:
    """One of two storages with a database; it has not said what yet."""
    world = MasterWorld(replicas=1)
    world.storages = [world.join_storage(1)]  # type: ignore[attr-defined]
    return world


def verifying() -> MasterWorld:
    world = new()
    world.admin().ask(SetClusterState(VERIFYING)).result()
    return world


def running() -> MasterWorld:
    world = MasterWorld(replicas=1)
    world.storages = world.running(2)  # type: ignore[attr-defined]
    world.master.last_tid = tid(100)
    return world


def damaged() -> MasterWorld:
    """S2 is down, and one of its cells was corrupted."""
    world = running()
    world.master.change_partitions([(0, 2, CellState.CORRUPTED)])
    world.storages[1].lose()  # type: ignore[attr-defined]
    return world


def stopping() -> MasterWorld:
    world = running()
    world.client().ask(AskBeginTransaction(None)).result()
    world.admin().ask(SetClusterState(STOPPING)).result()
    return world


WORLDS: dict[Callable[[], MasterWorld], ClusterState] = {
    empty: RECOVERING,
    new: RECOVERING,
    waiting: RECOVERING,
    verifying: VERIFYING,
    running: RUNNING,
    damaged: RUNNING,
    stopping: STOPPING,
}


def snapshot(world: MasterWorld) -> object:
    """All that a command could change, and all that others could have been told."""
    master = world.master
    storages: list[Remote] = world.storages  # type: ignore[attr-defined]
    return (
        master.state,
        master.partitions.ptid,
        master.partitions.replicas,
        master.partitions.row_list(),
        [node.row() for node in master.nodes],
        master.truncate_tid,
        master.packs.tid,
        master.checks.report(),
        [list(storage.received) for storage in storages],
        [storage.closed for storage in storages],
        world.shell.exit_code,
    )


def refused(world: MasterWorld, message: Message) -> str:
    """The text of the refusal. Nothing else happened."""
    admin = world.admin()
    before = snapshot(world)
    error = error_of(admin.ask(message))
    assert error.code is ErrorCode.DENIED, error
    assert snapshot(world) == before
    assert not admin.closed and not admin.complaint
    assert len(error.message) > 10 and error.message == error.message.strip()
    return error.message


# -- states -------------------------------------------------------------------------------------

#: A command that makes sense, and where it may be obeyed; in all other clusters it is refused.
COMMANDS: list[tuple[Message, set[Callable[[], MasterWorld]]]] = [
    (SetClusterState(STOPPING), set(WORLDS)),
    (SetClusterState(VERIFYING), {new}),
    *((SetClusterState(state), set()) for state in [RECOVERING, RUNNING, *BACKUP]),
    (AddPendingNodes([1]), {running, damaged}),
    (TweakPartitionTable(False, []), {running}),
    (TweakPartitionTable(True, []), {running}),
    (TweakPartitionTable(False, [2]), {running, damaged}),
    (SetNumReplicas(0), {running, damaged}),
    (CheckReplicas({0: None}, ZERO_TID, None), {running, damaged}),
    (RepairCells([]), {running, damaged}),
    (RepairCells([(0, 2)]), set()),
    (Truncate(tid(50)), {running}),
    (SetNodeState(2, DOWN), {new, verifying, running, stopping}),
    (SetNodeState(2, UNKNOWN), {damaged}),
    (SetNodeState(1, UNKNOWN), set()),
    (Repair([1], True), set(WORLDS) - {empty}),
    (Repair([], True), set(WORLDS)),
]


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("message", "obeyed"), COMMANDS, ids=lambda v: "" if isinstance(v, set) else str(v)
)
def test_a_command_is_obeyed_or_refused_as_the_state_of_the_cluster_is(
    message: Message, obeyed: set[Callable[[], MasterWorld]], make: Callable[[], MasterWorld]
) -> None:
    world = make()
    assert world.master.state is WORLDS[make]
    if make in obeyed:
        world.admin().ask(message).result()
    else:
        refused(world, message)


def test_every_state_is_there() -> None:
    """Those of backup clusters are not states of this one."""
    assert set(WORLDS.values()) == set(ClusterState) - set(BACKUP)


# -- arguments ----------------------------------------------------------------------------------

#: What is never obeyed, whatever the cluster does.
WRONG: list[Message] = [
    *(SetNodeState(nid, state) for nid in (9, M1, A1, 0, -1) for state in (DOWN, UNKNOWN)),
    *(SetNodeState(nid, state) for nid in (1, 9) for state in (NodeState.RUNNING, PENDING)),
    *(AddPendingNodes([nid]) for nid in (9, M1, A1)),
    AddPendingNodes([1, 9]),
    *(TweakPartitionTable(False, [nid]) for nid in (9, M1, A1)),
    TweakPartitionTable(False, [1, 2]),
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
    *(Truncate(tid_) for tid_ in (tid(101), MAX_TID, INVALID_TID)),
]


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("message", WRONG, ids=str)
def test_wrong_arguments_are_refused_in_every_state(
    message: Message, make: Callable[[], MasterWorld]
) -> None:
    refused(make(), message)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (SetNodeState(9, DOWN), "unknown node"),
        (SetNodeState(1, UNKNOWN), "a running node must be stopped before removal"),
        (SetClusterState(RECOVERING), "Invalid state requested"),
        (SetClusterState(VERIFYING), "Can not switch to this state"),
    ],
)
def test_texts_that_scripts_know(message: Message, text: str) -> None:
    assert refused(running(), message) == text


def test_commands_of_one_kind_are_refused_as_a_whole() -> None:
    """The second argument is wrong: the first one is not obeyed either."""
    world = damaged()
    world.storages[1] = world.join_storage(2)  # type: ignore[attr-defined]
    for message in (
        RepairCells([(0, 2), (1, 1)]),
        RepairCells([(0, 2), (9, 2)]),
        CheckReplicas({1: None, 2: 9}, ZERO_TID, None),
        Repair([1, 9], False),
    ):
        refused(world, message)


def test_a_node_is_not_dropped_before_it_is_known_what_it_has() -> None:
    """It would erase what may be the only copy."""
    world = waiting()
    assert "must be RUNNING to drop a node" in refused(world, SetNodeState(1, UNKNOWN))
