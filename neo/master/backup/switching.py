"""Enter and leave backup mode, as the operator asks (FACTS 6.3, 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.master.maintenance.truncation import check_all_there
from neo.master.serving.client import begin_backup
from neo.master.serving.denial import denied
from neo.master.states import Event
from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.ids import format_nid, format_nids

if TYPE_CHECKING:
    from neo.master.core import MasterCore

def check_start(master: MasterCore) -> None:
    """Raises ErrorAnswer unless the cluster can become a backup now."""
    obstacle = _obstacle(master)
    if obstacle is not None:
        raise denied(obstacle)


def _obstacle(master: MasterCore) -> str | None:
    settings = master.settings
    if not (settings.upstream_cluster and settings.upstream_masters):
        return (
            "this cluster is not configured to be a backup: set 'upstream_cluster' and"
            " 'upstream_masters' of its master"
        )
    if master.state is not ClusterState.RUNNING:
        return f"the cluster must be RUNNING to become a backup, it is {master.state.name}"
    clients = [
        format_nid(peer.node.nid)
        for peer in master.of_type(NodeType.CLIENT)
        if peer.node is not None and not peer.node.backups  # the master of a backup only reads
    ]
    if clients:
        return f"clients are connected, stop them first: {', '.join(sorted(clients))}"
    if master.coordinator.transactions:
        return "a transaction is being finished: try again"
    if master.starting:
        return "a storage node is starting: try again"
    if master.packs.running:
        return "a pack is at work: wait until it is done"
    return None


def check_stop(master: MasterCore) -> None:
    """Raises ErrorAnswer unless backup mode can be left now."""
    state = master.state
    if state is ClusterState.RUNNING:
        raise denied("this cluster is RUNNING, not a backup")
    if master.backup is None:  # whether it is one is known when it serves
        raise denied(
            "the cluster must be STARTING_BACKUP or BACKINGUP to leave backup mode,"
            f" it is {state.name}",
        )
    check_all_there(master)
    if nids := master.backup.unknown:
        raise denied(
            f"{format_nids(nids)} did not say yet up to what all is there:"
            " try again in a moment"
        )


def start_backup(master: MasterCore) -> None:
    """From RUNNING to STARTING_BACKUP."""
    master.stop_clients()
    master.change_state(Event.START_BACKUP)
    begin_backup(master, None)


def stop_backup(master: MasterCore) -> None:
    """Through STOPPING_BACKUP and RECOVERING, where everything is deleted that is not complete, to
    RUNNING. The truncation is what makes storage nodes forget that they were a backup: until all
    remember it durably, the backup can go on (*RECOVERING*)."""
    assert master.backup is not None
    master.change_state(Event.STOP_BACKUP)
    tid = master.truncate_tid = master.backup.leave()
    master.backup = None
    master.back_to_recovery(f"backup mode ends at transaction {tid.hex()}", asked=True)
