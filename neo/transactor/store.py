"""Both logs of a node: opened together, written together, recovered by one command."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack

from neo.transactor.disk import StoreError, failing, lock_folder, set_aside, sync_folder
from neo.transactor.durable import Begun
from neo.transactor.members import Members
from neo.transactor.messages import Entry, Record, Spec
from neo.transactor.mlog import Journal, begin_journal
from neo.transactor.tlog import RECOVER, TransactionLog, keep_whole


def recover(tlog: str, mlog: str, name: str, new_id: int, warn: Callable[[str], None]) -> None:
    """Make a node usable that lost its logs or a part of them. Raises StoreError.

    Keep the intact part of the transaction log, set everything else aside, and begin a journal with
    which the node learns before it votes.
    """
    with failing(f"create {tlog}"):
        os.makedirs(tlog, exist_ok=True)
    lock = lock_folder(tlog)
    try:
        keep_whole(tlog, warn)
        if os.path.exists(mlog):
            warn(f"{mlog} is set aside as {set_aside(mlog, mlog)}")
        begin_journal(mlog, name, Begun.RECOVERED, new_id)
    finally:
        os.close(lock)


class Store:
    """Both logs. One thread appends and reads; another one may :meth:`sync` concurrently."""

    def __init__(
        self,
        tlog: str,
        mlog: str,
        name: str,
        genesis: Members,
        new_id: int,
        warn: Callable[[str], None],
        begun: Begun = Begun.FRESH,
    ) -> None:
        """Open the logs. An empty journal is begun with the id ``new_id``. Raises StoreError."""
        # Held while files are synced, or replaced by new ones.
        self._files = threading.Lock()
        if not os.path.isdir(tlog):
            raise StoreError(
                f"transaction log {tlog} is not a folder: create an empty one if the node is new; if it"
                f" lost its logs, {RECOVER}"
            )
        if not os.path.isfile(mlog):
            raise StoreError(
                f"journal {mlog} does not exist: create an empty file if the node is new; if it lost its"
                f" logs, {RECOVER}"
            )
        with ExitStack() as opened:
            self._lock = lock_folder(tlog)
            opened.callback(os.close, self._lock)
            self.tlog = TransactionLog(tlog, genesis, warn)
            opened.callback(self.tlog.close)
            if os.path.getsize(mlog) == 0:
                begin_journal(mlog, name, begun, new_id)
            self.mlog = Journal(mlog, name, warn)
            opened.callback(self.mlog.close)
            # Make the names of the files durable before the node relies on them.
            sync_folder(tlog)
            sync_folder(os.path.dirname(mlog) or ".")
            head, end = self.mlog.head, self.tlog.end
            if end.tid < head.tid:
                raise StoreError(
                    f"transaction log {tlog} ends at {end.tid - 1}, but was on disk up to"
                    f" {head.tid - 1}: transactions are missing; {RECOVER}"
                )
            self.durable = self.mlog.durable(end, alone=len(genesis.all) == 1)
            opened.pop_all()

    def begin_with(self, genesis: Members) -> None:
        """Set the first members, which a node that joins has learned before transaction 1."""
        self.tlog.begin_with(genesis)

    def append(self, added: list[Record]) -> None:
        """Append records. Raises StoreError: the store is unusable afterwards."""
        promises: list[Record] = []
        for record in added:
            if isinstance(record, Entry):
                if self.tlog.segment_ends:
                    with self._files:
                        self.tlog.append(record)
                else:
                    self.tlog.append(record)
                self.mlog.decided(record.tid)
            else:
                promises.append(record)
        if promises:
            self.mlog.append(promises)
        if self.mlog.should_shrink:
            with self._files:
                self.tlog.sync()
                self.mlog.shrink(self.tlog.end.tid)

    def sync(self) -> None:
        """Make everything durable that was appended before the call. Callable from any thread.

        Raises StoreError.
        """
        with self._files:
            self.tlog.sync()  # first, because a vote for a transaction implies the one before
            self.mlog.sync()

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        """See :class:`neo.transactor.catchup.LogReader`."""
        return self.tlog.read(tid, count, size)

    def close(self) -> None:
        self.tlog.close()
        self.mlog.close()
        os.close(self._lock)
