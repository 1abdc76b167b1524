"""A copy of a storage node's database asks for an id and cells (specification, *Cloning a Storage Node*;
the capture *clone*)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.master.states import HEARS_OF, SERVING
from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    AcceptIdentification,
    NotifyNodeInformation,
    RequestIdentification,
)
from neo.topology.nodes import Node

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")


def check_clone(master: MasterCore, request: RequestIdentification) -> list[int]:
    """The partitions that the clone has. Raises ErrorAnswer."""
    if master.state not in SERVING:
        raise ErrorAnswer(ErrorCode.NOT_READY, "Retry Later")
    partitions = request.extra["new_nid"]
    if (
        request.node_type is not NodeType.STORAGE
        or request.nid is not None
        or request.address is not None
    ):
        raise ErrorAnswer(
            ErrorCode.PROTOCOL_ERROR, "only storages without id and address are cloned"
        )
    count = len(master.partitions)
    theirs = request.extra.get("partitions", count)  # other implementations do not tell
    if theirs != count:
        raise ErrorAnswer(
            ErrorCode.PROTOCOL_ERROR,
            f"the database has {theirs} partitions and the cluster {count}: it is no copy of a node of"
            " this cluster",
        )
    if not isinstance(partitions, list) or not all(
        type(partition) is int and 0 <= partition < count for partition in partitions
    ):
        raise ErrorAnswer(
            ErrorCode.PROTOCOL_ERROR,
            f"the clone asks for {partitions}: partitions 0 to {count - 1} exist",
        )
    return list(dict.fromkeys(partitions))


def accept_clone(
    master: MasterCore, peer: Peer, message_id: int, nid: int, partitions: list[int]
) -> None:
    """The new node is DOWN until it is started with its id."""
    node = master.nodes.add(Node(NodeType.STORAGE, nid, None, NodeState.DOWN))
    node.id_timestamp = master.stamp()
    logger.info("%s is a clone with partitions %s", format_nid(nid), partitions)
    master.notify_nodes([node])
    master.change_partitions([(p, nid, CellState.OUT_OF_DATE) for p in partitions])
    peer.handler = Handler()
    peer.answer(message_id, AcceptIdentification(NodeType.MASTER, master.node.nid, nid))
    heard = HEARS_OF[NodeType.STORAGE]
    others = [n.row() for n in master.nodes if n is not node and n.type in heard]
    peer.send(NotifyNodeInformation(master.stamp(), [node.row(), *others]))
    peer.send(master.table())
