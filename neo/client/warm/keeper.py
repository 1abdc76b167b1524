"""Keeps the cache of a client in a folder: restores it when the client opens, saves it now and then.

The cache is saved by a thread of its own, and when the storage is closed. Nothing waits for that: a load
or a commit does no more than count. A save takes at most a hundredth of the time, so a large cache is
saved less often. Whatever a crash leaves is an older snapshot, which is as right as a new one: more has
changed since.

No error of the folder or the file ends anything but the keeping.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ZODB.POSException import POSError

from neo.client.connect.master import MasterConnection
from neo.client.history.transactions import transaction_information
from neo.client.read.cache import Record
from neo.client.read.invalidations import Invalidations
from neo.client.read.replicas import Replicas
from neo.client.settings import Settings
from neo.client.warm.slots import Slot, take_slot
from neo.client.warm.snapshot import Anchor, Snapshot, UnusableError, read, write
from neo.client.warm.validation import Changes, changes_since, check_sample
from neo.net.host import ThreadHost, Waker
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import FEATURE_OURS

logger = logging.getLogger("neo.client")

#: Shortest time between two saves.
SAVE_SECONDS = 30.0
#: The time between two saves, in durations of the last one.
SAVE_EACH = 100
#: Other threads, or greenlets, run after so many records: some milliseconds.
PAUSE_EACH = 1000


class CacheKeeper:
    """See the module's docstring. Without ``cache_dir`` it does nothing."""

    def __init__(
        self,
        host: ThreadHost,
        settings: Settings,
        master: MasterConnection,
        replicas: Replicas,
        invalidations: Invalidations,
    ) -> None:
        self._host = host
        self._settings = settings
        self._master = master
        self._replicas = replicas
        self._invalidations = invalidations
        self._slot: Slot | None = None
        self._waker: Waker | None = None
        # One thread saves at a time.
        self._saving = host.lock()
        # What was saved last, and whether the last save failed.
        self._saved: object = None
        self._failed = False

    # -- opening ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Restore the cache, then keep it. Call once, after the client joined and before the first load.
        """
        folder = self._settings.cache_dir
        if folder is None:
            return
        try:
            self._slot = take_slot(folder, self._settings.cluster)
        except OSError as e:
            logger.warning("cache_dir %r cannot be used, so the cache is not kept: %s", folder, e)
            return
        if self._slot is None:
            logger.warning(
                "cache_dir %r: other processes use all its slots, so this one does not keep its cache",
                folder,
            )
            return
        try:
            self._begin(self._slot)
        except (POSError, ErrorAnswer) as e:
            logger.warning("the kept cache is not used: %s", e)
        finally:
            self._invalidations.cache.restore(())  # invalidations are not noted any more
        self._host.background(self._run, "neo-client-cache")

    def _begin(self, slot: Slot) -> None:
        """Raise the errors of reads."""
        # NotifyPack of the last pack has arrived afterwards.
        self._replicas.barrier()
        for path in slot.candidates():
            if (anchor := self._restore(path)) is not None:
                last = self._invalidations.last
                if path == slot.path and last is not None and last[0] == anchor.tid:
                    self._saved = self._state()  # the file needs no save yet
                return
        last_tid = self._invalidations.last_transaction()
        if last_tid != ZERO_TID:
            (answer,) = transaction_information(self._replicas, [last_tid])
            if answer is not None:
                self._invalidations.learn(last_tid, answer.oid_list)

    def _restore(self, path: Path) -> Anchor | None:
        """Restore the cache from a file. Return its anchor, or None if the file cannot be used. Raise the
        errors of reads."""
        cache = self._invalidations.cache
        try:
            with open(path, "rb") as file:
                snapshot = read(file, self._settings.cluster)
            # From here on, invalidations are noted, as for a load.
            cache.restoring()
            last_tid = self._invalidations.last_transaction()
            changes = changes_since(self._replicas, snapshot.anchor, last_tid)
            records = list(self._valid(snapshot, changes))
            check_sample(self._replicas, [r for r in records if r.next_tid is None], last_tid)
        except (UnusableError, OSError) as e:
            logger.warning("kept cache %s is not used: %s", path, e)
            return None
        count = cache.restore(records)
        self._invalidations.learn(changes.last, changes.last_oids)
        logger.info(
            "kept cache %s: %d of %d records are valid at %s",
            path, count, len(snapshot.records), last_tid.hex(),
        )  # fmt: skip
        return snapshot.anchor

    def _valid(self, snapshot: Snapshot, changes: Changes) -> Iterator[Record]:
        """Yield the records that are still right. Old revisions may be packed away, which only a master
        that announces packs tells."""
        tells = FEATURE_OURS in self._master.joined().handler.features
        for record in snapshot.records:
            if tells if record.next_tid is not None else record.oid not in changes.oids:
                yield record

    # -- saving ----------------------------------------------------------------------------------

    def _run(self) -> None:
        """Save now and then, until the storage is closed."""
        pause = SAVE_SECONDS
        while True:
            # Stored before the slot is read: close() gives up the slot, then wakes.
            waker = self._waker = self._host.waker()
            if self._slot is None:
                return
            waker.wait(pause)
            begin = self._host.now()
            self.save()
            pause = max(SAVE_SECONDS, SAVE_EACH * (self._host.now() - begin))

    def _state(self) -> object:
        """Return a value that is another one when there is something to save."""
        return self._invalidations.cache.added, self._invalidations.last

    def save(self) -> None:
        """Save the cache, if it is kept and has changed."""
        with self._saving:
            slot, state, last = self._slot, self._state(), self._invalidations.last
            if slot is None or last is None or state == self._saved:
                return
            try:
                slot.replace(partial(self._write, Anchor.of(*last)))
                self._saved, self._failed = state, False
            except OSError as e:
                if not self._failed:
                    logger.warning("the cache cannot be kept now in %s: %s", slot.path, e)
                self._failed = True

    def _write(self, anchor: Anchor, file: BinaryIO) -> bool:
        """Write the file of a slot. Return whether the records are of the history of ``anchor``: the
        cache is emptied when the history may be another one."""
        cache = self._invalidations.cache
        emptied, records = cache.kept()
        write(file, self._settings.cluster, anchor, self._with_pauses(records))
        return bool(records) and cache.emptied == emptied

    def _with_pauses(self, records: list[Record]) -> Iterator[Record]:
        for number, record in enumerate(records, 1):
            yield record
            if not number % PAUSE_EACH:
                self._host.sleep(0.0)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Save a last time, and give up the slot. Idempotent."""
        self.save()
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()
        if self._waker is not None:
            self._waker.wake()

    def forked(self) -> None:
        """Leave the slot to the parent; this process has its memory alone. Call in the child of a fork.
        """
        slot, self._slot, self._waker = self._slot, None, None
        self._saving = self._host.lock()
        if slot is not None:
            slot.release()
