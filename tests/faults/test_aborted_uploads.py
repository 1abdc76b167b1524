"""A storage node is killed right after a large upload was aborted, while clients go on storing.

Contents of an aborted upload are detached a while after its values are deleted: after a crash in between,
the next process does it in steps, while clients store. What they store must not get the ids of those
values, nor their contents (specification 14.46, 14.47).

``NEO_ABORT_ROUNDS`` and ``NEO_ABORT_BLOBS`` choose a longer run, with larger uploads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZODB.blob import Blob
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB
from ZODB.utils import z64

from tests.faults.contents import Made
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS

ROUNDS = int(os.environ.get("NEO_ABORT_ROUNDS", "3"))
#: Blobs of an aborted upload. With thousands the next process detaches them while clients store.
ABORTED = int(os.environ.get("NEO_ABORT_BLOBS", "200"))
WRITERS = 2
#: Of a transaction: one of each in every partition.
PARTITIONS = 12
SIZE = 1000
#: A blob, as ZODB stores it.
RECORD = b"\x80\x03cZODB.blob\nBlob\nq\x01.\x80\x03N."
#: Contents whose value, if there is one, does not refer to them: its id was given twice.
TWICE = (
    "SELECT data_id FROM content c JOIN data d ON d.id=c.data_id WHERE instr(d.value, c.checksum)=0"
)
#: Values to which revisions of several objects refer, although nothing is kept once only.
SHARED = (
    "SELECT data_id FROM obj WHERE data_id IS NOT NULL GROUP BY data_id HAVING COUNT(DISTINCT oid)>1"
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=1, partitions=PARTITIONS) as running:
        yield running


def upload(storage: Any, folder: Path) -> TransactionMetaData:
    """Upload many small blobs, and vote."""
    meta = TransactionMetaData()
    storage.tpc_begin(meta)
    for number in range(ABORTED):
        path = folder / f"{number}"
        path.write_bytes(b"aborted %d" % number)
        storage.storeBlob(storage.new_oid(), z64, RECORD, str(path), "", meta)
    storage.tpc_vote(meta)
    return meta


def abort_upload(cluster: Cluster, folder: Path) -> None:
    """Abort an upload after its vote. A transaction that got its ids before commits, so that the abort is
    durable, and the aborted ids are the last ones that were given."""
    options = {"wait_timeout": PATIENCE_SECONDS}
    with closing(cluster.storage(**options)) as one, closing(cluster.storage(**options)) as other:
        before = TransactionMetaData()
        other.tpc_begin(before)
        other.store(other.new_oid(), z64, RECORD, "", before)
        other.tpc_vote(before)
        one.tpc_abort(upload(one, folder))
        other.tpc_finish(before)


def made(name: str, slot: int) -> Made:
    return Made(f"{name} {slot}", SIZE)


def store(db: DB, name: str) -> None:
    """Store blobs and other objects in all partitions, as soon as the node is back."""
    while True:
        try:
            with db.transaction() as connection:
                kept = connection.root()[name.partition(" ")[0]]
                for slot in range(PARTITIONS):
                    blob = Blob()
                    made(name, slot).write(blob)
                    kept[name, slot] = PersistentMapping(name=name, blob=blob)
            return
        except TransientError:
            pass  # the node was killed during this transaction


def problems(connection: Any, names: list[str]) -> list[str | None]:
    """Read what was stored. Return how it differs."""
    found = []
    for name in names:
        for slot in range(PARTITIONS):
            item = connection.root()[name.partition(" ")[0]][name, slot]
            assert item["name"] == name
            found.append(made(name, slot).problem(item["blob"]))
    return [problem for problem in found if problem is not None]


@pytest.mark.timeout(600)
def test_after_an_aborted_upload_a_killed_node_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    names = []
    with ExitStack() as stack:
        dbs = [
            stack.enter_context(closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))))
            for _ in range(WRITERS)
        ]
        threads = stack.enter_context(ThreadPoolExecutor(WRITERS))
        with dbs[0].transaction() as connection:
            for writer in range(WRITERS):
                connection.root()[f"writer{writer}"] = PersistentMapping()
        for number in range(ROUNDS):
            abort_upload(cluster, tmp_path)
            cluster.simple.kill("storage1")
            stored = [f"writer{writer} {number}" for writer in range(WRITERS)]
            waiting = [threads.submit(store, db, name) for db, name in zip(dbs, stored, strict=True)]
            cluster.simple.restart("storage1")
            for future in waiting:
                future.result(PATIENCE_SECONDS)
            names += stored
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        with db.transaction() as connection:
            assert problems(connection, names) == []
    assert cluster.simple.terminate("storage1") == 0
    assert cluster.query("storage1", TWICE) == []
    assert cluster.query("storage1", SHARED) == []
