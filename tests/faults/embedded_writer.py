"""A process whose threads commit to an embedded database, until it is killed.

``python -m tests.faults.embedded_writer FOLDER``: each thread adds 1 to each of its counters in one
transaction, again and again, and prints its number and their value when the commit is acknowledged.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import NoReturn

import transaction
import ZODB
from persistent.mapping import PersistentMapping

import neo.client

WRITERS = 3
#: Counters of each writer, in different partitions.
COUNTERS = 2


def prepare(db: ZODB.DB) -> None:
    """Create the counters, all in one transaction, unless they exist."""
    with db.transaction() as connection:
        root = connection.root()
        if "counters" not in root:
            root["counters"] = [
                [PersistentMapping(value=0) for _ in range(COUNTERS)] for _ in range(WRITERS)
            ]


def values(connection: ZODB.Connection.Connection, writer: int) -> set[int]:
    """Return the values of a writer's counters in the connection's snapshot: {0} before they exist."""
    counters = connection.root().get("counters")
    return {counter["value"] for counter in counters[writer]} if counters else {0}


def write_for_ever(db: ZODB.DB, writer: int) -> NoReturn:
    """Write until the process is killed."""
    manager = transaction.TransactionManager(explicit=True)
    manager.begin()
    connection = db.open(manager)
    while True:
        (value,) = values(connection, writer)
        for counter in connection.root()["counters"][writer]:
            counter["value"] = value + 1
        manager.commit()
        # One system call writes a line, so that a reader sees all of it or nothing.
        os.write(sys.stdout.fileno(), b"%d %d\n" % (writer, value + 1))
        manager.begin()


def end_process(arguments: threading.ExceptHookArgs) -> NoReturn:
    """End the process, so that the test hears of the exception of a thread."""
    traceback.print_exception(arguments.exc_value)
    os._exit(1)


def main(path: str) -> None:
    threading.excepthook = end_process
    db = ZODB.DB(neo.client.open(path))
    prepare(db)
    for writer in range(1, WRITERS):
        threading.Thread(target=write_for_ever, args=(db, writer), daemon=True).start()
    write_for_ever(db, 0)


if __name__ == "__main__":
    main(sys.argv[1])
