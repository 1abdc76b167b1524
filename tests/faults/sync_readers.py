"""Read snapshots of what :mod:`tests.faults.sync_load` writes, in a site or in its backup."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import NamedTuple

import transaction
from ZODB.DB import DB
from ZODB.POSException import POSError

from neo.client import Storage
from tests.faults.sync_load import newest
from tests.faults.sync_site import WAIT_SECONDS, Site

#: Pause between two snapshots: the load is to have most of the machine.
PAUSE_SECONDS = 0.02


class Seen(NamedTuple):
    """A snapshot. ``when``: time of the monotonic clock after it was read. ``tid``: its last one."""

    when: float
    tid: bytes


class Reader:
    """A thread with a client of its own. ``seen``: grows while it runs. Each snapshot has transactions as
    a whole, and is not older than the one before."""

    def __init__(self, site: Site) -> None:
        self.seen: list[Seen] = []
        self.name = site.name
        self._masters = site.masters
        self._stopping = threading.Event()
        self._wrong: list[str] = []
        self._storage: Storage | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop. Raise AssertionError if a snapshot was wrong."""
        self._stopping.set()
        while self._thread.is_alive():
            if self._storage is not None:
                self._storage.close()  # what waits for the cluster fails
            self._thread.join(0.1)
        assert not self._wrong, self._wrong

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._wrong:
            try:
                self._storage = Storage(self._masters, self.name, wait_timeout=WAIT_SECONDS)
                self._read(DB(self._storage))
            except (POSError, transaction.interfaces.TransientError):
                self._stopping.wait(PAUSE_SECONDS)  # the site is away
            except AssertionError as e:
                self._wrong.append(str(e))
            finally:
                if self._storage is not None:
                    self._storage.close()

    def _read(self, db: DB) -> None:
        manager = transaction.TransactionManager()
        root = db.open(manager).root()
        last = bytes(8)
        while not self._stopping.wait(PAUSE_SECONDS):
            manager.begin()
            tid = newest(root)
            assert tid >= last, f"{self.name}: {tid.hex()} was read after {last.hex()}"
            last = tid
            self.seen.append(Seen(time.monotonic(), tid))
