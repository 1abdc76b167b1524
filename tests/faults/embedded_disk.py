"""An embedded database on a small disk that is full for a while.

``python -m tests.faults.embedded_disk FOLDER`` mounts the disk on the folder. Run it by
``unshare --mount``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ZODB
from ZODB.POSException import POSError

import neo.client
from tests.faults.small_disk import Ballast, mount
from tests.support.patience import PATIENCE_SECONDS, Deadline

DISK_BYTES = 64 << 20
DATA_BYTES = 256 << 10


def main(path: str) -> None:
    folder = Path(path)
    mount(folder, DISK_BYTES)
    db = ZODB.DB(neo.client.open(folder / "db", wait_timeout=PATIENCE_SECONDS))
    acknowledged: dict[int, bytes] = {}

    def write(number: int, connection: Any) -> None:
        data = os.urandom(DATA_BYTES)
        connection.root()[number] = data
        connection.transaction_manager.commit()
        acknowledged[number] = data

    connection = db.open()
    write(0, connection)
    ballast = Ballast(folder)
    ballast.load()
    failure: Exception | None = None
    for number in range(1, DISK_BYTES // DATA_BYTES):
        try:
            write(number, connection)
        except POSError as e:
            connection.transaction_manager.abort()
            failure = e
            break
    assert failure is not None, "the disk is not full"
    ballast.drop()
    deadline = Deadline()
    while True:  # the node goes on by itself
        try:
            write(1000, connection)
            break
        except POSError:
            connection.transaction_manager.abort()
            assert not deadline.passed()
            deadline.pause()
    for again in range(2):
        found = connection.root()
        assert all(found[number] == data for number, data in acknowledged.items())
        connection.close()
        db.close()
        if not again:
            db = ZODB.DB(neo.client.open(folder / "db"))
            connection = db.open()
    print("all is well", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
