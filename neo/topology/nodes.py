"""Table of the nodes of a cluster and their states (specification 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import format_nid, nid_namespace
from neo.protocol.packets import Address, NodeRow

#: Last id of the namespace of storage nodes.
LAST_STORAGE = 2**24 - 1


@dataclass(slots=True, eq=False)
class Node:
    """One node. ``identified``: the primary master has accepted it, and it is connected.

    ``backups``: for a client that is the primary master of a backup cluster, the name of that cluster;
    for an admin, the names of the backup clusters that it monitors.
    """

    type: NodeType
    nid: int | None
    address: Address | None = None
    state: NodeState = NodeState.UNKNOWN
    id_timestamp: float | None = None
    identified: bool = False
    devpath: tuple[str, ...] = ()
    features: frozenset[str] = field(default=frozenset())
    #: The last pack that the master requested from this storage node.
    pack_tid: bytes = bytes(8)
    backups: frozenset[str] = field(default=frozenset())
    #: A storage node that joined without cells and was not started since.
    blank: bool = False
    #: A storage node that was RUNNING without cells when it was lost.
    spare: bool = False
    #: The operations in the journal of a storage node, as it told them.
    journal: object = ()
    #: Until when a storage node remembers its cluster, a backup, to have been in sync, as it told it.
    sync_until: object = None

    def row(self) -> NodeRow:
        return (self.type, self.address, self.nid, self.state, self.id_timestamp)

    def __repr__(self) -> str:
        return f"<{format_nid(self.nid)} {self.type.name} {self.state.name}>"


class NodeTable:
    """Nodes by id and by (type, address), because a master may have an address before it has an id."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._by_nid: dict[int, Node] = {}
        #: The greatest id that a storage node ever had.
        self._last_storage = 0
        #: Timestamp of the last NotifyNodeInformation that was applied.
        self.timestamp = 0.0

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes))

    def get(self, nid: int | None) -> Node | None:
        return None if nid is None else self._by_nid.get(nid)

    def by_address(self, node_type: NodeType, address: Address | None) -> Node | None:
        if address is None:
            return None
        for node in self._nodes:
            if node.type is node_type and node.address == address:
                return node
        return None

    def of_type(self, node_type: NodeType) -> list[Node]:
        return [node for node in self._nodes if node.type is node_type]

    def addresses(self, node_type: NodeType) -> list[Address]:
        """Return the known addresses of the nodes of a type."""
        return [node.address for node in self.of_type(node_type) if node.address is not None]

    def add(self, node: Node) -> Node:
        assert node.nid is None or node.nid not in self._by_nid, node
        self._nodes.append(node)
        if node.nid is not None:
            self._by_nid[node.nid] = node
            if node.type is NodeType.STORAGE:
                self._last_storage = max(self._last_storage, node.nid)
        return node

    def remove(self, node: Node) -> None:
        self._nodes.remove(node)
        if node.nid is not None:
            del self._by_nid[node.nid]

    def set_nid(self, node: Node, nid: int) -> None:
        """Give a node an id. Raises AssertionError if another node has it."""
        assert self._by_nid.get(nid, node) is node, f"{format_nid(nid)} is taken"
        if node.nid is not None:
            del self._by_nid[node.nid]
        node.nid = nid
        self._by_nid[nid] = node

    def free_nid(self, node_type: NodeType) -> int:
        """Return the first free id of a type. The id of a storage node is never reused, because the
        database of a dropped node may come back and must not be mistaken for another one."""
        nid = nid_namespace(node_type) + 1
        if node_type is NodeType.STORAGE and self._last_storage < LAST_STORAGE:
            nid = self._last_storage + 1
        while nid in self._by_nid:
            nid += 1
        return nid

    def heard_of(self, nid: int) -> None:
        """Note that a storage node with this id exists and may come back."""
        if nid <= LAST_STORAGE:
            self._last_storage = max(self._last_storage, nid)

    def update(self, timestamp: float, rows: Iterable[NodeRow]) -> list[Node]:
        """Apply NotifyNodeInformation. Return the nodes that changed, including removed ones."""
        self.timestamp = max(self.timestamp, timestamp)
        changed = []
        for node_type, address, nid, state, id_timestamp in rows:
            node = self.get(nid) or self.by_address(node_type, address)
            if state is NodeState.UNKNOWN:
                # Removing an unknown node is not an error.
                if node is not None:
                    node.state = state
                    self.remove(node)
                    changed.append(node)
                continue
            if node is None:
                node = self.add(Node(node_type, nid))
            elif nid is not None and node.nid != nid:
                self.set_nid(node, nid)
            node.address = address
            node.state = state
            node.id_timestamp = id_timestamp
            changed.append(node)
        return changed
