"""A process that commits to an embedded database, until it is killed.

``python -m tests.faults.embedded_writer FOLDER`` adds 1 to each of two counters in one transaction, again
and again, and prints their value when the commit is acknowledged.
"""

from __future__ import annotations

import sys

import ZODB

import neo.client


def main(path: str) -> None:
    db = ZODB.DB(neo.client.open(path))
    connection = db.open()
    root = connection.root()
    while True:
        value = root.get("a", 0) + 1
        assert value == root.get("b", 0) + 1
        root["a"] = root["b"] = value
        connection.transaction_manager.commit()
        print(value, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
