"""Record what clients ask and the answers; :mod:`tests.simulator.oracles` compares it with the tables.

Everything is recorded where ZODB meets the storage. Some rules are checked at once: ``lastTransaction``
never goes back, a caller of ``sync`` sees all that any client was told before, a revision always has
the same data, and no oid or tid is given twice.

Truncation ---------- Transactions that the operator truncates may be there or not until the truncation
is over, and reads of them are right in both cases. So a truncation leaves a *void*: the tids after the
one in its command, up to the last one that the master had given then. A start without lost nodes leaves
a void, too, after the last transaction of the other nodes. The clients' knowledge of a void is
forgotten at once, and judged at the end: of a void, either nothing that was acknowledged before is
left, or all of it, if the truncation was forgotten with the master.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from neo.protocol.ids import ZERO_TID
from tests.simulator.world import Violation, World


class Outcome(Enum):
    BEGUN = "begun"
    ABORTED = "aborted"
    FINISHING = "finishing"  # tpc_finish was called, and its outcome is unknown
    COMMITTED = "committed"


@dataclass
class Attempt:
    """One transaction of one client. ``mark``: its unique description in ``trans``.

    ``imposed``: the tid was given with tpc_begin. ``era``: the number of truncations that had been
    commanded when tpc_finish was called.
    """

    client: str
    mark: str
    outcome: Outcome = Outcome.BEGUN
    tid: bytes | None = None
    imposed: bytes | None = None
    #: In a copy, the transaction that must be committed if this one is.
    follows: Attempt | None = None
    era: int = 0
    #: The greatest tid that any client had been told when tpc_finish was called.
    after: bytes = ZERO_TID
    #: oid → serial on which the change is based; None when a conflict was resolved.
    stored: dict[bytes, bytes | None] = field(default_factory=dict)
    checked: dict[bytes, bytes] = field(default_factory=dict)
    #: oid → digest of data that was stored without conflict resolution; None: deleted.
    contents: dict[bytes, bytes | None] = field(default_factory=dict)
    #: oid → content of the blob that was stored, by hexadecimal checksum.
    blobs: dict[bytes, str] = field(default_factory=dict)


class Void(NamedTuple):
    """The tids after ``after``, up to ``last``, that a truncation deletes."""

    after: bytes
    last: bytes

    def has(self, tid: bytes) -> bool:
        return self.after < tid <= self.last


@dataclass(frozen=True, slots=True)
class Read:
    """A read of the last revision before ``before``, answered with ``serial`` (None: no revision).

    ``next_serial``: the next revision, as far as the answer told. ``missing``: the answer said that the
    object did not exist at that time: it was never created, or it was deleted.
    """

    client: str
    oid: bytes
    before: bytes
    serial: bytes | None
    next_serial: bytes | None = None
    missing: bool = False


@dataclass(frozen=True)
class Listing:
    """A list of all transactions from ``first`` to ``last``, as answered: tid → oids. The oids are None
    where only the tids were listed."""

    client: str
    first: bytes
    last: bytes
    found: dict[bytes, frozenset[bytes] | None]


@dataclass(frozen=True)
class Snapshot:
    """A read of the last revision up to ``last`` of each object, which returned these oids."""

    client: str
    last: bytes
    oids: frozenset[bytes]


class History:
    """The history of a run, into which all its clients write."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempts: list[Attempt] = []
        #: Prepared transactions, by xid.
        self.prepared: dict[bytes, Attempt] = {}
        #: Xids whose rollback was acknowledged.
        self.rolled_back: set[bytes] = set()
        self.reads: list[Read] = []
        self.listings: list[Listing] = []
        self.snapshots: list[Snapshot] = []
        #: The greatest tid that any client was told.
        self.told_tid = ZERO_TID
        #: The voids of all truncations, in the order of their commands.
        self.voids: list[Void] = []
        #: (oid, serial) → digest of what a client read or stored there.
        self.contents: dict[tuple[bytes, bytes], bytes | None] = {}
        #: (oid, serial) → content of a blob that a client read or stored there, by checksum.
        self.blobs: dict[tuple[bytes, bytes], str] = {}
        #: The greatest tid that was acknowledged.
        self.acknowledged_tid = ZERO_TID
        #: Tids that were acknowledged, with the marks of their transactions.
        self._acknowledged: dict[bytes, str] = {}
        #: Number of acknowledged transactions of each client.
        self.commits: Counter[str] = Counter()
        #: Oids of acknowledged transactions; all oids that were given; oids that were given twice.
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
        self.acknowledged_tid = max(self.acknowledged_tid, tid)
        self.commits[attempt.client] += 1
        self.told(tid)
        if not self.void(tid):
            self._stored.update(attempt.stored)
        for oid, content in attempt.contents.items():
            self.seen(attempt.client, oid, tid, content)
        for oid, checksum in attempt.blobs.items():
            self.seen_blob(attempt.client, oid, tid, checksum)

    def told(self, tid: bytes) -> None:
        """Record that a client knows that all transactions up to ``tid`` are committed."""
        if tid > self.told_tid and not self.void(tid):
            self.told_tid = tid

    def seen(self, client: str, oid: bytes, serial: bytes, content: bytes | None) -> None:
        """Record a read; check that the revision had the same data before. ``content``: its digest."""
        known = self.contents.setdefault((oid, serial), content)
        if known != content and not self.void(serial):
            raise self.violated(
                f"{client} read other data of {oid.hex()} at {serial.hex()} than was seen there before"
            )

    def seen_blob(self, client: str, oid: bytes, serial: bytes, checksum: str) -> None:
        """Record the content of a blob that was read; check that it was the same before."""
        known = self.blobs.setdefault((oid, serial), checksum)
        if known != checksum and not self.void(serial):
            raise self.violated(
                f"{client} read content {checksum[:16]} of blob {oid.hex()} at {serial.hex()}, where"
                f" {known[:16]} was seen before"
            )

    def given(self, client: str, oid: bytes) -> None:
        """Record an oid that was given for a new object."""
        if oid in self._stored:
            raise self.violated(f"{client} is given oid {oid.hex()}, which is in use")
        if oid in self._given:
            self.given_twice.append(oid)
        self._given.add(oid)

    def void(self, tid: bytes) -> bool:
        """Return whether a truncation of this tid was commanded."""
        return any(void.has(tid) for void in self.voids)

    def truncated(self, after: bytes, last: bytes) -> None:
        """Record that the master accepted a truncation after ``after``; it had given tids up to
        ``last``."""
        self.world.log("history", f"all after {after.hex()} is to be deleted")
        self.voids.append(Void(after, last))
        if self.void(self.told_tid):
            left = (tid for tid in self._acknowledged if tid <= after and not self.void(tid))
            self.told_tid = max(left, default=ZERO_TID)
        self.contents = {
            revision: content
            for revision, content in self.contents.items()
            if not self.void(revision[1])
        }
        self.blobs = {
            revision: checksum
            for revision, checksum in self.blobs.items()
            if not self.void(revision[1])
        }
        self._stored = {
            oid
            for attempt in self.attempts
            if attempt.tid is not None and not self.void(attempt.tid)
            for oid in attempt.stored
        }

    def given_up(self, after: bytes, last: bytes) -> None:
        """Record a forced start with transactions up to ``after``; masters had given tids up to
        ``last``. No client need have heard of these tids yet."""
        if after < last:
            self.truncated(after, last)

    def violated(self, what: str) -> Violation:
        """Return an error for a client to raise. It ends the run even if it is caught."""
        violation = Violation(what)
        self.world.fail(violation)
        return violation

    @property
    def acknowledged(self) -> int:
        return sum(attempt.outcome is Outcome.COMMITTED for attempt in self.attempts)


def _hex(tid: bytes | None) -> str:
    return "none" if tid is None else tid.hex()
