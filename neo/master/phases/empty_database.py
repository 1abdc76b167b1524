"""Storage nodes whose databases are blank: no cell is in them.

They are new; or a disk was not mounted, and an empty database was made in its place. Such a node must not
be taken for another one that has data, whether it comes before that one or at its address: the cluster
would start with it, and what the other one has would be gone for everybody. So a blank node gets an id
that nobody counts on.
"""

from __future__ import annotations

import logging

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
    """The request with an id that the node may have, if it asks for one, in a table without others that
    are in its way."""
    if request.node_type is not NodeType.STORAGE:
        return request
    nid = request.nid
    if not is_blank(request):
        if nid is not None:
            _make_room(cluster, nid)
        return request
    # Also if its cells are out of date: filled on another disk, they would be read from the old one when
    # that is mounted. That its database knows the id proves nothing: it got it when no table was known.
    assigned = cluster.partitions.nodes()
    if nid in cluster.connected or nid in assigned:
        nid = None
    there = cluster.nodes.by_address(NodeType.STORAGE, request.address)
    if there is not None and there.nid != nid and there.nid in assigned and not there.identified:
        _warn(format_address(request.address), there.nid)
        there.address = None
        cluster.notify_nodes([there])
    return request._replace(nid=nid)


def _make_room(cluster: Cluster, nid: int) -> None:
    """For a node with data, whose id was given to a blank one when the table was not known."""
    peer = cluster.connected.get(nid)
    if peer is None or peer.node is None or not peer.node.blank or cluster.partitions.assigned(nid):
        return
    _turn_out(cluster, peer)


def turn_out(cluster: Cluster) -> None:
    """The table was read: blank nodes that have ids of others join again."""
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
        " another id. If it should be %s, stop it, look whether its disk is mounted, and start it again",
        *(where, name, name),
    )
