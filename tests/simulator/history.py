"""What clients asked and were told; :mod:`tests.simulator.oracles` compares it with what storages keep.

Nothing is trusted: all is recorded where ZODB meets the storage. What can be judged at once is judged
here: ``lastTransaction`` never goes back, whoever calls ``sync`` sees
all that anybody was told of before, a revision always has the same data, and no oid or tid is given
twice.

Truncation
----------
What an operator cuts off may be there or not until all is over; and whoever read it was right. So a
truncation leaves a *void*: the tids after the one that it was asked with, up to the last that the
master had given then; a start without nodes that are lost leaves one, too, after the last transaction
of the others. What clients knew of these is forgotten at once, and judged leniently at the
end: nothing that was acknowledged before is left of a void, or all of it, if the truncation was
forgotten with the master.
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


@dataclass(frozen=True, slots=True)
class Read:
    """Somebody asked for the last revision before ``before`` and got ``serial``; None: nothing.

    ``next_serial``: when it was replaced, as far as the answer told. ``missing``: somebody was told
    that there is no such object, at that time: it does not exist, or it was deleted.
    """

    client: str
    oid: bytes
    before: bytes
    serial: bytes | None
    next_serial: bytes | None = None
    missing: bool = False


@dataclass(frozen=True)
class Listing:
    """Somebody listed all transactions from ``first`` to ``last`` and got these: tid → oids.

    ``oids`` are None where only the tids were listed.
    """

    client: str
    first: bytes
    last: bytes
    found: dict[bytes, frozenset[bytes] | None]


@dataclass(frozen=True)
class Snapshot:
    """Somebody read the last revision up to ``last`` of each object, and got these oids."""

    client: str
    last: bytes
    oids: frozenset[bytes]


class History:
    """All clients of a run write into one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempts: list[Attempt] = []
        self.reads: list[Read] = []
        self.listings: list[Listing] = []
        self.snapshots: list[Snapshot] = []
        #: The greatest tid that anybody was told.
        self.told_tid = ZERO_TID
        #: What truncations were asked to take away, in the order of the questions.
        self.voids: list[Void] = []
        #: (oid, serial) → digest of what somebody read or stored there.
        self.contents: dict[tuple[bytes, bytes], bytes | None] = {}
        #: Tids that were acknowledged, with the marks of their transactions.
        self._acknowledged: dict[bytes, str] = {}
        #: How many transactions of each client were acknowledged.
        self.commits: Counter[str] = Counter()
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
        self.commits[attempt.client] += 1
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
        if self.void(self.told_tid):
            left = (tid for tid in self._acknowledged if tid <= after and not self.void(tid))
            self.told_tid = max(left, default=ZERO_TID)
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

    def given_up(self, after: bytes, last: bytes) -> None:
        """The cluster was started, by force, with transactions up to ``after``; masters gave tids up to
        ``last``. Maybe nobody has heard of these yet."""
        if after < last:
            self.truncated(after, last)

    def violated(self, what: str) -> Violation:
        """To be raised by a client: the run ends even if ZODB or an application catches it."""
        violation = Violation(what)
        self.world.fail(violation)
        return violation

    @property
    def acknowledged(self) -> int:
        return sum(attempt.outcome is Outcome.COMMITTED for attempt in self.attempts)


def _hex(tid: bytes | None) -> str:
    return "none" if tid is None else tid.hex()
