"""Cloning: a copy of a storage node's database gets an id and cells (specification 18)."""

from __future__ import annotations

import logging
from functools import partial

from neo.master.cluster import Cluster
from neo.master.states import HEARS_OF, SERVING
from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    PARTITIONS,
    AcceptIdentification,
    NotifyNodeInformation,
    RequestIdentification,
)
from neo.topology.nodes import Node
from neo.topology.tweak import without

logger = logging.getLogger("neo.master")


def check_clone(cluster: Cluster, request: RequestIdentification) -> list[int]:
    """Return the partitions that the clone has. Raise ErrorAnswer if it may not join."""
    if cluster.state not in SERVING:
        raise ErrorAnswer(ErrorCode.NOT_READY, "Retry Later")
    if (request.node_type, request.nid, request.address) != (NodeType.STORAGE, None, None):
        raise _wrong("only storages without id and address are cloned")
    partitions = request.extra["new_nid"]
    count = len(cluster.partitions)
    theirs = request.extra.get(PARTITIONS, count)  # other implementations do not tell
    if theirs != count:
        raise _wrong(
            f"the database has {theirs} partitions and the cluster {count}: it is no copy of a node of"
            " this cluster, or an old one. Copy a node as it is now"
        )
    if not isinstance(partitions, list) or not all(
        type(partition) is int and 0 <= partition < count for partition in partitions
    ):
        raise _wrong(f"the clone asks for {partitions}: partitions 0 to {count - 1} exist")
    return list(dict.fromkeys(partitions))


def _wrong(text: str) -> ErrorAnswer:
    return ErrorAnswer(ErrorCode.PROTOCOL_ERROR, text)


def accept_clone(
    cluster: Cluster, peer: Peer, message_id: int, nid: int, partitions: list[int]
) -> None:
    """Add the clone to the tables, as a node that is DOWN until it is started with its id.

    The clone is told its id when the nodes with readable cells have it on their disks. Otherwise another
    master could give the id to a second node, and expect on one of these nodes data that only the other
    one has. If the clone disconnects before that, the id is removed, and the clone asks for another one
    later.
    """
    node = cluster.nodes.add(Node(NodeType.STORAGE, nid, None, NodeState.DOWN))
    node.id_timestamp = cluster.stamp()
    logger.info("%s is a clone with partitions %s", format_nid(nid), partitions)
    cluster.notify_nodes([node])
    cluster.change_partitions([(p, nid, CellState.OUT_OF_DATE) for p in partitions])
    peer.handler = Handler()
    waiting = cluster.partitions.nodes(readable_only=True) & cluster.connected.keys()
    known: set[int] = set()

    def heard(other: int, durable: bool) -> None:
        waiting.discard(other)
        if durable:
            known.add(other)
        if not waiting:
            _tell(cluster, peer, message_id, node if known else None)

    for other in sorted(waiting):
        cluster.when_durable(cluster.connected[other], partial(heard, other))


def _tell(cluster: Cluster, peer: Peer, message_id: int, node: Node | None) -> None:
    """Tell a clone its id. ``node``: None if no other node knows of it any more."""
    if node is None or cluster.nodes.get(node.nid) is not node or cluster.state not in SERVING:
        logger.warning("a clone was refused, clone again: operation stopped, or it was dropped")
        cluster.disconnect(peer)
    elif peer.closed:
        assert node.nid is not None
        logger.warning("%s was not told to its clone, which is gone", format_nid(node.nid))
        cluster.change_partitions(without(cluster.partitions, {node.nid}))
        cluster.remove_node(node)
    else:
        peer.answer(message_id, AcceptIdentification(NodeType.MASTER, cluster.node.nid, node.nid))
        heard = HEARS_OF[NodeType.STORAGE]
        others = [n.row() for n in cluster.nodes if n is not node and n.type in heard]
        peer.send(NotifyNodeInformation(cluster.stamp(), [node.row(), *others]))
        peer.send(cluster.table())
