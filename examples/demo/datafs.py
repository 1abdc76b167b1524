"""Copy a given Data.fs, and answer questions about any database.

No class of the application is imported: only the class name of a record is read.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from heapq import heappush, heapreplace
from typing import Any, NamedTuple

from persistent.TimeStamp import TimeStamp
from ZODB.POSException import POSKeyError
from ZODB.utils import get_pickle_metadata, load_current, z64


def has_copy(storage: Any, source: Any) -> bool:
    """Return whether a storage has the source's newest root object and is at least as new."""
    data, serial = load_current(source, z64)
    try:
        same: bool = storage.loadSerial(z64, serial) == data
    except POSKeyError:
        return False
    return same and bool(storage.lastTransaction() >= source.lastTransaction())


class Inventory(NamedTuple):
    """The current objects of a database. ``biggest``: (bytes of the record, oid, class), descending."""

    objects: int
    size: int
    classes: list[tuple[str, int, int]]  # (class, objects, bytes), descending by objects
    biggest: list[tuple[int, bytes, str]]


def inventory(storage: Any, count: int) -> Inventory:
    """Read each current object once; memory grows with the number of classes only."""
    number: Counter[str] = Counter()
    size: Counter[str] = Counter()
    biggest: list[tuple[int, bytes, str]] = []
    position = None
    while True:
        oid, _, data, position = storage.record_iternext(position)
        name = class_of(data)
        number[name] += 1
        size[name] += len(data)
        entry = (len(data), oid, name)
        if len(biggest) < count:
            heappush(biggest, entry)
        elif entry > biggest[0]:
            heapreplace(biggest, entry)
        if position is None:
            break
    classes = [(name, n, size[name]) for name, n in number.most_common(count)]
    return Inventory(number.total(), size.total(), classes, sorted(biggest, reverse=True))


class Activity(NamedTuple):
    """Changes by day and by user, as (name, transactions), descending."""

    transactions: int
    days: list[tuple[str, int]]
    users: list[tuple[str, int]]


def activity(storage: Any, count: int) -> Activity:
    """Count the transactions per day (UTC) and per user."""
    days: Counter[str] = Counter()
    users: Counter[str] = Counter()
    for record in storage.iterator():
        seconds = TimeStamp(record.tid).timeTime()
        days[datetime.fromtimestamp(seconds, UTC).date().isoformat()] += 1
        users[record.user.decode(errors="replace").strip() or "(no user)"] += 1
    return Activity(days.total(), days.most_common(count), users.most_common(count))


def class_of(data: bytes) -> str:
    """Return the dotted class name of a record without importing the class."""
    module, name = get_pickle_metadata(data) if data else ("", "")
    return f"{module}.{name}" if module else name or "(unreadable)"
