"""States of the transactions that the master coordinates, PURE (specification 7).

Theory of operation
-------------------
::

    begin ──> BEGUN ──finish──> LOCKING ──all storages locked, and it is its turn──> done
                │ abort, client lost, INCOMPLETE_TRANSACTION
                └──> forgotten

Transactions in LOCKING form one queue, in the order of their final tids, and leave it in that order
only: clients see commits in the order of tids, and storage nodes unlock in the order in which they
locked. A transaction in LOCKING is not aborted any more. When its client or a storage node is lost, it
is finished with the other nodes; when the cluster stops being operational, VERIFYING decides.

This module does no IO; methods return what happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from neo.protocol.ids import ZERO_TID

C = TypeVar("C")  # the connection of a client


@dataclass(slots=True, eq=False)
class Transaction(Generic[C]):
    ttid: bytes
    client: C
    #: Storage nodes that have been ready since it began: they get all its data.
    ready: frozenset[int]
    #: The tid that the client imposes, then the final tid.
    tid: bytes | None
    locking_tid: bytes
    #: When it began, by the master's monotonic clock.
    since: float = 0.0
    #: Version of the partition table when it began.
    ptid: int = 0
    #: Version of the table that the locking nodes have durably; None if one of them was lost since.
    locked_ptid: int | None = None
    #: Storage nodes that failed to vote, and that may be disconnected.
    failed: frozenset[int] = frozenset()
    #: Message id of the pending AskFinishTransaction.
    message_id: int = 0
    stored: list[bytes] = field(default_factory=list)
    #: Storage nodes that take part in tpc_finish, and those of them that have not locked yet.
    nodes: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    locking: bool = False
    client_lost: bool = False


class Transactions(Generic[C]):
    def __init__(self) -> None:
        self._by_ttid: dict[bytes, Transaction[C]] = {}
        self._queue: deque[Transaction[C]] = deque()

    def __len__(self) -> int:
        return len(self._by_ttid)

    def get(self, ttid: bytes) -> Transaction[C] | None:
        return self._by_ttid.get(ttid)

    def ttids(self) -> list[bytes]:
        return list(self._by_ttid)

    def all(self) -> list[Transaction[C]]:
        """Return the open transactions, in the order in which they began."""
        return list(self._by_ttid.values())

    def of_client(self, client: C) -> list[Transaction[C]]:
        return [t for t in self._by_ttid.values() if t.client is client]

    def begin(
        self, ttid: bytes, client: C, ready: Iterable[int], tid: bytes | None
    ) -> Transaction[C]:
        """Begin a transaction. Raise KeyError if one with this ttid is open already."""
        if ttid in self._by_ttid:
            raise KeyError(ttid)
        transaction = Transaction(ttid, client, frozenset(ready), tid, locking_tid=ttid)
        self._by_ttid[ttid] = transaction
        return transaction

    def failures(self, but: Transaction[C]) -> frozenset[int]:
        """Return the storage nodes that will be disconnected when other transactions finish."""
        return frozenset().union(*(t.failed for t in self._by_ttid.values() if t is not but))

    def forget(self, transaction: Transaction[C]) -> None:
        """Remove a transaction that is not LOCKING."""
        assert not transaction.locking
        del self._by_ttid[transaction.ttid]

    def lock(self, transaction: Transaction[C], tid: bytes, nodes: Iterable[int]) -> None:
        """Enter LOCKING with the final tid, and wait for these storage nodes."""
        assert not transaction.locking
        transaction.tid = tid
        transaction.nodes = set(nodes)
        transaction.waiting = set(nodes)
        transaction.locking = True
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
        """Remove the transactions of a client that are not LOCKING, and return them."""
        forgotten = []
        for transaction in self.of_client(client):
            transaction.client_lost = True
            if not transaction.locking:
                self.forget(transaction)
                forgotten.append(transaction)
        return forgotten

    def pop_finished(self) -> Transaction[C] | None:
        """Remove and return the next transaction to finish; None if it still waits."""
        if self._queue and not self._queue[0].waiting:
            transaction = self._queue.popleft()
            del self._by_ttid[transaction.ttid]
            return transaction
        return None

    def clear(self) -> None:
        """Remove all transactions."""
        self._by_ttid.clear()
        self._queue.clear()

    def validate(self) -> None:
        """Assert the invariants. Called by tests and the simulator."""
        tids = [t.tid for t in self._queue]
        assert all(tid is not None for tid in tids)
        assert tids == sorted(set(tids), key=lambda tid: tid or ZERO_TID)
        assert set(self._queue) == {t for t in self._by_ttid.values() if t.locking}
        for transaction in self._by_ttid.values():
            assert transaction.waiting <= transaction.nodes
            assert transaction.locking or not transaction.nodes
