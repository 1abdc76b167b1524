"""Storage nodes whose databases are blank: they have no cell.

Such a node is new; or its disk was not mounted, and an empty database was created in its place. It must
not be taken for a node that has data, whether it joins before that node or at its address. Otherwise
the cluster would start with it, and the data of the other node would be lost. So a blank node gets an
id that the partition table does not have.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from neo.master.cluster import Cluster
from neo.net.sockets import format_address
from neo.node.peer import Peer
from neo.protocol.enums import NodeType
from neo.protocol.ids import format_nid
from neo.protocol.packets import BLANK, RequestIdentification

logger = logging.getLogger("neo.master")


def is_blank(request: RequestIdentification) -> bool:
    if request.node_type is not NodeType.STORAGE:
        return False
    return request.nid is None or request.extra.get(BLANK) is True


def settled(cluster: Cluster, request: RequestIdentification) -> RequestIdentification:
    """Return the request with an id that the node may have; None if it must get another one. Remove what
    conflicts with the request from the node table."""
    if request.node_type is not NodeType.STORAGE:
        return request
    nid = request.nid
    if not is_blank(request):
        if nid is not None:
            _make_room(cluster, nid)
        return request
    # This holds also if the cells of the id are out of date. They would be filled on this disk, and
    # read from the old disk when that is mounted. That the database knows the id proves nothing,
    # because the node may have got the id when no table was known.
    assigned = cluster.partitions.nodes()
    if nid in cluster.connected or nid in assigned:
        nid = None
    there = cluster.nodes.by_address(NodeType.STORAGE, request.address)
    if there is not None and there.nid != nid and there.nid in assigned and not there.identified:
        _warn(format_address(request.address), there.nid)
        there.address = None
        cluster.notify_nodes([there])
    return replace(request, nid=nid)


def _make_room(cluster: Cluster, nid: int) -> None:
    """Disconnect a blank node that got the id of a node with data when the table was not known."""
    peer = cluster.connected.get(nid)
    if peer is None or peer.node is None or not peer.node.blank or cluster.partitions.assigned(nid):
        return
    _turn_out(cluster, peer)


def turn_out(cluster: Cluster) -> None:
    """Disconnect blank nodes with ids of nodes that have data. Call when the table was read."""
    for nid, peer in list(cluster.connected.items()):
        if peer.node is not None and peer.node.blank and cluster.partitions.assigned(nid):
            _turn_out(cluster, peer)


def _turn_out(cluster: Cluster, peer: Peer) -> None:
    assert peer.node is not None
    _warn(format_address(peer.node.address), peer.node.nid)
    cluster.disconnect(peer)


def _warn(where: str, nid: int | None) -> None:
    name = format_nid(nid)
    logger.warning(
        "the database of the storage node at %s is empty, so that it is not %s, which has data: it gets"
        " another id. If it should be %s: stop it, check that its disk is mounted, and start it again",
        where,
        name,
        name,
    )
