"""The reading part of the storage class: loads, history, iteration."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid

from neo.client import history
from neo.client.cache import Load, Loaded
from neo.client.errors import refused
from neo.client.iterator import Objects, Transactions
from neo.client.records import data_of
from neo.client.session import Session
from neo.client.walk import Walk
from neo.net.fault_sites import FaultSite
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_OID
from neo.protocol.packets import AnswerObject, AskObject


class Reading(ConflictResolvingStorage):
    """Reading methods of a ZODB storage. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._invalidations = session.invalidations
        self._replicas = session.replicas
        # The last walk of record_iternext() and its next oid. The thread that continues it removes it.
        self._walks: deque[tuple[bytes | None, Walk]] = deque(maxlen=1)

    def registerDB(self, wrapper: Any) -> None:
        super().registerDB(wrapper)
        self._invalidations.db = wrapper

    def sync(self, force: bool = True) -> None:
        """Make visible what other clients committed before this call."""
        if force:
            self._replicas.barrier()

    def lastTransaction(self) -> bytes:
        """Return the last transaction whose invalidations are complete, without asking a node."""
        return self._invalidations.last_transaction()

    # -- loading ---------------------------------------------------------------------------------

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        cache = self._invalidations.cache
        before = self._invalidations.view(tid)
        found = cache.load_before(oid, before)
        if found is not None:
            return found
        load = Load()
        try:
            cache.load_begins(oid, load)
            if self._session.host.fault(FaultSite.CACHE_EMPTIED):
                cache.clear()
            answer = self._load(oid, None, before)
            loaded = None
            if answer is not None:
                data = data_of(answer)
                if data is None:
                    raise POSKeyError(oid)
                loaded = Loaded(data, answer.serial, answer.next_serial)
            return cache.load_ends(oid, load, loaded)
        except BaseException:
            cache.load_ends(oid, load, None)
            raise

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        found = self._invalidations.cache.load_at(oid, serial)
        if found is not None:
            return found
        answer = self._load(oid, serial, None)
        data = None if answer is None else data_of(answer)
        if data is None:
            raise POSKeyError(oid)
        return data

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        """Return the current revision: (data, serial)."""
        found = self.loadBefore(oid, maxtid)
        if found is None:
            raise POSKeyError(oid)
        return found[:2]

    def getTid(self, oid: bytes) -> bytes:
        return self.load(oid)[1]

    def _load(self, oid: bytes, at: bytes | None, before: bytes | None) -> AnswerObject | None:
        """Return a revision; None if there is none. Raise POSKeyError if there is no such object,
        CorruptedError."""
        try:
            answer = self._replicas.read_id(oid, AskObject(oid, at, before))
        except ErrorAnswer as e:
            if e.code is ErrorCode.OID_DOES_NOT_EXIST:
                raise POSKeyError(oid) from None
            if e.code is ErrorCode.OID_NOT_FOUND:
                return None
            raise refused(f"loading object {oid.hex()}", e) from None
        return answer

    # -- IPrefetchStorage --------------------------------------------------------------------------

    def prefetch(self, oids: Iterable[bytes], tid: bytes) -> None:
        """Load objects into the cache; the requests are pipelined."""
        cache = self._invalidations.cache
        before = self._invalidations.view(tid)
        missing = list(dict.fromkeys(o for o in oids if cache.load_before(o, before) is None))
        view = self._replicas.view()
        loads = {oid: Load() for oid in missing}
        answers = self._replicas.read_each(
            [(view.partition(oid), AskObject(oid, None, before)) for oid in missing],
        )
        try:
            for oid, load in loads.items():
                cache.load_begins(oid, load)
            for oid, answer in zip(missing, answers, strict=True):
                loaded = None
                if isinstance(answer, AnswerObject) and (data := data_of(answer)) is not None:
                    loaded = Loaded(data, answer.serial, answer.next_serial)
                cache.load_ends(oid, loads[oid], loaded)
        except BaseException:
            for oid, load in loads.items():
                cache.load_ends(oid, load, None)
            raise
        finally:
            answers.close()

    # -- history ---------------------------------------------------------------------------------

    def history(self, oid: bytes, size: int = 1) -> list[history.Description]:
        """Implement IStorage.history. The ``size`` of an item is that of the stored, compressed data."""
        return history.object_history(self._replicas, oid, size)

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Transactions:
        return Transactions(self._replicas, start, stop)

    def record_iternext(
        self, next: bytes | None = None
    ) -> tuple[bytes, bytes, bytes, bytes | None]:
        """Return the next current record, in the order of (partition, oid)."""
        try:
            expected, walk = self._walks.pop()
        except IndexError:
            expected, walk = None, None
        if walk is None or next is None or next != expected:
            oids = Objects(self._replicas).after(next)
            walk = Walk(self, oids, self._invalidations.cache.capacity)
        record = walk.take()
        if record is None:
            raise POSKeyError(ZERO_OID)
        following = walk.next()
        self._walks.append((following, walk))
        oid, serial, data = record
        return oid, serial, data, following
