"""State of transactions in progress: the data structures of :mod:`neo.storage.commit.locks`. PURE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from neo.storage.backend.api import Check, Stored


class CellMode(Enum):
    """How a node treats a store, by the state of the object's cell."""

    NORMAL = "check for conflicts and lock"
    LOCKLESS = "out of date: accept blindly"
    ABSENT = "not assigned to this node, or corrupted: ignore"


class Client(NamedTuple):
    """A connection with a client. A transaction belongs to the connection on which it began."""

    nid: int
    connection: int  # tells the successive connections of a node apart


#: The client of a transaction that was read from the tables, or fetched: its connection is lost.
NOBODY = Client(0, 0)


class RebaseConflict(NamedTuple):
    """The conflict of an object that could not be rebased, and left the transaction."""

    serial: bytes
    conflict_serial: bytes
    change: Stored | None  # None: it was only checked


class TransactionRefused(Exception):
    """A request contradicts the state of its transaction; the message is for the peer."""


class Hopeless(TransactionRefused):
    """The transaction cannot commit any more: the client must begin it again."""


class Unverifiable(Hopeless):
    """Conflicts of the transaction can no longer be detected here."""


class HeldByPrepared(Hopeless):
    """A prepared transaction holds an object for which the transaction waited too long (specification
    24.9)."""


#: Answer of a store or check: None (locked), ZERO_TID (lockless), a refusal, else the conflicting serial.
StoreAnswer = Callable[[bytes | Hopeless | None], None]
#: None: the transaction holds the object, or has nothing to do with it any more.
RebaseAnswer = Callable[[RebaseConflict | Hopeless | None], None]


class Change(NamedTuple):
    """A store of an object in a transaction; a check if ``stored`` is None."""

    serial: bytes
    stored: Stored | None


class LockCounts(NamedTuple):
    """``waiting``: requests for locks, and reads. ``longest``: seconds that one of the requests has
    waited so far."""

    transactions: int
    held: int
    waiting: int
    longest: float


class LockKeeper(Protocol):
    """The environment of locks: the node that keeps them. None of these methods calls back into the
    locks."""

    def cell_mode(self, oid: bytes, /) -> CellMode:
        """Return how a store of this object is treated. Called at each attempt."""

    def last_serial(self, oid: bytes, /) -> bytes | None:
        """Return the last committed serial of an object. Called at each attempt."""

    def deadlock(self, ttid: bytes, locking_tid: bytes, /) -> None:
        """Tell the master of a possible deadlock."""

    def discard(self, stored: Stored, /) -> None:
        """Release the data of a change that will not be voted."""

    def clock(self) -> float:
        """Return monotonic seconds; only the age of transactions and their waits are computed from it."""

    def watch(self) -> None:
        """Have :meth:`~neo.storage.commit.locks.Locks.refuse_overdue` called later: a request is delayed
        while a transaction is prepared."""


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction in progress on this node.

    Each object of ``changes`` is in ``held`` or ``lockless``, or must be rebased; after the vote none
    must be. ``held`` also has objects without a change: the client resolves a conflict of them.
    """

    ttid: bytes
    client: Client
    locking_tid: bytes
    since: float  # when it began here, by the node's monotonic clock
    changes: dict[bytes, Change] = field(default_factory=dict)
    held: set[bytes] = field(default_factory=set)
    lockless: set[bytes] = field(default_factory=set)
    #: Objects that were to be rebased when this node lost their cell: conflicts cannot be detected.
    unknown: set[bytes] = field(default_factory=set)
    delayed: dict[Request, None] = field(default_factory=dict)
    delayed_since: float = 0.0  # when ``delayed`` became not empty, by the same clock
    rebasing: bool = False  # from a deadlock here until the client's AskRebaseTransaction
    voted: bool = False
    stored_vote: bool = False  # the vote is durable
    metadata: bool = False  # this node keeps the metadata
    vote: Callable[[], None] | None = None  # attempts the vote that waits for ``delayed``
    xid: bytes | None = None  # set when prepared
    tid: bytes | None = None  # set when locked
    alone: tuple[Transaction, ...] = ()  # (self,): one tuple for all objects that it holds alone

    def __post_init__(self) -> None:
        self.alone = (self,)

    @property
    def phase(self) -> str:
        """Return the phase as in ``HolderRow`` of :mod:`neo.protocol.packets`."""
        if self.tid is not None:
            return "locked"
        if self.xid is not None:
            return "prepared"
        if self.voted:
            return "voted"
        return "waiting" if self.delayed else "storing"

    def delays_reads(self, oid: bytes) -> bool:
        """Return whether it is locked and stored this object."""
        change = None if self.tid is None else self.changes.get(oid)
        return change is not None and change.stored is not None

    def stored(self) -> list[Stored]:
        return [change.stored for change in self.changes.values() if change.stored is not None]

    def checks(self) -> list[Check]:
        """Return the objects that are checked and not stored, with their serials."""
        return [(oid, c.serial) for oid, c in self.changes.items() if c.stored is None]

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
        """Return the objects that it lost in a deadlock: neither held nor lockless."""
        return [oid for oid in self.changes if oid not in self.held and oid not in self.lockless]

    def unverifiable(self) -> Unverifiable:
        return Unverifiable(
            f"transaction {self.ttid.hex()} was to be rebased when this node lost the cells of its"
            " objects: begin it again"
        )


@dataclass(eq=False, slots=True)
class Request:
    """A store or check, with a ``change``, or a rebase of an object that the transaction already has.

    A request without an answer *keeps a place* in the queue: the client will rebase this object. A store
    that was *told* its conflict before it could be executed has its answer, and lost its change; it takes
    the lock for the store that follows it.
    """

    transaction: Transaction
    oid: bytes
    number: int  # order of arrival
    change: Change | None
    since: float = 0.0  # when it was delayed, by the node's monotonic clock
    answer_store: StoreAnswer | None = None
    answer_rebase: RebaseAnswer | None = None
    tell: bool = False  # its client may be told of a conflict early
    told: bool = False

    @property
    def keeps_place(self) -> bool:
        return self.answer_store is None and self.answer_rebase is None and not self.told

    def order(self) -> tuple[bytes, int]:
        return self.transaction.locking_tid, self.number

    def refuse(self, why: Hopeless) -> None:
        """Answer with a refusal."""
        if self.answer_store is not None:
            self.answer_store(why)
        if self.answer_rebase is not None:
            self.answer_rebase(why)

    def succeed(self, locked: bytes | None) -> None:
        if self.answer_store is not None:
            self.answer_store(locked)
        if self.answer_rebase is not None:
            self.answer_rebase(None)


class Blocked(NamedTuple):
    """The holders for which a transaction waits, none if it waits to be rebased. ``waited``: seconds
    that it has waited on this node without a pause."""

    waited: float
    holders: list[Transaction]


class Blocking(NamedTuple):
    """A transaction, and the transactions that wait for it. ``waiters``: ttid → seconds of the wait."""

    transaction: Transaction
    waiters: dict[bytes, float]
