"""What clients asked and were told. :mod:`neo.sim.oracles` compares it with what the storages keep.

Nothing is trusted: all is recorded where ZODB meets the storage. What can be judged at once is judged
here: :attr:`lastTransaction <Recorded.lastTransaction>` never goes back, whoever calls ``sync`` sees
all that anybody was told of before, a revision always has the same data, and no oid or tid is given
twice.

Truncation
----------
What an operator cuts off may be there or not until all is over; and whoever read it was right. So a
truncation leaves a *void*: the tids after the one that it was asked with, up to the last that the
master had given then. What clients knew of these is forgotten at once, and judged leniently at the
end: nothing that was acknowledged before is left of a void, or all of it, if the truncation was
forgotten with the master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from ZODB.utils import maxtid
from zope.interface import directlyProvides, providedBy

from neo.client.errors import TransactionLostError
from neo.protocol.ids import ZERO_TID, add64
from neo.sim.tables import digest
from neo.sim.world import Violation, World


class Outcome(Enum):
    BEGUN = "begun"
    ABORTED = "aborted"
    FINISHING = "finishing"  # tpc_finish was called, and nobody knows how it ended
    COMMITTED = "committed"


@dataclass
class Attempt:
    """One transaction of one client. ``mark``: its unique description in ``trans``.

    ``imposed``: its tid was given with tpc_begin. ``era``: how many truncations had been asked when
    tpc_finish was called.
    """

    client: str
    mark: str
    outcome: Outcome = Outcome.BEGUN
    tid: bytes | None = None
    imposed: bytes | None = None
    era: int = 0
    #: The greatest tid that anybody was told when tpc_finish was called.
    after: bytes = ZERO_TID
    #: oid → serial that the change is based on; None when a conflict was resolved.
    stored: dict[bytes, bytes | None] = field(default_factory=dict)
    checked: dict[bytes, bytes] = field(default_factory=dict)
    #: oid → digest of what was stored as it is; None: the object was deleted.
    contents: dict[bytes, bytes | None] = field(default_factory=dict)


class Void(NamedTuple):
    """Tids after ``after``, up to ``last``, that a truncation took away."""

    after: bytes
    last: bytes

    def has(self, tid: bytes) -> bool:
        return self.after < tid <= self.last


@dataclass(frozen=True)
class Read:
    """Somebody asked for the last revision before ``before`` and got ``serial``; None: nothing.

    ``next_serial``: when it was replaced, as far as the answer told.
    """

    client: str
    oid: bytes
    before: bytes
    serial: bytes | None
    next_serial: bytes | None = None


@dataclass(frozen=True)
class Listing:
    """Somebody listed all transactions from ``first`` to ``last`` and got these: tid → oids.

    ``oids`` are None where only the tids were listed.
    """

    client: str
    first: bytes
    last: bytes
    found: dict[bytes, frozenset[bytes] | None]


class History:
    """All clients of a run write into one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempts: list[Attempt] = []
        self.reads: list[Read] = []
        self.listings: list[Listing] = []
        #: The greatest tid that anybody was told.
        self.told_tid = ZERO_TID
        #: What truncations were asked to take away, in the order of the questions.
        self.voids: list[Void] = []
        #: (oid, serial) → digest of what somebody read or stored there.
        self.contents: dict[tuple[bytes, bytes], bytes | None] = {}
        #: Tids that were acknowledged, with the marks of their transactions.
        self._acknowledged: dict[bytes, str] = {}
        #: Oids of acknowledged transactions; all that were given; those that were given twice.
        self._stored: set[bytes] = set()
        self._given: set[bytes] = set()
        self.given_twice: list[bytes] = []
        self._marks = 0

    def begin(self, client: str) -> Attempt:
        self._marks += 1
        attempt = Attempt(client, f"{client}:{self._marks}")
        self.attempts.append(attempt)
        return attempt

    def committed(self, attempt: Attempt, tid: bytes) -> None:
        attempt.outcome = Outcome.COMMITTED
        attempt.tid = tid
        self.world.log(attempt.client, f"committed {attempt.mark} {tid.hex()}")
        other = self._acknowledged.get(tid)
        if other is not None and not self.void(tid):
            raise self.violated(f"{attempt.mark} got tid {tid.hex()}, which is that of {other}")
        if attempt.imposed not in (None, tid):
            raise self.violated(
                f"{attempt.mark} got tid {tid.hex()}, not {_hex(attempt.imposed)} as it wanted"
            )
        self._acknowledged[tid] = attempt.mark
        self.told(tid)
        if not self.void(tid):
            self._stored.update(attempt.stored)
        for oid, content in attempt.contents.items():
            self.seen(attempt.client, oid, tid, content)

    def told(self, tid: bytes) -> None:
        """Somebody knows that all transactions up to ``tid`` are there."""
        if tid > self.told_tid and not self.void(tid):
            self.told_tid = tid

    def seen(self, client: str, oid: bytes, serial: bytes, content: bytes | None) -> None:
        """A revision has the same data wherever and whenever it is read. ``content``: its digest."""
        known = self.contents.setdefault((oid, serial), content)
        if known != content and not self.void(serial):
            raise self.violated(
                f"{client} read other data of {oid.hex()} at {serial.hex()} than was seen there before"
            )

    def given(self, client: str, oid: bytes) -> None:
        """An oid for a new object."""
        if oid in self._stored:
            raise self.violated(f"{client} is given oid {oid.hex()}, which is in use")
        if oid in self._given:
            self.given_twice.append(oid)
        self._given.add(oid)

    def void(self, tid: bytes) -> bool:
        """Whether a truncation was asked to take this tid away."""
        return any(void.has(tid) for void in self.voids)

    def truncated(self, after: bytes, last: bytes) -> None:
        """The master took on to delete what is later than ``after``; it gave tids up to ``last``."""
        self.world.log("history", f"all after {after.hex()} is to be deleted")
        self.voids.append(Void(after, last))
        self.told_tid = min(self.told_tid, after)
        self.contents = {
            revision: content
            for revision, content in self.contents.items()
            if not self.void(revision[1])
        }
        self._stored = {
            oid
            for attempt in self.attempts
            if attempt.tid is not None and not self.void(attempt.tid)
            for oid in attempt.stored
        }

    def violated(self, what: str) -> Violation:
        """To be raised by a client: the run ends even if ZODB or an application catches it."""
        violation = Violation(what)
        self.world.fail(violation)
        return violation

    @property
    def acknowledged(self) -> int:
        return sum(attempt.outcome is Outcome.COMMITTED for attempt in self.attempts)


