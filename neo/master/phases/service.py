"""The begin of service: storage nodes are told to operate."""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.master.maintenance.replication import Replication
from neo.node.peer import Peer
from neo.protocol.packets import StartOperation


def begin_service(cluster: Cluster, replication: Replication, backup: bool) -> None:
    """Start all storage nodes that are RUNNING. ``backup``: the cluster follows another one."""
    for peer in cluster.running():
        start_storage(cluster, peer, backup)
    replication.discard_fed()


def start_storage(cluster: Cluster, peer: Peer, backup: bool) -> None:
    """Tell a storage node to operate. Transactions wait until it is ready, so that it is known which
    nodes have all their data."""
    assert peer.node is not None and peer.node.nid is not None
    if peer.node.nid not in cluster.ready:  # else it only learns of the backup mode
        cluster.starting.add(peer.node.nid)
    peer.node.blank = False
    peer.send(StartOperation(backup))
