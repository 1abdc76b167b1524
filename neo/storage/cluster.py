"""The cluster as a storage node knows it: its own place in it, the node table, the primary master."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neo.node.peer import Peer
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import Address, Message
from neo.storage.backend.api import Tables
from neo.topology.nodes import Node, NodeTable

#: A row of ``config``, of our own.
_GREATEST_NID = "_greatest_nid"


@dataclass(eq=False, slots=True)
class Master:
    """The primary master that this node has joined. ``features``: its extensions of the protocol."""

    peer: Peer
    features: frozenset[str] = frozenset()


class Cluster:
    def __init__(self, name: str, address: Address, tables: Tables) -> None:
        """``address``: of this node. Raises ValueError if the database is of another cluster."""
        self.name = name
        self.address = address
        self._tables = tables
        self.nid = check_database(tables, name)
        self.nodes = NodeTable()
        #: None while this node searches for the primary master.
        self.master: Master | None = None
        #: Whether this node serves: between StartOperation and StopOperation.
        self.operational = False

    def joined(self, peer: Peer, nid: int | None) -> None:
        """Note that a master accepted this node with this id; its tables follow."""
        self.master = Master(peer)
        self.nodes = NodeTable()
        if self.nid != nid:
            self.nid = nid
            self._tables.set_config("nid", str(nid))

    @property
    def own(self) -> Node | None:
        """This node in the node table; None if it is not there."""
        return self.nodes.get(self.nid)

    def running(self, nids: Iterable[int]) -> list[int]:
        """Return those of these nodes that run, in their order."""
        found = ((nid, self.nodes.get(nid)) for nid in nids)
        return [nid for nid, node in found if node and node.state is NodeState.RUNNING]

    def tell_master(self, message: Message) -> None:
        """Send a notification, which is lost if there is no master now."""
        if self.master is not None:
            self.master.peer.send(message)

    def greatest_nid(self) -> int:
        """Return the greatest id of a storage node that this one ever heard of."""
        return int(self._tables.get_config(_GREATEST_NID) or 0)

    def remember_nids(self) -> bool:
        """Write the greatest id of a storage node; return whether it is new, thus to be stored."""
        storages = self.nodes.of_type(NodeType.STORAGE)
        greatest = max((node.nid for node in storages if node.nid is not None), default=0)
        is_new = greatest > self.greatest_nid()
        if is_new:
            self._tables.set_config(_GREATEST_NID, str(greatest))
        return is_new


def check_database(tables: Tables, cluster: str) -> int | None:
    """Return the node id that the database remembers. Raises ValueError if it is of another cluster."""
    name = tables.get_config("name")
    if name is None:
        tables.set_config("name", cluster)
    elif name != cluster:
        raise ValueError(
            f"the database belongs to cluster {name!r}, not {cluster!r}: check the settings"
            " 'cluster' and 'database', or erase it with --reset"
        )
    nid = tables.get_config("nid")
    return None if nid is None else int(nid)
