"""Who exists, in what state (specification, *Operating Data*, *Nodes*)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import format_nid, nid_namespace
from neo.protocol.packets import Address, NodeRow

#: The namespace of storage nodes ends here.
LAST_STORAGE = 2**24 - 1


@dataclass(slots=True, eq=False)
class Node:
    """``identified``: it is connected to the primary master and was accepted.

    ``backups``: of a client, the backup cluster of which it is the primary master, if any; of an
    admin, the backup clusters that it watches over.
    """

    type: NodeType
    nid: int | None
    address: Address | None = None
    state: NodeState = NodeState.UNKNOWN
    id_timestamp: float | None = None
    identified: bool = False
    devpath: tuple[str, ...] = ()
    features: frozenset[str] = field(default=frozenset())
    #: Of a storage node, as the master knows it: the last pack that it was asked for.
    pack_tid: bytes = bytes(8)
    backups: frozenset[str] = field(default=frozenset())
    #: A storage node that joined without cells, and was not started since.
    blank: bool = False
    #: A storage node that was RUNNING, without cells, when it was lost.
    spare: bool = False

    def row(self) -> NodeRow:
        return (self.type, self.address, self.nid, self.state, self.id_timestamp)

    def __repr__(self) -> str:
        return f"<{format_nid(self.nid)} {self.type.name} {self.state.name}>"


class NodeTable:
    """Nodes by id and by (type, address): masters may have an address before they have an id."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._by_nid: dict[int, Node] = {}
        #: The greatest id of a storage node that was ever here.
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
        """Raises AssertionError when another node has it."""
        assert self._by_nid.get(nid, node) is node, f"{format_nid(nid)} is taken"
        if node.nid is not None:
            del self._by_nid[node.nid]
        node.nid = nid
        self._by_nid[nid] = node

    def free_nid(self, node_type: NodeType) -> int:
        """The first id of the type's namespace that no node has; of storage nodes, that none had:
        the database of a node that was dropped may come back, and must not be taken for another's."""
        nid = nid_namespace(node_type) + 1
        if node_type is NodeType.STORAGE and self._last_storage < LAST_STORAGE:
            nid = self._last_storage + 1
        while nid in self._by_nid:
            nid += 1
        return nid

    def heard_of(self, nid: int) -> None:
        """A storage node with this id was somewhere, and may come back."""
        if nid <= LAST_STORAGE:
            self._last_storage = max(self._last_storage, nid)

    def update(self, timestamp: float, rows: Iterable[NodeRow]) -> list[Node]:
        """Apply NotifyNodeInformation; returns the nodes that changed, forgotten ones included."""
        self.timestamp = max(self.timestamp, timestamp)
        changed = []
        for node_type, address, nid, state, id_timestamp in rows:
            node = self.get(nid) or self.by_address(node_type, address)
            if state is NodeState.UNKNOWN:
                # Forgetting a node that was never known is nothing to complain about.
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
