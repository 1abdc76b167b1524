"""What clients asked and were told. :mod:`neo.sim.oracles` compares it with what the storages keep.

Nothing is trusted: all is recorded where ZODB meets the storage. What can be judged at once is judged
here: :attr:`lastTransaction <Recorded.lastTransaction>` never goes back, and whoever calls ``sync``
sees all that was acknowledged to anybody before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ZODB.utils import maxtid
from zope.interface import directlyProvides, providedBy

from neo.client.errors import TransactionLostError
from neo.protocol.ids import ZERO_TID, p64
from neo.sim.disk_check import Rows
from neo.sim.world import Violation, World


class Outcome(Enum):
    BEGUN = "begun"
    ABORTED = "aborted"
    FINISHING = "finishing"  # tpc_finish was called, and nobody knows how it ended
    COMMITTED = "committed"


@dataclass
class Attempt:
    """One transaction of one client. ``mark``: its unique description in ``trans``."""

    client: str
    mark: str
    outcome: Outcome = Outcome.BEGUN
    tid: bytes | None = None
    #: The greatest tid that was acknowledged to anybody when tpc_finish was called.
    after: bytes = ZERO_TID
    #: oid → serial that the change is based on; None when a conflict was resolved.
    stored: dict[bytes, bytes | None] = field(default_factory=dict)
    checked: dict[bytes, bytes] = field(default_factory=dict)


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


@dataclass
class Tables:
    """Rows of all storages together: oid → serials in order, tid → (mark, oids).

    ``packed``: revisions that are not current at this tid may be gone.
    """

    serials: dict[bytes, list[bytes]]
    transactions: dict[bytes, tuple[str, frozenset[bytes]]]
    packed: bytes = ZERO_TID


def join_tables(disks: Iterable[Rows]) -> Tables:
    """What all storages keep together."""
    serials: dict[bytes, set[bytes]] = {}
    transactions: dict[bytes, tuple[str, frozenset[bytes]]] = {}
    packed = 0
    for rows in disks:
        for _, oid, tid, _, _ in rows["obj"]:
            serials.setdefault(p64(oid), set()).add(p64(tid))
        for _, tid, _, oids, _, description, *_ in rows["trans"]:
            split = (oids[i : i + 8] for i in range(0, len(oids), 8))
            transactions[p64(tid)] = bytes(description).decode(), frozenset(split)
        config: dict[str, str] = dict(rows["config"])
        packed = max(packed, int(config.get("_pack_tid") or 0))
    ordered = {oid: sorted(tids) for oid, tids in serials.items()}
    return Tables(ordered, transactions, p64(packed))


class History:
    """All clients of a run write into one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempts: list[Attempt] = []
        self.reads: list[Read] = []
        self.listings: list[Listing] = []
        #: The greatest tid that was acknowledged to anybody.
        self.acknowledged_tid = ZERO_TID
        self._marks = 0

    def begin(self, client: str) -> Attempt:
        self._marks += 1
        attempt = Attempt(client, f"{client}:{self._marks}")
        self.attempts.append(attempt)
        return attempt

    def committed(self, attempt: Attempt, tid: bytes) -> None:
        attempt.outcome = Outcome.COMMITTED
        attempt.tid = tid
        self.acknowledged_tid = max(self.acknowledged_tid, tid)
        self.world.log(attempt.client, f"committed {attempt.mark} {tid.hex()}")

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
        directlyProvides(self, providedBy(storage))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def __len__(self) -> int:
        return len(self._storage)

    def record(self, read: Read) -> None:
        """A read that did not pass through here."""
        self._history.reads.append(replace(read, client=self._client()))

    # -- what a transaction sees -------------------------------------------------------------------

    def lastTransaction(self) -> bytes:
        tid: bytes = self._storage.lastTransaction()
        if tid < self._last_tid:
            raise self._history.violated(
                f"{self._client()}: lastTransaction went back from {self._last_tid.hex()} to"
                f" {tid.hex()}"
            )
        self._last_tid = tid
        return tid

    def sync(self, force: bool = True) -> None:
        acknowledged = self._history.acknowledged_tid
        self._storage.sync(force)
        if force and self.lastTransaction() < acknowledged:
            raise self._history.violated(
                f"{self._client()} synced and is at {self._last_tid.hex()}, but"
                f" {acknowledged.hex()} was acknowledged before"
            )

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        found: tuple[bytes, bytes, bytes | None] | None = self._storage.loadBefore(oid, tid)
        # What is current changes while it is read.
        if tid != maxtid:
            _, serial, next_serial = found or (b"", None, None)
            self._history.reads.append(Read(self._client(), oid, tid, serial, next_serial))
        return found

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Any]:
        """Recorded when it was exhausted."""
        last = self.lastTransaction() if stop is None else min(stop, self.lastTransaction())
        found: dict[bytes, frozenset[bytes] | None] = {}
        for transaction in self._storage.iterator(start, stop):
            records = frozenset(record.oid for record in transaction)
            # What is committed while the iterator is made may be listed or not.
            if transaction.tid <= last:
                found[transaction.tid] = records
            yield transaction
        self._history.listings.append(Listing(self._client(), start or ZERO_TID, last, found))

    def undoLog(self, first: int = 0, last: int = -20, filter: Any = None) -> list[Any]:
        newest = self.lastTransaction()
        log: list[Any] = self._storage.undoLog(first, last, filter)
        if log and first == 0 and filter is None:
            found = dict.fromkeys(entry["id"] for entry in log if entry["id"] <= newest)
            if found:
                self._history.listings.append(Listing(self._client(), min(found), newest, found))
        return log

    # -- transactions ------------------------------------------------------------------------------

    def tpc_begin(self, transaction: Any, *args: Any) -> None:
        attempt = self._history.begin(self._client())
        transaction.description = attempt.mark
        self._attempts[transaction] = attempt
        self._storage.tpc_begin(transaction, *args)

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> None:
        self._attempts[transaction].stored[oid] = serial or ZERO_TID
        self._storage.store(oid, serial, data, version, transaction)

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._attempts[transaction].stored[oid] = serial
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
        self._storage.restore(oid, serial, data, version, prev_txn, transaction)

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._attempts[transaction].checked[oid] = serial
        self._storage.checkCurrentSerialInTransaction(oid, serial, transaction)

    def undo(self, transaction_id: bytes, transaction: Any) -> Any:
        result = self._storage.undo(transaction_id, transaction)
        for oid in result[1] if result else ():
            self._attempts[transaction].stored[oid] = None
        return result

    def tpc_vote(self, transaction: Any) -> Any:
        resolved = self._storage.tpc_vote(transaction)
        for oid in resolved or ():
            self._attempts[transaction].stored[oid] = None
        return resolved

    def tpc_finish(self, transaction: Any, callback: Any = lambda tid: None) -> bytes:
        attempt = self._attempts.pop(transaction)
        attempt.outcome = Outcome.FINISHING
        attempt.after = self._history.acknowledged_tid
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
