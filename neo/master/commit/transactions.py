"""States of the transactions that the master coordinates, PURE (specification 7).

Theory of operation
-------------------
::

    begin ──> BEGUN ──finish──> LOCKING ──all storages locked, and it is its turn──> done
               │ │                  ▲
               │ └─prepare─> PREPARING ──all marks durable──> PREPARED ──commit──> LOCKING
               │                 │                               │
               └─ abort, client  └─ abort, a node refuses        └─ rollback
                  lost, refused

Transactions in LOCKING form one queue, in the order of their final tids, and leave it in that order
only: clients see commits in the order of tids, and storage nodes unlock in the order in which they
locked. A transaction in LOCKING is not aborted any more. When its client or a storage node is lost, it
is finished with the other nodes; when the cluster stops being operational, VERIFYING decides.

From PREPARING on a transaction has a *mark* (specification 24.4), and ends only as its coordinator
says. A PREPARED one has no client, and may stay for days.

This module does no IO; methods return what happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from neo.protocol.ids import ZERO_TID

C = TypeVar("C")  # the connection of a client


class State(Enum):
    BEGUN = auto()
    PREPARING = auto()
    PREPARED = auto()
    LOCKING = auto()


class PreparedMark(NamedTuple):
    """What storage nodes remember of a transaction that is prepared (specification 24.4).

    ``since``: seconds since 1970. ``partitions``: the partitions of its objects and of its metadata.
    ``objects``: the number of objects that it stores or checks.
    """

    xid: bytes
    since: float
    text: bytes
    partitions: frozenset[int]
    objects: int


@dataclass(slots=True, eq=False)
class Transaction(Generic[C]):
    ttid: bytes
    #: The client that is told of the commit; None if it is lost, and while the transaction is PREPARED.
    client: C | None
    #: Storage nodes that have been ready since it began: they get all its data.
    ready: frozenset[int]
    #: The tid that the client imposes, then the final tid.
    tid: bytes | None
    locking_tid: bytes
    #: Node id of the client that began it; that of the master if an earlier master knew the client.
    nid: int = 0
    #: When it began, by the master's monotonic clock.
    since: float = 0.0
    #: Version of the partition table when it began.
    ptid: int = 0
    #: Version of the table that the nodes that prepare or lock have durably; None if one of them was lost
    #: since.
    locked_ptid: int | None = None
    #: Storage nodes that failed to vote, and that may be disconnected.
    failed: frozenset[int] = frozenset()
    #: Message id of the pending AskFinishTransaction or AskPrepareTransaction.
    message_id: int = 0
    stored: list[bytes] = field(default_factory=list)
    #: The oids that it checks, if it has a mark.
    checked: Sequence[bytes] = ()
    #: Storage nodes that prepare or have prepared the transaction, or that take part in tpc_finish; and
    #: which of them have not locked yet.
    nodes: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    #: Whether the transaction was offered to synchronous backups: all its storage nodes have its mark, or
    #: have locked it and all earlier transactions. Then the backups for which it waits.
    offered: bool = False
    backups: set[str] = field(default_factory=set)
    #: When it waited for each synchronous backup first, by the master's monotonic clock.
    waited: dict[str, float] = field(default_factory=dict)
    state: State = State.BEGUN
    #: None if it is BEGUN, or was finished from there.
    mark: PreparedMark | None = None
    #: The client that prepared it, until it is lost.
    preparer: C | None = None
    #: While it is BEGUN: it may be finished only after this one (specification 7.68), which is itself if
    #: that one had ended already.
    follows: Transaction[C] | None = None


class Transactions(Generic[C]):
    def __init__(self) -> None:
        self._by_ttid: dict[bytes, Transaction[C]] = {}
        self._queue: deque[Transaction[C]] = deque()
        #: Whether transactions must be offered to synchronous backups before they are finished.
        self.offers = False

    def __len__(self) -> int:
        return len(self._by_ttid)

    def get(self, ttid: bytes) -> Transaction[C] | None:
        return self._by_ttid.get(ttid)

    def ttids(self) -> list[bytes]:
        return list(self._by_ttid)

    def all(self) -> list[Transaction[C]]:
        """Return the open transactions, in the order in which they began."""
        return list(self._by_ttid.values())

    def begin(
        self, ttid: bytes, client: C, ready: Iterable[int], tid: bytes | None
    ) -> Transaction[C]:
        """Begin a transaction. Raise KeyError if one with this ttid is open already."""
        if ttid in self._by_ttid:
            raise KeyError(ttid)
        transaction = Transaction(ttid, client, frozenset(ready), tid, locking_tid=ttid)
        self._by_ttid[ttid] = transaction
        return transaction

    def chain(self, ttids: Iterable[bytes], client: C) -> None:
        """Let each of these transactions of a client follow the one before it (specification 7.68)."""
        last: Transaction[C] | None = None
        for number, ttid in enumerate(ttids):
            transaction = self._by_ttid.get(ttid)
            if transaction is not None and transaction.client is not client:
                transaction = None
            if transaction is not None and number:
                transaction.follows = last or transaction
            last = transaction

    def failures(self, but: Transaction[C]) -> frozenset[int]:
        """Return the storage nodes that will be disconnected when other transactions finish."""
        return frozenset().union(*(t.failed for t in self._by_ttid.values() if t is not but))

    def forget(self, transaction: Transaction[C]) -> None:
        """Remove a transaction that is not LOCKING."""
        assert transaction.state is not State.LOCKING
        del self._by_ttid[transaction.ttid]

    def prepare(self, transaction: Transaction[C], mark: PreparedMark, nodes: Iterable[int]) -> None:
        """Enter PREPARING with the storage nodes that store the mark."""
        assert transaction.state is State.BEGUN
        transaction.mark = mark
        transaction.nodes = set(nodes)
        transaction.failed = frozenset()  # those that failed to vote are disconnected now
        transaction.state = State.PREPARING

    def prepared(self, transaction: Transaction[C]) -> C | None:
        """Enter PREPARED. Return the client that asked for that; None if this client is lost."""
        assert transaction.state is State.PREPARING
        transaction.preparer, transaction.client = transaction.client, None
        transaction.state = State.PREPARED
        return transaction.preparer

    def restore(self, ttid: bytes, mark: PreparedMark, nodes: Iterable[int]) -> Transaction[C]:
        """Add a transaction that these storage nodes have prepared under an earlier master."""
        nids = frozenset(nodes)
        transaction = self._by_ttid[ttid] = Transaction[C](ttid, None, nids, None, locking_tid=ttid)
        transaction.mark = mark
        transaction.nodes = set(nids)
        transaction.state = State.PREPARED
        return transaction

    def join(self, transaction: Transaction[C], nid: int) -> None:
        """Add a storage node that has copied its rows of a PREPARED transaction."""
        assert transaction.state is State.PREPARED
        transaction.nodes.add(nid)
        transaction.ready |= {nid}

    def idle(self) -> bool:
        """Return whether all open transactions are PREPARED."""
        return all(t.state is State.PREPARED for t in self._by_ttid.values())

    def lock(self, transaction: Transaction[C], tid: bytes, nodes: Iterable[int]) -> None:
        """Enter LOCKING with the final tid, and wait for these storage nodes."""
        assert transaction.state in (State.BEGUN, State.PREPARED)
        transaction.tid = tid
        transaction.follows = None  # a chain is not kept alive
        transaction.offered = False
        transaction.waited.clear()
        transaction.nodes = set(nodes)
        transaction.waiting = set(nodes)
        transaction.state = State.LOCKING
        self._queue.append(transaction)

    def last_tid(self) -> bytes:
        """Return the tid of the last transaction in LOCKING."""
        return (self._queue[-1].tid or ZERO_TID) if self._queue else ZERO_TID

    def locked(self, ttid: bytes, nid: int) -> bool:
        """Note that a storage node has locked. Return False if it was not asked."""
        transaction = self._by_ttid.get(ttid)
        if transaction is None or nid not in transaction.waiting:
            return False
        transaction.waiting.discard(nid)
        return True

    def storage_lost(self, nid: int) -> None:
        """Take a storage node out of all transactions."""
        for transaction in self._by_ttid.values():
            transaction.waiting.discard(nid)
            if nid in transaction.nodes:
                transaction.nodes.remove(nid)
                transaction.locked_ptid = None
            transaction.ready -= {nid}

    def client_lost(self, client: C) -> list[Transaction[C]]:
        """Remove the transactions of a lost client that are BEGUN, and return them. Its other
        transactions go on without the client."""
        forgotten = []
        for transaction in self.all():
            if transaction.preparer is client:
                transaction.preparer = None
            if transaction.client is client:
                transaction.client = None
                if transaction.state is State.BEGUN:
                    self.forget(transaction)
                    forgotten.append(transaction)
        return forgotten

    def pop_finished(self) -> Transaction[C] | None:
        """Remove and return the next transaction to finish; None if it still waits."""
        if self._queue and not self._queue[0].waiting:
            transaction = self._queue[0]
            if self.offers and (transaction.backups or not transaction.offered):
                return None
            self._queue.popleft()
            del self._by_ttid[transaction.ttid]
            return transaction
        return None

    def to_offer(self) -> Iterator[Transaction[C]]:
        """Yield each transaction once when all storage nodes have locked it and all earlier ones
        (specification 25.19)."""
        for transaction in self._queue:
            if transaction.waiting:
                return
            if not transaction.offered:
                transaction.offered = True
                yield transaction

    def offered(self) -> list[Transaction[C]]:
        """Return the transactions that were offered and are not finished, in the order of tids."""
        return [transaction for transaction in self._queue if transaction.offered]

    def clear(self) -> None:
        """Remove all transactions."""
        self._by_ttid.clear()
        self._queue.clear()

    def validate(self) -> None:
        """Assert the invariants. Called by tests and the simulator."""
        tids = [t.tid for t in self._queue]
        assert all(tid is not None for tid in tids)
        assert tids == sorted(set(tids), key=lambda tid: tid or ZERO_TID)
        locking = {t for t in self._by_ttid.values() if t.state is State.LOCKING}
        assert set(self._queue) == locking
        offered = [t.offered for t in self._queue]
        assert offered == sorted(offered, reverse=True)
        for transaction in self._by_ttid.values():
            assert transaction.waiting <= transaction.nodes
            assert not transaction.offered or not transaction.waiting
            assert transaction.offered or not transaction.backups
            begun = transaction.state is State.BEGUN
            assert not begun or not (transaction.nodes or transaction.mark)
            assert begun or transaction.state is State.LOCKING or transaction.mark
            assert not begun or transaction.client is not None
            assert transaction.state is not State.PREPARED or transaction.client is None
