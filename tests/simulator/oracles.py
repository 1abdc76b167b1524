"""The main oracle: compare the answers that clients got with the tables of the storage nodes.

* An acknowledged transaction is in the tables, with all its objects. One that was aborted, or that the
  client knows to be lost, is not. One with an unknown outcome is there as a whole or not at all.
* Each read returned the last revision before its bound. So snapshots are consistent, and no
  invalidation is missing, because reads are also answered from caches.
* Each commit replaced the revision on which it was based, unless the conflict was resolved. With the
  two rules above, histories are snapshot-isolated. Writes, their bases and reads with readCurrent are
  serialisable in the order of tids. What remains is write skew by plain reads, which ZODB allows. A
  graph of dependencies would find nothing more (docs/simulation.md, *What is serialisable*).
* Tids increase in the order of real time: a transaction that begins to finish after another one was
  acknowledged to any client has a greater tid.
* A list of transactions has exactly those in its range, each with all its records.
* Each revision has the data that was stored there, and that was read there by any client.
* Each blob has the content that was stored there, and that was read there by any client.
* No oid is given twice, as long as there is one master.

An oracle is a function (history, tables) that raises Violation, and a line in :data:`ORACLES`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from neo.protocol.ids import ZERO_TID, add64
from tests.simulator.history import Attempt, History, Listing, Outcome, Read, Void
from tests.simulator.tables import Tables
from tests.simulator.world import Violation

#: Description of the client's own commits when it packs. All other transactions are attempts.
MAINTENANCE = "garbage collection"


def check_transactions(history: History, tables: Tables) -> None:
    """Check that each transaction is complete and comes from one attempt, and no attempt has two."""
    by_mark: dict[str, bytes] = {}
    known = {attempt.mark for attempt in history.attempts}
    for tid, (mark, oids) in sorted(tables.transactions.items()):
        for oid in oids:
            if tid > tables.packed and tid not in tables.serials.get(oid, ()):
                raise Violation(f"{mark} {tid.hex()} is half there: no {oid.hex()}")
        if mark.startswith(MAINTENANCE):
            continue
        if mark not in known:
            raise Violation(f"no attempt made transaction {tid.hex()} ({mark})")
        if mark in by_mark:
            raise Violation(f"{mark} was committed twice: {by_mark[mark].hex()}, {tid.hex()}")
        by_mark[mark] = tid


def check_attempts(history: History, tables: Tables) -> None:
    """Check that acknowledged transactions are there, aborted ones are not, and no update is lost."""
    by_mark = {mark: tid for tid, (mark, _) in tables.transactions.items()}
    executed = _executed(history, by_mark)
    for attempt in history.attempts:
        tid = by_mark.get(attempt.mark)
        if tid is None and attempt.tid is not None:
            if any(attempt.era <= number and void.has(attempt.tid) for number, void in executed):
                continue
        if attempt.outcome is Outcome.COMMITTED:
            if tid is None or tid != attempt.tid:
                raise Violation(
                    f"{attempt.mark} was acknowledged as {_hex(attempt.tid)} and is lost"
                    f" (found: {_hex(tid)})"
                )
        elif tid is not None and attempt.outcome is not Outcome.FINISHING:
            raise Violation(f"{attempt.mark} is visible and was {attempt.outcome.value}")
        if tid is not None:
            if tid <= attempt.after:
                raise Violation(
                    f"{attempt.mark} has tid {tid.hex()}, but {attempt.after.hex()} was"
                    " known to a client before its finish"
                )
            if tid > tables.packed:
                _check_bases(tables, attempt, tid)
            _check_gap(tables, attempt, by_mark)


def _check_gap(tables: Tables, attempt: Attempt, by_mark: Mapping[str, bytes]) -> None:
    """Check that a copy has committed the transaction before this one (specification 16.45)."""
    before = attempt.follows
    if before is not None and before.imposed is not None and before.imposed > tables.packed:
        if before.mark not in by_mark:
            raise Violation(f"{attempt.mark} is there, and {before.mark}, before it in a copy, is not")


def _check_bases(tables: Tables, attempt: Attempt, tid: bytes) -> None:
    stored = tables.transactions[tid][1]
    if stored != frozenset(attempt.stored):
        raise Violation(f"{attempt.mark} stored other objects than {tid.hex()} has")
    bases = {oid: base for oid, base in attempt.stored.items() if base is not None}
    for oid, base in (attempt.checked | bases).items():
        found = before(tables.serials.get(oid, []), tid)
        if found is None and base <= tables.packed:
            continue  # a deletion or an undone creation that was packed away
        if (found or ZERO_TID) != base:
            raise Violation(
                f"{attempt.mark} {tid.hex()} is based on {oid.hex()} {base.hex()}, "
                f"but {_hex(found)} was the last revision: an update is lost"
            )


def _executed(history: History, by_mark: Mapping[str, bytes]) -> list[tuple[int, Void]]:
    """Return the truncations that may have been executed, with their numbers. Nothing that they should
    delete is left. Others were forgotten with the master that got the command."""
    found = [
        (attempt.era, tid)
        for attempt in history.attempts
        if (tid := by_mark.get(attempt.mark)) is not None
    ]
    return [
        (number, void)
        for number, void in enumerate(history.voids)
        if not any(era <= number and void.has(tid) for era, tid in found)
    ]


def check_reads(history: History, tables: Tables) -> None:
    """Check that snapshots are consistent. Snapshots in a void ended with it."""
    for read in history.reads:
        if not history.void(add64(read.before, -1)):
            _check_read(tables, read, history.void(read.next_serial or ZERO_TID))


def _check_read(tables: Tables, read: Read, void: bool) -> None:
    """Check a read. ``void``: the next revision is not known any more."""
    serials = tables.serials.get(read.oid, [])
    found = before(serials, read.before)
    if read.before <= tables.packed or (found is None and tables.packed > ZERO_TID):
        return
    what = f"{read.client} read {read.oid.hex()} before {read.before.hex()} and got"
    if read.missing and found is not None:
        if found <= tables.packed or tables.contents.get((read.oid, found)) is None:
            return  # deleted; the deletion itself may be packed away
    if read.serial is None and found is not None and found <= tables.packed:
        if tables.contents.get((read.oid, found)) is None:
            return  # the answering node had packed the deletion away, and has a later revision
    if found != read.serial:
        raise Violation(f"{what} {_hex(read.serial)}; the last revision there is {_hex(found)}")
    if read.next_serial is not None and read.next_serial > tables.packed and not void:
        following = before_or_at(serials, read.next_serial)
        if following != read.next_serial or before(serials, read.next_serial) != read.serial:
            raise Violation(f"{what} {_hex(read.serial)} until {_hex(read.next_serial)}")


def check_listings(history: History, tables: Tables) -> None:
    """Check that iterators and undo logs return exactly what is in the tables."""
    tids = sorted(tables.transactions)
    for listing in history.listings:
        if not history.void(listing.last):
            _check_listing(tables, tids, listing)


def _check_listing(tables: Tables, tids: list[bytes], listing: Listing) -> None:
    expected = [tid for tid in tids if listing.first <= tid <= listing.last]
    found = list(listing.found)
    what = f"{listing.client} listed {listing.first.hex()} to {listing.last.hex()}"
    if sorted(found) != found and sorted(found, reverse=True) != found:
        raise Violation(f"{what} and got {[tid.hex() for tid in found]}, out of order")
    if sorted(found) != expected:
        missing = sorted(set(expected) - set(found))
        extra = sorted(set(found) - set(expected))
        if extra or any(tid > tables.packed for tid in missing):
            raise Violation(f"{what}: {_list(missing)} are missing, {_list(extra)} do not exist")
    for tid, oids in listing.found.items():
        existing = tables.transactions[tid][1]
        if oids is not None and oids != existing and (oids - existing or tid > tables.packed):
            raise Violation(
                f"{what}: {tid.hex()} has objects {_list(sorted(existing))}, not {_list(sorted(oids))}"
            )


def check_snapshots(history: History, tables: Tables) -> None:
    """Check that a read of everything returned every object that existed."""
    for snapshot in history.snapshots:
        if snapshot.last <= tables.packed or history.void(snapshot.last):
            continue
        for oid, serials in tables.serials.items():
            found = before_or_at(serials, snapshot.last)
            if found is None or oid in snapshot.oids:
                continue
            if found > tables.packed or tables.contents.get((oid, found)) is not None:
                what = f"{snapshot.client} read everything up to {snapshot.last.hex()}"
                raise Violation(f"{what}, but not {oid.hex()}, which is there since {found.hex()}")


def check_contents(history: History, tables: Tables) -> None:
    """Check that each revision has the data that was stored there, and every read returned it."""
    for (oid, serial), content in history.contents.items():
        if tables.contents.get((oid, serial), content) != content:
            raise Violation(f"{oid.hex()} at {serial.hex()} has other data than was read there")
    by_mark = {mark: tid for tid, (mark, _) in tables.transactions.items()}
    for attempt in history.attempts:
        tid = by_mark.get(attempt.mark)
        if tid is None:
            continue
        for oid, content in attempt.contents.items():
            if tables.contents.get((oid, tid), content) != content:
                raise Violation(
                    f"{oid.hex()} at {tid.hex()} has other data than {attempt.mark} stored"
                )


def check_blobs(history: History, tables: Tables) -> None:
    """Check that each blob has the content that was stored there, and every read returned it; and that
    undo, conflict resolution and copies left no blob without one."""
    for oid, serial in tables.bare:
        raise Violation(f"blob {oid.hex()} at {serial.hex()} has no content")
    for (oid, serial), checksum in history.blobs.items():
        found = tables.blobs.get((oid, serial))
        if (oid, serial) in tables.contents and found != checksum:
            raise Violation(
                f"blob {oid.hex()} at {serial.hex()} has content {_short(found)}, and"
                f" {checksum[:16]} was read there"
            )
    by_mark = {mark: tid for tid, (mark, _) in tables.transactions.items()}
    for attempt in history.attempts:
        tid = by_mark.get(attempt.mark)
        for oid in attempt.contents if tid is not None else ():
            assert tid is not None
            found, stored = tables.blobs.get((oid, tid)), attempt.blobs.get(oid)
            if (oid, tid) in tables.contents and found != stored:
                raise Violation(
                    f"blob {oid.hex()} at {tid.hex()} has content {_short(found)}, and"
                    f" {attempt.mark} stored {_short(stored)}"
                )


def check_oids(history: History, tables: Tables) -> None:
    """Check that a master gives no oid twice. The next master may, as long as the oid is not in use."""
    if history.given_twice and tables.masters == 1:
        raise Violation(f"oids were given twice: {_list(history.given_twice)}")


Oracle = Callable[[History, Tables], None]
ORACLES: tuple[Oracle, ...] = (
    *(check_transactions, check_attempts, check_reads, check_listings),
    *(check_snapshots, check_contents, check_blobs, check_oids),
)


def judge(history: History, tables: Tables) -> None:
    """Run all oracles. Raise Violation."""
    for oracle in ORACLES:
        oracle(history, tables)


def before(serials: list[bytes], bound: bytes) -> bytes | None:
    """Return the last revision before ``bound``."""
    at = bisect_left(serials, bound)
    return serials[at - 1] if at else None


def before_or_at(serials: list[bytes], bound: bytes) -> bytes | None:
    """Return the last revision before or at ``bound``."""
    at = bisect_left(serials, bound)
    return bound if serials[at : at + 1] == [bound] else before(serials, bound)


def _short(checksum: str | None) -> str:
    return "none" if checksum is None else checksum[:16]


def _hex(tid: bytes | None) -> str:
    return "none" if tid is None else tid.hex()


def _list(ids: list[bytes]) -> str:
    return "[" + ", ".join(id_.hex() for id_ in ids[:10]) + "]"
