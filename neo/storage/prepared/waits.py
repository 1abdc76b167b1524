"""Waits for objects that prepared transactions hold are bounded (specification 24.9).

A timer runs only while a transaction is prepared and a request is delayed.
"""

from __future__ import annotations

from neo.node.host import Host
from neo.protocol.ids import format_xid
from neo.protocol.packets import PREPARED_WORDS
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import HeldByPrepared, Transaction
from neo.storage.database import Database

#: Seconds that a request waits for an object of a prepared transaction: longer than a coordinator that
#: works takes for its decision, and much shorter than a person looks at a program that hangs.
PREPARED_WAIT = 5.0


class PreparedWaits:
    def __init__(self, host: Host, database: Database) -> None:
        self._host = host
        self._database = database
        self._planned = False

    def watch(self, locks: Locks) -> None:
        """Refuse requests that have waited too long, now and later. Idempotent."""
        if not self._planned:
            self._plan(locks, PREPARED_WAIT)

    def _plan(self, locks: Locks, seconds: float) -> None:
        self._planned = True
        self._database.call_later(seconds, lambda: self._tick(locks))

    def _tick(self, locks: Locks) -> None:
        self._planned = False
        seconds = locks.refuse_overdue(PREPARED_WAIT, self._refusal)
        if seconds is not None:
            self._plan(locks, seconds)

    def _refusal(self, holder: Transaction, oid: bytes) -> HeldByPrepared:
        marks = self._database.backend.marks.prepared()
        mark = next(mark for mark in marks if mark.ttid == holder.ttid)
        age = max(0.0, self._host.time() - mark.since)
        return HeldByPrepared(
            f"{PREPARED_WORDS}transaction {format_xid(mark.xid)} holds object {oid.hex()}, prepared"
            f" since {age:.0f} s: its coordinator must commit it or roll it back"
        )

