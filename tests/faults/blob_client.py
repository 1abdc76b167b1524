"""One client that stores or reads one blob, or reads several all the time.

``python -m tests.faults.blob_client MASTERS NAME store|read BYTES`` prints the bytes by which its memory
rose. ``… share SECONDS --cache FOLDER --size BYTES --count N`` reads at random one of N blobs through a
cache, and prints how many: for these seconds, and on a busy machine until it has read N.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import closing
from random import Random

from ZODB.DB import DB

from neo.client import Storage
from neo.client.blobs import cache, eviction
from tests.faults.contents import Made, check_readable, put
from tests.support.memory import Process

#: Sizes of the blobs that processes read through a shared cache.
SHARED_BYTES = 10_000
#: Less than it takes to read all of them, so that files are evicted; much more than it takes to open one.
SPARED_SECONDS = 0.2
FRESH_SECONDS = 0.05


def large(size: int) -> dict[str, Made]:
    return {"large": Made("large", size)}


def shared(number: int) -> dict[str, Made]:
    return {f"shared {number}": Made(f"shared {number}", SHARED_BYTES + number)}


def transfer(db: DB, work: str, size: int) -> None:
    """Store or read one blob, and print how much memory that took."""
    with db.transaction() as connection:
        list(connection.root())
    process = Process(os.getpid())
    if work == "store":
        put(db, large(size))
    else:
        check_readable(db, large(size))
    print(process.above())


def share(db: DB, seconds: float, count: int) -> None:
    """Read random blobs, at least ``count``. Every read must be right."""
    cache.FRESH_SECONDS, eviction.SPARED_SECONDS = FRESH_SECONDS, SPARED_SECONDS
    choices, end, done = Random(os.getpid()), time.monotonic() + seconds, 0
    while time.monotonic() < end or done < count:
        check_readable(db, shared(choices.randrange(count)))
        db.cacheMinimize()  # the next read asks the storage again
        done += 1
    print(done)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("masters")
    parser.add_argument("name")
    parser.add_argument("work", choices=["store", "read", "share"])
    parser.add_argument("amount", type=float)
    parser.add_argument("--cache")
    parser.add_argument("--size", type=int)
    parser.add_argument("--count", type=int)
    a = parser.parse_args()
    options = {"blob_dir": a.cache, "blob_cache_size": a.size} if a.cache else {}
    with closing(DB(Storage(a.masters, a.name, **options))) as db:
        if a.work == "share":
            share(db, a.amount, a.count)
        else:
            transfer(db, a.work, int(a.amount))


if __name__ == "__main__":
    main()
