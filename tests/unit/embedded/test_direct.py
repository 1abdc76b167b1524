"""An embedded database is read by the thread that asks (specification 6.30)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import transaction
import ZODB
from persistent.mapping import PersistentMapping
from ZODB.POSException import POSKeyError
from ZODB.utils import p64

import neo.client
import neo.embedded
from neo.client.errors import RefusedError
from neo.client.history.transactions import transaction_information
from neo.embedded.machine import Machine
from neo.protocol.ids import add64
from neo.protocol.packets import AskObject
from neo.simple.conf import Shape, create
from tests.support.patience import wait_until


def machine_of(storage: neo.client.NEOStorage) -> Machine:
    machine = storage._session.host.direct
    assert isinstance(machine, Machine)
    return machine


@contextmanager
def nodes_stand_still(storage: neo.client.NEOStorage) -> Iterator[None]:
    """Inside the block, the thread of the nodes does nothing."""
    stands, go_on = threading.Event(), threading.Event()

    def stand(_: None) -> None:
        stands.set()
        assert go_on.wait(60)

    machine_of(storage).loop.put((stand, None))
    assert stands.wait(60)
    try:
        yield
    finally:
        go_on.set()


def fill(db: ZODB.DB, count: int) -> None:
    with db.transaction() as connection:
        for number in range(count):
            connection.root()[number] = PersistentMapping({"number": number})


def read_until_direct(storage: neo.client.NEOStorage) -> None:
    """Wait until what was committed can be read directly."""
    oid = p64(0)

    def direct() -> bool:
        with closing(neo.embedded.open(machine_of(storage).folder.path)) as other:
            before = add64(other.lastTransaction(), 1)
            ask = AskObject(oid, None, before)
            return machine_of(other).answer(other.replicas.view().nodes(oid), ask) is not None

    wait_until(direct, "the last transaction is not committed")


@pytest.mark.parametrize("storages", [1, 2])
def test_objects_are_read_while_the_nodes_do_other_work(tmp_path: Path, storages: int) -> None:
    """Loads, prefetches and the iteration over transactions, of one or several storage nodes."""
    create(tmp_path / "neo.conf", Shape(storages=storages))
    storage = neo.client.open(tmp_path, cache_size=0)
    with closing(ZODB.DB(storage)) as db:
        fill(db, 20)
        read_until_direct(storage)
        oids = [p64(number) for number in range(21)]
        before = add64(storage.lastTransaction(), 1)
        tids = [each.tid for each in storage.iterator()]
        with nodes_stand_still(storage):
            loaded = [storage.loadBefore(oid, before) for oid in oids]
            storage.prefetch(oids, before)
            assert all(found is not None for found in loaded)
            found = transaction_information(storage.replicas, tids)
            assert [each is not None and each.tid for each in found] == tids
        assert len(oids) == len({found[0] for found in loaded if found is not None})
        with pytest.raises(POSKeyError):
            storage.loadBefore(p64(999), before)


def test_each_thread_reads_what_any_thread_has_committed(tmp_path: Path) -> None:
    """A counter that each of four threads increments: a direct read that is too old would be a lost
    increment, or a view that goes back."""
    with closing(ZODB.DB(neo.client.open(tmp_path, cache_size=0))) as db:
        fill(db, 1)
        known = [0]
        wrong: list[str] = []

        def increment() -> None:
            manager = transaction.TransactionManager()
            with closing(db.open(manager)) as connection:
                counter = connection.root()[0]
                for _ in range(25):
                    for attempt in manager.attempts(1000):
                        with attempt:
                            least = known[0]
                            connection.cacheMinimize()
                            if counter["number"] < least:
                                wrong.append(f"{counter['number']} after {least}")
                            counter["number"] += 1
                    manager.begin()
                    known[0] = max(known[0], counter["number"])
                    manager.abort()

        threads = [threading.Thread(target=increment) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not wrong
        with db.transaction() as connection:
            assert connection.root()[0]["number"] == 100


def test_the_child_of_a_fork_reads_nothing(tmp_path: Path) -> None:
    """Its copy of a connection must not be used."""
    with closing(ZODB.DB(neo.client.open(tmp_path, cache_size=0))) as db:
        fill(db, 1)
        storage = db.storage
        read_until_direct(storage)
        before = add64(storage.lastTransaction(), 1)
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            said = b"read"
            try:
                storage.loadBefore(p64(0), before)
            except RefusedError as e:
                said = str(e).encode()
            finally:
                os.write(writing, said)
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert b"before it forked" in pipe.read()
        os.waitpid(pid, 0)
        assert storage.loadBefore(p64(0), before) is not None
