"""Copies of transactions into a cluster, several of which are under way at the same time.

A transaction that is copied has its tid already, and nobody waits for it alone. So while one is being
finished, the next one is being voted, the one after that is stored, and the master gives the ttid of
another one. They are finished in their order, each only when the one before it is committed. A failure
thus leaves the cluster between two transactions, and a copy can go on there.

A store waits for the lock of an earlier transaction in flight that changes the same object, and only this
thread finishes that one. So it waits for no answer to a store before all earlier transactions are
committed: a transaction that is too large to be sent without waiting waits for them first. One with blobs
does so, too. And since a node takes the lock of a blob's object only when it has the content, not in the
order of requests, such an object is not stored again before that transaction is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ZODB.blob import is_blob_record
from ZODB.POSException import POSError


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

    def ask_finish(self, transaction: Any) -> None: ...

    def tpc_finish(self, transaction: Any) -> object: ...

    def tpc_abort(self, transaction: Any) -> None: ...


class Import:
    """Has the methods of IStorageRestoreable. tpc_vote and tpc_finish only end a transaction here: errors
    of a transaction are raised by any later method, at the latest by :meth:`flush`. :meth:`abort` must
    follow an error. One thread calls all methods.

    ``unanswered_max``: bytes of data that a transaction may send without waiting for answers.
    """

    def __init__(self, steps: Steps, unanswered_max: int) -> None:
        self._steps = steps
        self._unanswered_max = unanswered_max
        #: The transaction whose records come.
        self._open: tuple[Any, bytes] | None = None
        self._bytes = 0
        #: At most one transaction in each of these steps, with its tid; the last one is the oldest.
        self._stored: tuple[Any, bytes] | None = None
        self._voting: tuple[Any, bytes] | None = None
        self._finishing: tuple[Any, bytes] | None = None
        #: The last transaction with blobs, and their objects.
        self._blobs: tuple[bytes | None, set[bytes]] = (None, set())
        self._failed = False  # whether the transaction that is being finished was waited for in vain
        #: The last transaction that is committed; None if there is none yet.
        self.finished: bytes | None = None

    # -- as a storage ------------------------------------------------------------------------------

    def tpc_begin(self, transaction: Any, tid: bytes, status: str = " ") -> None:
        self._open, self._bytes = (transaction, tid), 0
        self._steps.tpc_begin(transaction, tid, status)
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
        self._steps.restoreBlob(oid, serial, data, blobfilename, prev_txn, transaction)

    def tpc_vote(self, transaction: Any) -> None:
        """Do nothing: the votes are asked when the next transaction begins, or by flush()."""

    def tpc_finish(self, transaction: Any) -> None:
        """End a transaction. ``finished`` tells when it is committed."""
        assert self._stored is None
        self._stored, self._open = self._open, None

    # -- in flight -----------------------------------------------------------------------------------

    def _in_flight(self, tid: bytes | None) -> bool:
        """Return whether the transaction cannot be read yet."""
        earliest = self._finishing or self._voting or self._stored
        return tid is not None and earliest is not None and tid >= earliest[1]

    def _advance(self) -> None:
        """Take each transaction one step further, the oldest first."""
        voting = self._voting
        if voting is not None:
            self._steps.tpc_vote(voting[0])
            self._finish()
            self._steps.ask_finish(voting[0])
            self._finishing, self._voting = voting, None
        stored = self._stored
        if stored is not None:
            self._steps.ask_votes(stored[0])
            self._voting, self._stored = stored, None

    def _finish(self) -> None:
        if self._finishing is not None:
            transaction, tid = self._finishing
            self._failed = True  # unless this returns
            self._steps.tpc_finish(transaction)
            self._failed = False
            self.finished, self._finishing = tid, None

    def _complete(self) -> None:
        """Commit all transactions but the one whose records come."""
        while self._stored is not None or self._voting is not None:
            self._advance()
        self._finish()

    def flush(self) -> None:
        """Commit all transactions that were ended here. Raise the errors of tpc_vote and tpc_finish."""
        self._complete()

    def abort(self, error: BaseException) -> None:
        """Abort what is in flight, because of an error. The transaction that is being finished may be
        committed: it is waited for, unless the error came from outside, to leave."""
        if isinstance(error, Exception) and not self._failed:
            try:
                self._finish()
            except POSError as e:
                error.add_note(f"the transaction before it failed, too: {e}")
        flight = (self._finishing, self._voting, self._stored, self._open)
        for item in flight:
            if item is not None:
                self._steps.tpc_abort(item[0])


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
