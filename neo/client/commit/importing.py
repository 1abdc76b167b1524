"""Copies of transactions into a cluster, several of which are under way at the same time.

A transaction that is copied has its tid already, and nobody waits for it alone. So while a group of them
is being finished, the next group is being voted, and the one after that is stored. They are finished in
their order, each only when the one before it is committed: the master sees to that within a group, if all
are on one storage node (specification 7.68); else a group is one transaction. A failure thus leaves the
cluster between two transactions, and a copy can go on there.

A store waits for the lock of an earlier transaction in flight that changes the same object, and only this
thread finishes that one. So no object is changed twice in a group, which is voted as a whole before it is
finished. And this thread waits for no answer to a store before all earlier transactions are committed: a
transaction that is too large to be sent without waiting waits for them first. One with blobs does so,
too. And since a node takes the lock of a blob's object only when it has the content, not in the order of
requests, such an object is not stored again before that transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ZODB.blob import is_blob_record
from ZODB.POSException import POSError

#: Transactions of a group, and bytes of data after which no further one is added. With more, messages and
#: syncs are hardly fewer for each.
GROUP = 16
GROUP_BYTES = 256 * 1024


class Steps(Protocol):
    """The steps of a commit; see :class:`neo.client.storage.NEOStorage`."""

    def tpc_begin(self, transaction: Any, tid: bytes | None = None, status: str = " ") -> None: ...

    def restore(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes | None,
        version: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None: ...

    def restoreBlob(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes,
        blobfilename: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None: ...

    def ask_votes(self, transaction: Any) -> None: ...

    def tpc_vote(self, transaction: Any) -> object: ...

    def chain(self, transactions: Sequence[Any]) -> bool: ...

    def ask_finish(self, transaction: Any) -> None: ...

    def tpc_finish(self, transaction: Any) -> object: ...

    def tpc_abort(self, transaction: Any) -> None: ...


class Group:
    """Transactions in the same step, each with its tid, in their order; and what they change."""

    def __init__(self) -> None:
        self.members: list[tuple[Any, bytes]] = []
        self.oids: set[bytes] = set()
        self.bytes = 0


class Import:
    """Has the methods of IStorageRestoreable. tpc_vote and tpc_finish only end a transaction here: errors
    of a transaction are raised by any later method, at the latest by :meth:`flush`. :meth:`abort` must
    follow an error. One thread calls all methods.

    ``unanswered_max``: bytes of data that a transaction may send without waiting for answers.
    """

    def __init__(self, steps: Steps, unanswered_max: int) -> None:
        self._steps = steps
        self._unanswered_max = unanswered_max
        #: The transaction whose records come; the objects and the bytes of these.
        self._open: tuple[Any, bytes] | None = None
        self._oids: set[bytes] = set()
        self._bytes = 0
        #: The transactions in each of these steps, in their order; those of the last one are the oldest.
        self._stored = Group()
        self._voting = Group()
        self._voted: list[tuple[Any, bytes]] = []
        self._finishing: list[tuple[Any, bytes]] = []
        #: Bound of transactions in a group; and whether more than one could be finished at the same time
        #: so far.
        self._size, self._chains = 1, True
        #: The last transaction with blobs, and their objects.
        self._blobs: tuple[bytes | None, set[bytes]] = (None, set())
        #: Whether a step of a group failed; whether one failed that was being finished.
        self._failed = self._refused = False
        #: The last transaction that is committed; None if there is none yet.
        self.finished: bytes | None = None

    # -- as a storage ------------------------------------------------------------------------------

    def tpc_begin(self, transaction: Any, tid: bytes, status: str = " ") -> None:
        self._open, self._oids, self._bytes = (transaction, tid), set(), 0
        self._steps.tpc_begin(transaction, tid, status)
        if len(self._stored.members) >= self._size or self._stored.bytes >= GROUP_BYTES:
            self._advance()

    def restore(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes | None,
        version: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None:
        self._bytes += len(data or b"")
        self._changes(oid)
        of_blob = self._blobs[0] if oid in self._blobs[1] else None
        if (
            self._bytes > self._unanswered_max
            or self._in_flight(prev_txn)
            or self._in_flight(of_blob)
        ):
            self._complete()
        self._steps.restore(oid, serial, data, version, prev_txn, transaction)

    def restoreBlob(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes,
        blobfilename: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None:
        self._complete()
        assert self._open is not None
        if self._blobs[0] != self._open[1]:
            self._blobs = (self._open[1], set())
        self._blobs[1].add(oid)
        self._changes(oid)
        self._bytes += len(data)
        self._steps.restoreBlob(oid, serial, data, blobfilename, prev_txn, transaction)

    def tpc_vote(self, transaction: Any) -> None:
        """Do nothing: the votes are asked when the next transaction begins, or by flush()."""

    def tpc_finish(self, transaction: Any) -> None:
        """End a transaction. ``finished`` tells when it is committed."""
        assert self._open is not None
        group = self._stored
        group.members.append(self._open)
        group.oids |= self._oids
        group.bytes += self._bytes
        self._open = None

    # -- in flight -----------------------------------------------------------------------------------

    def _in_flight(self, tid: bytes | None) -> bool:
        """Return whether the transaction cannot be read yet."""
        flight = self._finishing or self._voted or self._voting.members or self._stored.members
        return tid is not None and bool(flight) and tid >= flight[0][1]

    def _changes(self, oid: bytes) -> None:
        """Begin another group if the present one changes the object, too."""
        if oid in self._stored.oids:
            self._advance()
        self._oids.add(oid)

    def _advance(self) -> None:
        """Take each group one step further, the oldest first."""
        voting, stored = self._voting, self._stored
        self._failed = True  # unless this returns
        while voting.members:
            self._steps.tpc_vote(voting.members[0][0])
            self._voted.append(voting.members.pop(0))
        self._finish()
        self._ask_finish()
        for transaction, _ in stored.members:
            self._steps.ask_votes(transaction)
        self._voting, self._stored = stored, Group()
        self._failed = False

    def _ask_finish(self) -> None:
        voted = self._voted
        if voted:
            self._chains &= self._steps.chain([transaction for transaction, _ in voted])
            self._size = GROUP if self._chains else 1
        while voted:
            if not self._chains:
                self._finish()
            self._steps.ask_finish(voted[0][0])
            self._finishing.append(voted.pop(0))

    def _finish(self) -> None:
        while self._finishing:
            transaction, tid = self._finishing[0]
            self._refused = True  # unless this returns
            self._steps.tpc_finish(transaction)
            self._refused = False
            self.finished = tid
            del self._finishing[0]

    def _complete(self) -> None:
        """Commit all transactions but the one whose records come."""
        while self._stored.members or self._voting.members:
            self._advance()
        self._finish()

    def flush(self) -> None:
        """Commit all transactions that were ended here. Raise the errors of tpc_vote and tpc_finish."""
        self._complete()

    def abort(self, error: BaseException) -> None:
        """Commit what came before the transaction that failed, and abort what is in flight then. If the
        error came from outside, to leave, abort at once; what was being finished may be committed."""
        if isinstance(error, Exception):
            self._complete_earlier(error)
        flight = [*self._finishing, *self._voted, *self._voting.members, *self._stored.members]
        for transaction, _ in [*flight, self._open] if self._open else flight:
            self._steps.tpc_abort(transaction)

    def _complete_earlier(self, error: Exception) -> None:
        """Commit the transactions before the one that failed, and wait for what is being finished. After
        one that failed there, the master commits none of those that follow it."""
        told = self._refused
        try:
            if not (self._failed or self._refused):
                self._complete()
            elif not self._refused:
                self._finish()
                self._ask_finish()
        except POSError as e:
            error.add_note(f"the transaction before it failed, too: {e}")
            told = True
        while self._finishing:
            if self._refused:
                self._steps.tpc_abort(self._finishing.pop(0)[0])
            try:
                self._finish()
            except POSError as e:
                if not told:
                    error.add_note(f"the transaction before it failed, too: {e}")
                told = True


def copy_transactions(
    copy: Import, source: Any, file_of: Callable[[Any, bytes, bytes], str | None]
) -> None:
    """Copy all transactions of a storage. ``file_of``: copies the file of a blob's revision, and returns
    its path; None if there is none."""
    try:
        for transaction in source.iterator():
            copy.tpc_begin(transaction, transaction.tid, transaction.status)
            for r in transaction:
                blob = file_of(source, r.oid, r.tid) if r.data and is_blob_record(r.data) else None
                if blob is None:
                    copy.restore(r.oid, r.tid, r.data, "", r.data_txn, transaction)
                else:
                    copy.restoreBlob(r.oid, r.tid, r.data, blob, r.data_txn, transaction)
            copy.tpc_vote(transaction)
            copy.tpc_finish(transaction)
        copy.flush()
    except BaseException as e:
        # After an exception from outside a transaction may have begun, or not be finished.
        copy.abort(e)
        raise
