"""An application that forks while it has an embedded database open.

``python -m tests.faults.embedded_fork FOLDER``: the child is told that it must not use the database; it
ends as a program does, while the parent commits; another child lives longer than the parent.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing

import ZODB

import neo.client
from neo.client.errors import RefusedError

TOLD = "embedded database cannot be used by the child of a fork"
#: Commits of the parent while a child ends.
COMMITS = 30


def commit(db: ZODB.DB, value: int) -> None:
    with db.transaction() as connection:
        connection.root()["value"] = value


def refused(work: Callable[[], object], words: str) -> None:
    """Check that ``work`` raises RefusedError with these words."""
    try:
        work()
    except RefusedError as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"{work} was not refused")


def child(db: ZODB.DB, path: str) -> None:
    storage = db.storage
    assert storage.lastTransaction()
    refused(storage.sync, TOLD)
    refused(lambda: storage.load(b"\x7f" * 8), TOLD)
    refused(lambda: commit(db, -1), TOLD)
    refused(lambda: neo.client.open(path), TOLD)
    storage.close()


def main(path: str) -> None:
    db = ZODB.DB(neo.client.open(path))
    commit(db, 0)

    def write() -> None:
        for value in range(COMMITS):
            commit(db, value)

    writing = threading.Thread(target=write)
    writing.start()
    forked = os.fork()
    if forked == 0:
        child(db, path)
        sys.exit(0)  # with all that the interpreter does at the end
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    writing.join()
    with db.transaction() as connection:
        assert connection.root()["value"] == COMMITS - 1
    db.close()

    # A lock that the child of a fork has open is not kept by it.
    db = ZODB.DB(neo.client.open(path))
    waits, ends = os.pipe()
    if (late := os.fork()) == 0:
        os.close(ends)
        os.read(waits, 1)
        db.close()
        refused(lambda: neo.client.open(path), TOLD)  # also after the parent has closed it
        os._exit(0)
    os.close(waits)
    db.close()
    with closing(ZODB.DB(neo.client.open(path))) as again, again.transaction() as connection:
        assert connection.root()["value"] == COMMITS - 1
    os.close(ends)
    assert os.waitstatus_to_exitcode(os.waitpid(late, 0)[1]) == 0
    print("all is well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
