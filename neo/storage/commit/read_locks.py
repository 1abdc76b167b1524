"""Reads that wait for locked transactions. PURE; :mod:`neo.storage.commit.locks` has the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from neo.storage.commit.transactions import Transaction


class _Scan(NamedTuple):
    waits_for: set[Transaction]
    read: Callable[[], object]


class Readers:
    """Reads that wait until transactions are unlocked."""

    def __init__(self) -> None:
        self.locked: set[Transaction] = set()
        self._readers: dict[bytes, list[Callable[[], object]]] = {}
        self._scans: list[_Scan] = []

    def wait(self, oid: bytes, read: Callable[[], object]) -> None:
        self._readers.setdefault(oid, []).append(read)

    def scan(self, read: Callable[[], object], last: bytes) -> bool:
        """Wait for the transactions up to ``last`` that are locked now, not for transactions that are
        locked later. Return whether there are any."""
        found = {each for each in self.locked if each.tid is None or each.tid <= last}
        if found:
            self._scans.append(_Scan(found, read))
        return bool(found)

    def count(self) -> int:
        """Return how many reads wait."""
        return len(self._scans) + sum(map(len, self._readers.values()))

    def scanned(self) -> list[Transaction]:
        """Return the transactions for which scans wait, in the order of their ttids."""
        waits_for = {each for scan in self._scans for each in scan.waits_for}
        return sorted(waits_for, key=lambda each: each.ttid)

    def unlocked(self, transaction: Transaction) -> list[Callable[[], object]]:
        """Return the reads that need not wait any more."""
        self.locked.remove(transaction)
        ready: list[Callable[[], object]] = []
        if self._readers:
            # In the order of the stores: that of the set ``held`` depends on the process.
            for oid in transaction.changes:
                if oid in transaction.held:
                    ready += self._readers.pop(oid, ())
        for scan in self._scans[:]:
            scan.waits_for.discard(transaction)
            if not scan.waits_for:
                self._scans.remove(scan)
                ready.append(scan.read)
        return ready

    def validate(self, read_locked: Callable[[bytes], bool]) -> None:
        """Raise AssertionError if a read waits without a locked transaction."""
        assert all(read_locked(oid) for oid in self._readers), list(self._readers)
        assert all(scan.waits_for and scan.waits_for <= self.locked for scan in self._scans)
