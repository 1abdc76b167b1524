"""The five enumerations of the protocol (specification 2.8).

On the wire an item is a MessagePack extension: its type is the number of the enumeration, counted
from 0, its data the item's own number, counted from 0 (specification 2.8). They are not integers in
Python, so that no plain number passes for one by accident.
"""

from __future__ import annotations

from enum import Enum


class CellState(Enum):
    OUT_OF_DATE = 0
    UP_TO_DATE = 1
    FEEDING = 2
    CORRUPTED = 3
    DISCARDED = 4

    def __init__(self, number: int) -> None:
        self.readable = number in (1, 2)
        self.writable = number in (0, 1, 2)


class ClusterState(Enum):
    RECOVERING = 0
    VERIFYING = 1
    RUNNING = 2
    STOPPING = 3
    STARTING_BACKUP = 4
    BACKINGUP = 5
    STOPPING_BACKUP = 6


class ErrorCode(Enum):
    """Codes of the Error packet, where they travel as plain integers, never as extensions."""

    ACK = 0
    DENIED = 1
    NOT_READY = 2
    OID_NOT_FOUND = 3
    TID_NOT_FOUND = 4
    OID_DOES_NOT_EXIST = 5
    PROTOCOL_ERROR = 6
    REPLICATION_ERROR = 7
    CHECKING_ERROR = 8
    BACKEND_NOT_IMPLEMENTED = 9
    NON_READABLE_CELL = 10
    READ_ONLY_ACCESS = 11
    INCOMPLETE_TRANSACTION = 12


class NodeState(Enum):
    UNKNOWN = 0
    DOWN = 1
    RUNNING = 2
    PENDING = 3


class NodeType(Enum):
    MASTER = 0
    STORAGE = 1
    CLIENT = 2
    ADMIN = 3


#: Extension type on the wire = index in this tuple.
EXTENSION_TYPES: tuple[type[Enum], ...] = (
    CellState,
    ClusterState,
    ErrorCode,
    NodeState,
    NodeType,
)
