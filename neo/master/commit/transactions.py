"""Transactions as the master sees them, PURE (specification, *Commit*).

Theory of operation
-------------------
::

    begin ──> BEGUN ──finish──> LOCKING ──all storages locked, and it is its turn──> done
                │ abort, client lost, INCOMPLETE_TRANSACTION
                └──> forgotten

Transactions in LOCKING stand in one queue, in the order of their final tids, and leave it in that
order only: clients see commits in the order of tids, and storages unlock in the order they locked.
From LOCKING there is no way back: when the client or a storage is lost, the transaction is finished
with those that are left; when the cluster stops being operational, VERIFYING decides.

Rule: nothing here talks to anybody; methods return what happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from neo.protocol.ids import ZERO_TID

C = TypeVar("C")  # how the caller knows a client's connection


@dataclass(slots=True, eq=False)
class Transaction(Generic[C]):
    ttid: bytes
    client: C
    #: Storages that were ready when it began and since then: those that get all its data.
    ready: frozenset[int]
    #: Final tid imposed by the client, then the one given.
    tid: bytes | None
    locking_tid: bytes
    #: When it began, by the master's monotonic clock.
    since: float = 0.0
    #: The partition table when it began.
    ptid: int = 0
    #: The table that those who lock it have durably; None if one of them was lost since then.
    locked_ptid: int | None = None
    #: Storages that the client could not make vote, and that may be disconnected.
    failed: frozenset[int] = frozenset()
    #: Of AskFinishTransaction.
    message_id: int = 0
    stored: list[bytes] = field(default_factory=list)
    #: Storages that take part in tpc_finish; those that have not answered yet.
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
        """Raises KeyError if a transaction with this ttid is already running."""
        if ttid in self._by_ttid:
            raise KeyError(ttid)
        transaction = Transaction(ttid, client, frozenset(ready), tid, locking_tid=ttid)
        self._by_ttid[ttid] = transaction
        return transaction

    def failures(self, but: Transaction[C]) -> frozenset[int]:
        """Storages that other transactions were promised to be disconnected."""
        return frozenset().union(*(t.failed for t in self._by_ttid.values() if t is not but))

    def forget(self, transaction: Transaction[C]) -> None:
        """Abort; only before LOCKING."""
        assert not transaction.locking
        del self._by_ttid[transaction.ttid]

    def lock(self, transaction: Transaction[C], tid: bytes, nodes: Iterable[int]) -> None:
        """tpc_finish begins: it has its final tid and waits for these storages."""
        assert not transaction.locking
        transaction.tid = tid
        transaction.nodes = set(nodes)
        transaction.waiting = set(nodes)
        transaction.locking = True
        self._queue.append(transaction)

    def last_tid(self) -> bytes:
        """The tid of the last transaction that is being finished."""
        return (self._queue[-1].tid or ZERO_TID) if self._queue else ZERO_TID

    def locked(self, ttid: bytes, nid: int) -> bool:
        """A storage answered AskLockInformation. False if it was not asked."""
        transaction = self._by_ttid.get(ttid)
        if transaction is None or nid not in transaction.waiting:
            return False
        transaction.waiting.discard(nid)
        return True

    def storage_lost(self, nid: int) -> None:
        """It will not answer, and need not be told to unlock."""
        for transaction in self._by_ttid.values():
            transaction.waiting.discard(nid)
            if nid in transaction.nodes:
                transaction.nodes.remove(nid)
                transaction.locked_ptid = None
            transaction.ready -= {nid}

    def client_lost(self, client: C) -> list[Transaction[C]]:
        """Forget its transactions that are not locking; returns them."""
        forgotten = []
        for transaction in self.of_client(client):
            transaction.client_lost = True
            if not transaction.locking:
                self.forget(transaction)
                forgotten.append(transaction)
        return forgotten

    def pop_finished(self) -> Transaction[C] | None:
        """The next transaction to finish, in order; None if it still waits."""
        if self._queue and not self._queue[0].waiting:
            transaction = self._queue.popleft()
            del self._by_ttid[transaction.ttid]
            return transaction
        return None

    def clear(self) -> None:
        """The cluster is not operational any more."""
        self._by_ttid.clear()
        self._queue.clear()

    def validate(self) -> None:
        """Assert what must always hold; called by tests and the simulator."""
        tids = [t.tid for t in self._queue]
        assert all(tid is not None for tid in tids)
        assert tids == sorted(set(tids), key=lambda tid: tid or ZERO_TID)
        assert set(self._queue) == {t for t in self._by_ttid.values() if t.locking}
        for transaction in self._by_ttid.values():
            assert transaction.waiting <= transaction.nodes
            assert transaction.locking or not transaction.nodes
