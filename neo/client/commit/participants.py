"""The storage nodes that take part in a transaction, and the requests to them.

A transaction uses one connection per storage node from its first request to its end. A node whose
connection is lost takes no further part in the transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from ZODB.POSException import POSError, UndoError

from neo.client.connect.connections import LOST, Backoff
from neo.client.connect.storages import StorageConnections
from neo.client.errors import prepared_conflict, refusal
from neo.net.channel import Channel, Ticket
from neo.net.host import Lock
from neo.protocol.blobs import Content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_nid
from neo.protocol.packets import PREPARED_WORDS, AbortTransaction, AskRebaseTransaction, Request

#: Largest data of an object that is held.
HELD_BYTES = 4096


class Kind(Enum):
    STORE = "data, whose conflicts may be resolved"
    MERGED = "data that merges an undo: kept, other undos may follow in the transaction"
    CHECK = "checkCurrentSerialInTransaction"
    NOTHING = "deletion, or undo of a creation"
    COPY = "undo: the data of an earlier revision"
    RESTORE = "whatever the current revision is"


class PendingBlob:
    """The content of a blob that is not committed. ``path``: its file. ``nodes``: the nodes to which it
    was sent, on the transaction's connections. ``content``: known after the first upload."""

    __slots__ = ("content", "nodes", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.content: Content | None = None
        self.nodes: set[int] = set()


class Change:
    """The change of one object by a transaction. A later store of the object replaces it.

    ``locked``: nodes that granted the write lock. Objects share these sets, since there may be millions.
    ``blob``: the content of the object's blob, None for other objects.
    """

    __slots__ = ("base", "blob", "data", "data_serial", "kind", "locked", "unanswered")

    def __init__(
        self,
        kind: Kind,
        base: bytes,
        data: bytes | None,
        data_serial: bytes | None,
        blob: PendingBlob | None = None,
    ) -> None:
        self.kind = kind
        self.base = base
        self.data = data
        self.data_serial = data_serial
        self.blob = blob
        self.unanswered = 0
        self.locked: frozenset[int] = frozenset()


class Asked(NamedTuple):
    """The context of a ticket. ``change`` is None for requests about the whole transaction."""

    nid: int
    channel: Channel
    oid: bytes | None = None
    change: Change | None = None

    def refusal(self, error: ErrorAnswer) -> POSError:
        """Return the exception for an Error packet that answers the request."""
        change = self.change
        if change is not None and change.kind is Kind.COPY:
            if error.code is ErrorCode.OID_NOT_FOUND:  # packed since the undo began
                return UndoError("earlier data was packed away", self.oid)
        if self.oid is not None and error.message.startswith(PREPARED_WORDS):
            checks = change is not None and change.kind is Kind.CHECK
            return prepared_conflict(error, self.oid, checks)
        what = "" if self.oid is None else f", object {self.oid.hex()}"
        return refusal(f"storage node {format_nid(self.nid)}{what}", error)


class Participants:
    """The storage nodes of one transaction. ``check_master`` raises if the transaction is lost. ``held``:
    requests that may wait for the next ones (:meth:`ask`).

    The committing thread calls all methods except :meth:`rebase`. ``lock`` protects the nodes and the
    order of requests against :meth:`rebase`.
    """

    def __init__(
        self,
        lock: Lock,
        storages: StorageConnections,
        check_master: Callable[[], None],
        held: int,
    ) -> None:
        self.lock = lock
        self._held = held
        #: Requests whose answers were not handled, the oldest first. Changed with the lock.
        self.asked: dict[Ticket[Any], None] = {}
        #: Tickets with an answer to handle, maybe twice.
        self.ready: deque[Ticket[Any]] = deque()
        #: Pauses of the step that connects nodes now; None at its begin.
        self.backoff: Backoff | None = None
        self._storages = storages
        self._check_master = check_master
        self._nodes: dict[int, Channel | None] = {}  # None: its connection was lost
        self._failures: dict[int, str] = {}  # reasons
        self._rebase: AskRebaseTransaction | None = None
        self._rebased: dict[int, bytes] = {}  # the last locking tid that each node was sent

    # -- nodes -----------------------------------------------------------------------------------

    def nids(self) -> list[int]:
        """Return the node ids of all participants, lost ones included."""
        return sorted(self._nodes)

    def alive(self) -> dict[int, Channel]:
        """Return the connections that were not lost, as far as is known, by node id."""
        return {nid: channel for nid, channel in self._nodes.items() if channel is not None}

    def lost(self) -> list[int]:
        """Return the node ids of participants that were lost."""
        return [nid for nid, channel in self._nodes.items() if channel is None]

    def reasons(self) -> list[str]:
        """Return why participants were lost."""
        return [f"{format_nid(nid)} {why}" for nid, why in sorted(self._failures.items())]

    def fail(self, nid: int, reason: str) -> None:
        """Leave a node out from now on."""
        self._nodes[nid] = None
        self._failures.setdefault(nid, reason.removeprefix(f"{format_nid(nid)} "))

    def shared(self) -> Backoff:
        """Return the pauses of this step."""
        self.backoff = self.backoff or self._storages.backoff()
        return self.backoff

    def join(self, nid: int) -> Channel | None:
        """Return the transaction's connection to a node; None if it was lost."""
        if nid in self._nodes:
            channel = self._nodes[nid]
        else:
            self._check_master()  # do not wait for a master that cannot finish this transaction
            first, backoff = self.backoff is None, self.shared()
            try:
                if backoff.over and not first:
                    raise ConnectionLost("no time was left to connect to it")
                channel = self._storages.channel(nid, backoff)
                # The channel may belong to a later connection to a master, which has no such transaction.
                self._check_master()
            except (*LOST, ErrorAnswer) as e:
                channel = None
                self.fail(nid, str(e))
            with self.lock:
                self._nodes[nid] = channel
                if channel is not None and self._rebase is not None:
                    self._rebase_node(nid, channel, self._rebase)
        if channel is not None and channel.lost is not None:
            self.fail(nid, channel.lost)
            channel = None
        return channel

    # -- requests --------------------------------------------------------------------------------

    def ask(self, message: Request[Any], asked: Asked, size: int | None = None) -> bool:
        """Send a request. Return False if the connection was lost. ``size``: bytes of a request that may
        be held while others have no answer, until a thread waits or :meth:`flush`."""
        with self.lock:
            held = self._held if size is not None and size <= HELD_BYTES and self.asked else 0
            return self._ask(message, asked, held)

    def flush(self) -> None:
        """Send what is held."""
        for channel in self._nodes.values():
            if channel is not None:
                channel.flush()

    def _ask(self, message: Request[Any], asked: Asked, held: int = 0) -> bool:
        ticket: Ticket[Any] = Ticket(asked, self.ready)
        try:
            asked.channel.ask(message, ticket, held)
        except ConnectionLost as e:
            self.fail(asked.nid, str(e))
            return False
        except BaseException:
            if ticket.sent:
                self.asked[ticket] = None
            raise
        self.asked[ticket] = None
        return True

    # -- deadlocks -------------------------------------------------------------------------------

    @property
    def locking_tid(self) -> bytes:
        """The locking tid that the master gave at the last deadlock."""
        return ZERO_TID if self._rebase is None else self._rebase.locking_tid

    def rebase(self, message: AskRebaseTransaction) -> None:
        """Send a new locking tid to all participants, also to nodes that join later. The thread that
        leads on the master's channel calls this method with the lock. If the call is interrupted, it is
        repeated for the nodes to which the locking tid was not sent.
        """
        self._rebase = message
        # A copy, because the committing thread may change the dictionary.
        for nid, channel in list(self._nodes.items()):
            if channel is not None and self._rebased.get(nid, ZERO_TID) < message.locking_tid:
                self._rebase_node(nid, channel, message)

    def _rebase_node(self, nid: int, channel: Channel, message: AskRebaseTransaction) -> None:
        self._ask(message, Asked(nid, channel))
        self._rebased[nid] = message.locking_tid

    # -- the end ---------------------------------------------------------------------------------

    def abort(self, ttid: bytes) -> None:
        """Tell all nodes, without waiting."""
        for channel in self._nodes.values():
            if channel is not None:
                channel.send(AbortTransaction(ttid, []))

    def forget(self) -> None:
        """Ignore the answers to all open requests."""
        for ticket in list(self.asked):
            assert isinstance(ticket.context, Asked)
            ticket.context.channel.forget(ticket)
