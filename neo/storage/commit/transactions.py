"""What a storage node remembers of a transaction in progress.

PURE. The data structures of :mod:`neo.storage.commit.locks`, where the theory is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from neo.storage.backend.api import Stored

#: Answer of a store or check: None (locked), ZERO_TID (lockless), else the conflicting serial.
StoreAnswer = Callable[[bytes | None], None]


class CellMode(Enum):
    """What a node may do with a store in the cell of an object."""

    NORMAL = "check for conflicts and lock"
    LOCKLESS = "out of date: accept blindly"
    ABSENT = "not assigned to this node, or corrupted: ignore"


class Client(NamedTuple):
    """The end of a connection: a transaction lives and dies with the one it started on."""

    nid: int
    connection: int  # tells the successive connections of a node apart


class RebaseConflict(NamedTuple):
    """Why an object could not be rebased; it no longer belongs to the transaction."""

    serial: bytes
    conflict_serial: bytes
    change: Stored | None  # None: it was only checked


class TransactionRefused(Exception):
    """A request that contradicts the state of its transaction; the message is for the peer."""


class Unverifiable(TransactionRefused):
    """Whether the transaction conflicts with others cannot be told any more: it must begin again."""


#: None: the transaction holds the object, or has nothing to do with it any more.
RebaseAnswer = Callable[[RebaseConflict | Unverifiable | None], None]


class Change(NamedTuple):
    """What a transaction did with an object: ``stored`` is None if it only checked it."""

    serial: bytes
    stored: Stored | None


@dataclass(eq=False, slots=True)
class Transaction:
    """``changes`` = ``held`` + ``lockless`` + what must be rebased (nothing, once it voted).

    ``held`` has more: objects without a change, of which the client is resolving a conflict.
    """

    ttid: bytes
    client: Client
    locking_tid: bytes
    since: float  # when it began here, by the node's monotonic clock
    changes: dict[bytes, Change] = field(default_factory=dict)
    held: set[bytes] = field(default_factory=set)
    lockless: set[bytes] = field(default_factory=set)
    #: What was to be rebased when this node lost its cell: whether it conflicts is not known any more.
    unknown: set[bytes] = field(default_factory=set)
    delayed: dict[Request, None] = field(default_factory=dict)
    delayed_since: float = 0.0  # since when ``delayed`` is not empty, by the same clock
    rebasing: bool = False  # from a deadlock here until the client's AskRebaseTransaction
    voted: bool = False
    stored_vote: bool = False  # the vote is durable
    metadata: bool = False  # they are kept here
    tid: bytes | None = None  # set when locked
    alone: tuple[Transaction, ...] = ()  # (self,): one tuple for all that it holds alone

    def __post_init__(self) -> None:
        self.alone = (self,)

    @property
    def phase(self) -> str:
        """Its phase, in the words of ``HolderRow`` of :mod:`neo.protocol.packets`."""
        if self.tid is not None:
            return "locked"
        if self.voted:
            return "voted"
        return "waiting" if self.delayed else "storing"

    def stored(self) -> Iterator[Stored]:
        return (change.stored for change in self.changes.values() if change.stored is not None)

    def undoes(self, concerned: Callable[[bytes], bool], blindly: bool) -> bool:
        """See :meth:`Locks.undoing`."""
        if blindly:
            changes = [self.changes[oid] for oid in self.lockless]
        else:
            changes = [*self.changes.values(), *(r.change for r in self.delayed if r.change)]
        return any(
            stored is not None
            and stored.value_serial is not None
            and concerned(stored.oid)
            and not (blindly and stored.data_id is not None)
            for stored in (change.stored for change in changes)
        )

    def to_rebase(self) -> list[bytes]:
        """Objects it neither holds nor wrote blindly: it lost them in a deadlock."""
        return [oid for oid in self.changes if oid not in self.held and oid not in self.lockless]

    def unverifiable(self) -> Unverifiable:
        return Unverifiable(
            f"transaction {self.ttid.hex()} was to be rebased when the cells of its objects were taken"
            " from this node: begin it again"
        )


@dataclass(eq=False, slots=True)
class Request:
    """A store or check (``change`` is set), or a rebase of what the transaction already has.

    Without an answer it only *keeps a place*: the client will ask to rebase this object.
    """

    transaction: Transaction
    oid: bytes
    number: int  # order of arrival
    change: Change | None
    answer_store: StoreAnswer | None = None
    answer_rebase: RebaseAnswer | None = None

    @property
    def keeps_place(self) -> bool:
        return self.answer_store is None and self.answer_rebase is None

    def order(self) -> tuple[bytes, int]:
        return self.transaction.locking_tid, self.number

    def succeed(self, locked: bytes | None) -> None:
        if self.answer_store is not None:
            self.answer_store(locked)
        if self.answer_rebase is not None:
            self.answer_rebase(None)


class Blocked(NamedTuple):
    """What a transaction waits for. ``waited``: seconds that it has waited on this node without a pause.
    ``holders`` is empty if it only waits to be rebased."""

    waited: float
    holders: list[Transaction]


class Blocking(NamedTuple):
    """A transaction and the ones that wait for it. ``waiters``: seconds of each one's wait, by ttid."""

    transaction: Transaction
    waiters: dict[bytes, float]
