"""Clusters in every state, with all that may be under way when an operator gives a command."""

from __future__ import annotations

from collections.abc import Callable

from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AddPendingNodes,
    AskBeginTransaction,
    AskFinishTransaction,
    AskPack,
    CheckReplicas,
    NotifyReady,
    SetClusterState,
)
from tests.unit.master.backup_world import BackupWorld
from tests.unit.master.cluster import MasterWorld, tid

Make = Callable[[], MasterWorld]

RECOVERING, VERIFYING = ClusterState.RECOVERING, ClusterState.VERIFYING
RUNNING, STOPPING = ClusterState.RUNNING, ClusterState.STOPPING
STARTING_BACKUP, BACKINGUP = ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP


def empty() -> MasterWorld:
    world = MasterWorld(replicas=1)
    return world


def new() -> MasterWorld:
    world = MasterWorld(replicas=1)
    world.storages = [world.storage(1), world.storage(2)]
    return world


def waiting() -> MasterWorld:
    """One of two storage nodes with a database has joined, and has not answered yet."""
    world = MasterWorld(replicas=1)
    world.storages = [world.join_storage(1)]
    return world


def verifying() -> MasterWorld:
    world = new()
    world.admin().ask(SetClusterState(VERIFYING)).result()
    return world


def _served(world: MasterWorld) -> MasterWorld:
    world.storages = world.running(2)
    world.master.cluster.last_tid = tid(100)
    return world


def running() -> MasterWorld:
    return _served(MasterWorld(replicas=1))


def damaged() -> MasterWorld:
    """S2 is down, and one of its cells was corrupted."""
    world = running()
    world.master.cluster.change_partitions([(0, 2, CellState.CORRUPTED)])
    world.storages[1].lose()
    return world


def configured() -> MasterWorld:
    """The cluster could become a backup."""
    return _served(BackupWorld(replicas=1))


def finishing() -> MasterWorld:
    """A transaction is LOCKING; its client is lost, and storage nodes have not locked yet."""
    world = configured()
    client = world.client()
    ttid = client.ask(AskBeginTransaction(None)).result().ttid
    client.ask(AskFinishTransaction(ttid, [], []))
    client.lose()
    return world


def packing() -> MasterWorld:
    world = configured()
    client = world.client()
    client.ask(AskPack(tid(60)))
    client.lose()
    return world


def checking() -> MasterWorld:
    world = configured()
    world.admin().ask(CheckReplicas({0: None, 1: None}, ZERO_TID, None)).result()
    return world


def pending() -> MasterWorld:
    """S3 is PENDING."""
    world = configured()
    world.storages.append(world.join_storage(3))
    return world


def starting() -> MasterWorld:
    """S3 was added and is not ready yet."""
    world = pending()
    world.admin().ask(AddPendingNodes([3])).result()
    return world


def without_cells() -> MasterWorld:
    """S3 is ready and has no cell."""
    world = starting()
    world.storages[2].send(NotifyReady())
    return world


def stopping() -> MasterWorld:
    world = running()
    world.client().ask(AskBeginTransaction(None)).result()
    world.admin().ask(SetClusterState(STOPPING)).result()
    return world


def starting_backup() -> MasterWorld:
    """The upstream cluster does not answer."""
    world = BackupWorld(replicas=1)
    world.storages = world.running(2)
    world.admin().ask(SetClusterState(STARTING_BACKUP))
    return world


def backingup() -> MasterWorld:
    world = BackupWorld(replicas=1)
    world.storages = world.backingup(2, 100)[1]
    return world


def damaged_backup() -> MasterWorld:
    """S2 is down, and one of its cells was corrupted."""
    world = backingup()
    world.master.cluster.change_partitions([(0, 2, CellState.CORRUPTED)])
    world.storages[1].lose()
    return world


WORLDS: dict[Make, ClusterState] = {
    empty: RECOVERING,
    new: RECOVERING,
    waiting: RECOVERING,
    verifying: VERIFYING,
    running: RUNNING,
    damaged: RUNNING,
    configured: RUNNING,
    finishing: RUNNING,
    packing: RUNNING,
    checking: RUNNING,
    pending: RUNNING,
    starting: RUNNING,
    without_cells: RUNNING,
    stopping: STOPPING,
    starting_backup: STARTING_BACKUP,
    backingup: BACKINGUP,
    damaged_backup: BACKINGUP,
}
DAMAGED = {damaged, damaged_backup}
#: Worlds with S3.
THREE = {pending, starting, without_cells}
SERVING = {make for make, state in WORLDS.items() if state in (RUNNING, STARTING_BACKUP, BACKINGUP)}
