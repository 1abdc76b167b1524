"""The states of a cluster and what leads from one to another (specification, *Cluster State*).

Everything that is absent from the table is an error of ours.
"""

from __future__ import annotations

from enum import Enum, auto

from neo.protocol.enums import ClusterState, NodeType

RECOVERING = ClusterState.RECOVERING
VERIFYING = ClusterState.VERIFYING
RUNNING = ClusterState.RUNNING
STOPPING = ClusterState.STOPPING


class Event(Enum):
    RECOVERED = auto()  # the table is known, and enough storages are there
    VERIFIED = auto()  # interrupted transactions are decided
    NOT_OPERATIONAL = auto()  # a partition cannot be read, or a truncation was asked
    STOP = auto()  # asked by the operator


TRANSITIONS: dict[tuple[ClusterState, Event], ClusterState] = {
    (RECOVERING, Event.RECOVERED): VERIFYING,
    (RECOVERING, Event.STOP): STOPPING,
    (VERIFYING, Event.VERIFIED): RUNNING,
    (VERIFYING, Event.NOT_OPERATIONAL): RECOVERING,
    (VERIFYING, Event.STOP): STOPPING,
    (RUNNING, Event.NOT_OPERATIONAL): RECOVERING,
    (RUNNING, Event.STOP): STOPPING,
}

#: Who may join in which state; the others are told to come back later (NOT_READY).
ADMITTED: dict[ClusterState, frozenset[NodeType]] = {
    RECOVERING: frozenset({NodeType.STORAGE, NodeType.ADMIN}),
    VERIFYING: frozenset({NodeType.STORAGE, NodeType.ADMIN}),
    RUNNING: frozenset({NodeType.STORAGE, NodeType.ADMIN, NodeType.CLIENT}),
    STOPPING: frozenset(),
}

#: Which types of nodes a type hears of (specification, notification matrix).
HEARS_OF: dict[NodeType, frozenset[NodeType]] = {
    NodeType.ADMIN: frozenset({NodeType.MASTER, NodeType.STORAGE, NodeType.CLIENT}),
    NodeType.STORAGE: frozenset({NodeType.MASTER, NodeType.STORAGE, NodeType.CLIENT}),
    NodeType.CLIENT: frozenset({NodeType.MASTER, NodeType.STORAGE}),
    NodeType.MASTER: frozenset({NodeType.MASTER}),
}
