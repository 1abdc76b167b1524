"""The states of a cluster and what leads from one to another (specification 4.9).

A transition that is absent from the table is a programming error.
"""

from __future__ import annotations

from enum import Enum, auto

from neo.protocol.enums import ClusterState, NodeType
from neo.topology.nodes import Node

RECOVERING = ClusterState.RECOVERING
VERIFYING = ClusterState.VERIFYING
RUNNING = ClusterState.RUNNING
STOPPING = ClusterState.STOPPING
STARTING_BACKUP = ClusterState.STARTING_BACKUP
BACKINGUP = ClusterState.BACKINGUP
STOPPING_BACKUP = ClusterState.STOPPING_BACKUP

#: States in which storage nodes operate.
SERVING = (RUNNING, STARTING_BACKUP, BACKINGUP)


class Event(Enum):
    RECOVERED = auto()  # the table is known, and enough storages are there
    VERIFIED = auto()  # interrupted transactions are decided
    VERIFIED_BACKUP = auto()  # the same, and the database is a backup
    NOT_OPERATIONAL = auto()  # a partition cannot be read, or the operator gave a command that needs it
    STOP = auto()  # asked by the operator
    START_BACKUP = auto()  # asked by the operator
    FOLLOWING = auto()  # connected to the upstream cluster, whose history goes on where ours ends
    STOP_BACKUP = auto()  # asked by the operator


TRANSITIONS: dict[tuple[ClusterState, Event], ClusterState] = {
    (RECOVERING, Event.RECOVERED): VERIFYING,
    (RECOVERING, Event.STOP): STOPPING,
    (VERIFYING, Event.VERIFIED): RUNNING,
    (VERIFYING, Event.NOT_OPERATIONAL): RECOVERING,
    (VERIFYING, Event.STOP): STOPPING,
    (RUNNING, Event.NOT_OPERATIONAL): RECOVERING,
    (RUNNING, Event.STOP): STOPPING,
    (RUNNING, Event.START_BACKUP): STARTING_BACKUP,
    (VERIFYING, Event.VERIFIED_BACKUP): STARTING_BACKUP,
    (STARTING_BACKUP, Event.FOLLOWING): BACKINGUP,
    (STARTING_BACKUP, Event.STOP_BACKUP): STOPPING_BACKUP,
    (BACKINGUP, Event.STOP_BACKUP): STOPPING_BACKUP,
    (STARTING_BACKUP, Event.NOT_OPERATIONAL): RECOVERING,
    (BACKINGUP, Event.NOT_OPERATIONAL): RECOVERING,
    (STOPPING_BACKUP, Event.NOT_OPERATIONAL): RECOVERING,
    (STARTING_BACKUP, Event.STOP): STOPPING,
    (BACKINGUP, Event.STOP): STOPPING,
}

#: Types of nodes that may join in each state; others are refused and try again later (NOT_READY).
ADMITTED: dict[ClusterState, frozenset[NodeType]] = {
    RECOVERING: frozenset({NodeType.STORAGE, NodeType.ADMIN}),
    VERIFYING: frozenset({NodeType.STORAGE, NodeType.ADMIN}),
    RUNNING: frozenset({NodeType.STORAGE, NodeType.ADMIN, NodeType.CLIENT}),
    STOPPING: frozenset(),
    STARTING_BACKUP: frozenset({NodeType.STORAGE, NodeType.ADMIN}),
    BACKINGUP: frozenset({NodeType.STORAGE, NodeType.ADMIN, NodeType.CLIENT}),
    STOPPING_BACKUP: frozenset({NodeType.ADMIN}),
}

#: For each type of node, the types of nodes that it is told of (specification 4.4).
HEARS_OF: dict[NodeType, frozenset[NodeType]] = {
    NodeType.ADMIN: frozenset({NodeType.MASTER, NodeType.STORAGE, NodeType.CLIENT}),
    NodeType.STORAGE: frozenset({NodeType.MASTER, NodeType.STORAGE, NodeType.CLIENT}),
    NodeType.CLIENT: frozenset({NodeType.MASTER, NodeType.STORAGE}),
    NodeType.MASTER: frozenset({NodeType.MASTER}),
}


def hears_of(listener: Node, node: Node) -> bool:
    """Return whether a node is told of another one. The master of a backup cluster, which is a client
    here, is also told of the admin nodes that watch over that backup."""
    if node.type in HEARS_OF[listener.type]:
        return True
    return (
        listener.type is NodeType.CLIENT
        and node.type is NodeType.ADMIN
        and not node.backups.isdisjoint(listener.backups)
    )
