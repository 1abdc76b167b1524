"""The log of a master on its disk: a folder with both logs of the transactor, and a thread that syncs.

    tlog/     decided transactions; see :mod:`neo.transactor.tlog`
    mlog      promises of this master; see :mod:`neo.transactor.mlog`
    new       id of a journal that has not begun; see :mod:`neo.master.election.founding`
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from neo.master.election.log import LogFailure
from neo.transactor.disk import LogFile, StoreError, lock_folder, read_file, sync_folder
from neo.transactor.durable import Begun, Durable
from neo.transactor.members import Members
from neo.transactor.messages import Known, Record, Spec
from neo.transactor.mlog import begin_journal, new_journal_id
from neo.transactor.store import Store

FromThread = Callable[..., object]


class LogFolder:
    """Implements :class:`neo.master.election.log.LogDisk`."""

    def __init__(
        self,
        path: str,
        name: str,
        genesis: Members,
        from_thread: FromThread,
        warn: Callable[[str], None],
    ) -> None:
        """``name``: that of this master in the log. ``genesis``: the first members, if the log is empty.
        ``from_thread`` calls a function on the loop's thread. Raises LogFailure."""
        self.path = path
        self._tlog, self._mlog, self._new = (os.path.join(path, n) for n in ("tlog", "mlog", "new"))
        self.durable: Durable | None = None
        self._name = name
        self._genesis = genesis
        self._from_thread = from_thread
        self._warn = warn
        #: Open once ``durable`` is known.
        self._store: Store
        self._syncer = ThreadPoolExecutor(1, "log sync")
        self._lock = -1
        try:
            self._make()
            self._lock = lock_folder(path)
            if os.path.exists(self._mlog):
                self._open()
            else:
                self.journal = self._new_journal()
        except StoreError as e:
            self.close()
            raise self._failure(e) from None

    @staticmethod
    def has_begun(path: str) -> bool:
        """Return whether the folder has a log."""
        return os.path.exists(os.path.join(path, "mlog"))

    def _make(self) -> None:
        try:
            os.makedirs(self._tlog, exist_ok=True)
        except OSError as e:
            raise LogFailure(
                f"the log of the masters cannot be kept in {self.path!r}: {e.strerror}; set"
                " 'election_log' to a folder of this master's own"
            ) from None

    def _new_journal(self) -> int:
        if os.listdir(self._tlog):
            raise LogFailure(
                f"the log of the masters in {self.path!r} has lost its file 'mlog': move the folder"
                " elsewhere, and this master learns the log from the others"
            )
        if os.path.exists(self._new):
            try:
                return int(read_file(self._new))
            except ValueError:
                os.unlink(self._new)  # cut off by a crash, so no other master has learnt the id
        journal = new_journal_id()
        file = LogFile(self._new, 0)
        file.append(b"%d\n" % journal)
        file.sync()
        file.close()
        sync_folder(self.path)
        return journal

    def _open(self) -> None:
        self._store = Store(self._tlog, self._mlog, self._name, self._genesis, 0, self._warn)
        self.durable = self._store.durable
        self.journal = self.durable.log
        if os.path.exists(self._new):
            os.unlink(self._new)

    # -- LogDisk -----------------------------------------------------------------------------------

    def begin(self, begun: Begun, genesis: Members, known: dict[int, int]) -> None:
        self._genesis = genesis
        try:
            records = [Known(*each) for each in known.items()]
            begin_journal(self._mlog, self._name, begun, self.journal, records)
            self._open()
        except StoreError as e:
            raise self._failure(e) from None

    def begin_with(self, genesis: Members) -> None:
        self._store.begin_with(genesis)

    def append(self, records: list[Record]) -> None:
        try:
            self._store.append(records)
        except StoreError as e:
            raise self._failure(e) from None

    def sync(self, done: Callable[[], None], failed: Callable[[LogFailure], None]) -> None:
        future = self._syncer.submit(self._store.sync)
        future.add_done_callback(lambda future: self._synced(future, done, failed))

    def _synced(
        self, future: Future[None], done: Callable[[], None], failed: Callable[[LogFailure], None]
    ) -> None:
        """Report the end of a sync. Runs on the thread that syncs."""
        error = future.exception()
        if error is None:
            self._from_thread(done)
        elif isinstance(error, StoreError):
            self._from_thread(failed, self._failure(error))
        else:
            # Report any exception: otherwise this master would wait for its disk for ever, silently.
            failure = LogFailure(f"the log of the masters cannot be synced: {error!r}")
            self._from_thread(failed, failure)

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        return self._store.read(tid, count, size)

    def close(self) -> None:
        self._syncer.shutdown()
        if self.durable is not None:
            self._store.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _failure(self, error: StoreError) -> LogFailure:
        text = str(error)
        if "start the node with --recover" in text:
            text = text.partition("; start the node with --recover")[0]
            text += (
                f"; move {self.path} elsewhere, and this master learns the log from the others when it"
                " is started again"
            )
        return LogFailure(f"the log of the masters cannot be used: {text}")