class Recorded:
    """A storage that records what passes between ZODB, or an application, and it."""

    def __init__(self, storage: Any, history: History, client: Callable[[], str]) -> None:
        self._storage = storage
        self._history = history
        self._client = client
        self._attempts: dict[Any, Attempt] = {}
        self._last_tid = ZERO_TID
        #: Oids that this client was given: it gives none twice, whatever masters do.
        self._oids: set[bytes] = set()
        directlyProvides(self, providedBy(storage))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def __len__(self) -> int:
        return len(self._storage)

    def is_void(self, before: bytes) -> bool:
        """Whether the last transaction of this snapshot was truncated."""
        return self._history.void(add64(before, -1))

    def record(self, read: Read) -> None:
        """A read that did not pass through here."""
        self._history.reads.append(replace(read, client=self._client()))

    # -- what a transaction sees -------------------------------------------------------------------

    def lastTransaction(self) -> bytes:
        tid: bytes = self._storage.lastTransaction()
        if tid < self._last_tid and not self._history.void(self._last_tid):
            raise self._history.violated(
                f"{self._client()}: lastTransaction went back from {self._last_tid.hex()} to"
                f" {tid.hex()}"
            )
        self._last_tid = tid
        self._history.told(tid)
        return tid

    def sync(self, force: bool = True) -> None:
        told = self._history.told_tid
        self._storage.sync(force)
        if force and self.lastTransaction() < min(told, self._history.told_tid):
            raise self._history.violated(
                f"{self._client()} synced and is at {self._last_tid.hex()}, but {told.hex()} was"
                " told to somebody before"
            )

    def _seen(self, oid: bytes, serial: bytes, data: bytes | None) -> None:
        self._history.seen(self._client(), oid, serial, digest(data))

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        data: bytes = self._storage.loadSerial(oid, serial)
        self._seen(oid, serial, data)
        return data

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        found: tuple[bytes, bytes] = self._storage.load(oid, version)
        self._seen(oid, found[1], found[0])
        return found

    def record_iternext(self, next: bytes | None = None) -> tuple[bytes, bytes, bytes, bytes | None]:
        found: tuple[bytes, bytes, bytes, bytes | None] = self._storage.record_iternext(next)
        oid, serial, data, _ = found
        self._seen(oid, serial, data)
        return found

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        found: tuple[bytes, bytes, bytes | None] | None = self._storage.loadBefore(oid, tid)
        # What is current changes while it is read.
        if tid != maxtid:
            _, serial, next_serial = found or (b"", None, None)
            self._history.reads.append(Read(self._client(), oid, tid, serial, next_serial))
        if found is not None:
            self._seen(oid, found[1], found[0])
        return found

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Any]:
        """Recorded when it was exhausted."""
        last = self.lastTransaction() if stop is None else min(stop, self.lastTransaction())
        found: dict[bytes, frozenset[bytes] | None] = {}
        for transaction in self._storage.iterator(start, stop):
            records = frozenset(map(self._record, transaction))
            # What is committed while the iterator is made may be listed or not.
            if transaction.tid <= last:
                found[transaction.tid] = records
            yield transaction
        self._history.listings.append(Listing(self._client(), start or ZERO_TID, last, found))

    def _record(self, record: Any) -> bytes:
        """The oid of what an iterator gives."""
        self._seen(record.oid, record.tid, record.data)
        oid: bytes = record.oid
        return oid

    def undoLog(self, first: int = 0, last: int = -20, filter: Any = None) -> list[Any]:
        newest = self.lastTransaction()
        log: list[Any] = self._storage.undoLog(first, last, filter)
        if log and first == 0 and filter is None:
            found = dict.fromkeys(entry["id"] for entry in log if entry["id"] <= newest)
            if found:
                self._history.listings.append(Listing(self._client(), min(found), newest, found))
        return log

    # -- transactions ------------------------------------------------------------------------------

    def new_oid(self) -> bytes:
        oid: bytes = self._storage.new_oid()
        if oid in self._oids:
            raise self._history.violated(f"{self._client()} is given oid {oid.hex()} twice")
        self._oids.add(oid)
        self._history.given(self._client(), oid)
        return oid

    def tpc_begin(self, transaction: Any, tid: bytes | None = None, status: str = " ") -> None:
        attempt = self._history.begin(self._client())
        attempt.imposed = tid
        transaction.description = attempt.mark
        self._attempts[transaction] = attempt
        self._storage.tpc_begin(transaction, tid, status)

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> None:
        self._attempts[transaction].stored[oid] = serial or ZERO_TID
        self._attempts[transaction].contents[oid] = digest(data)
        self._storage.store(oid, serial, data, version, transaction)

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._attempts[transaction].stored[oid] = serial
        self._attempts[transaction].contents[oid] = None
        self._storage.deleteObject(oid, serial, transaction)

    def restore(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes | None,
        version: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None:
        self._attempts[transaction].stored[oid] = None
        self._attempts[transaction].contents[oid] = digest(data)
        self._storage.restore(oid, serial, data, version, prev_txn, transaction)

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._attempts[transaction].checked[oid] = serial
        self._storage.checkCurrentSerialInTransaction(oid, serial, transaction)

    def undo(self, transaction_id: bytes, transaction: Any) -> Any:
        result = self._storage.undo(transaction_id, transaction)
        self._resolved(transaction, result[1] if result else ())
        return result

    def tpc_vote(self, transaction: Any) -> Any:
        resolved = self._storage.tpc_vote(transaction)
        self._resolved(transaction, resolved or ())
        return resolved

    def _resolved(self, transaction: Any, oids: Iterable[bytes]) -> None:
        """The storage made the data of these."""
        attempt = self._attempts[transaction]
        for oid in oids:
            attempt.stored[oid] = None
            attempt.contents.pop(oid, None)

    def tpc_finish(self, transaction: Any, callback: Any = lambda tid: None) -> bytes:
        attempt = self._attempts.pop(transaction)
        attempt.outcome = Outcome.FINISHING
        attempt.after = self._history.told_tid
        attempt.era = len(self._history.voids)
        try:
            tid: bytes = self._storage.tpc_finish(transaction, callback)
        except TransactionLostError:
            # The client knows that it is not committed.
            attempt.outcome = Outcome.ABORTED
            raise
        self._history.committed(attempt, tid)
        return tid

    def tpc_abort(self, transaction: Any) -> None:
        attempt = self._attempts.pop(transaction, None)
        if attempt is not None:
            attempt.outcome = Outcome.ABORTED
        self._storage.tpc_abort(transaction)


def _hex(tid: bytes | None) -> str:
    return "none" if tid is None else tid.hex()
