"""An application on gevent: ``python -m tests.zodb.green_client URI``.

Exits with 0 on success. It runs in a process of its own, because gevent replaces blocking calls for
good.
"""

# ruff: noqa: E402, I001  gevent comes first.
from tests.support.patience import PATIENCE_SECONDS
from gevent import monkey

monkey.patch_all()

import os
import sys
import time
from typing import Any

import gevent
import transaction
import ZODB
import zodburi
from gevent.event import Event
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.tests.ConflictResolution import PCounter
from ZODB.utils import p64

GREENLETS, COMMITS = 100, 3
#: Longest delay of a greenlet that only sleeps, but for one, in which the machine may have stood still.
GAP_SECONDS = 10.0


def open_storage() -> Any:
    return zodburi.resolve_uri(sys.argv[1])[0]()


def all_of(*greenlets: Any) -> None:
    """Wait until greenlets end, each without an exception."""
    with gevent.Timeout(PATIENCE_SECONDS):
        gevent.joinall(greenlets, raise_error=True)


def increment(db: ZODB.DB, number: int) -> None:
    for _ in range(COMMITS):
        for attempt in transaction.TransactionManager().attempts(1000):
            with attempt:
                connection = db.open(attempt.manager)
                connection.cacheMinimize()
                connection.root.counter.inc()
                connection.root.own[number]["count"] += 1
            connection.close()


def heartbeat(gaps: list[float]) -> None:
    while True:
        before = time.monotonic()
        gevent.sleep(0.01)
        gaps.append(time.monotonic() - before)


def a_hundred_greenlets(db: ZODB.DB) -> None:
    with db.transaction() as connection:
        connection.root.counter = PCounter()
        connection.root.counter.inc()
        connection.root.own = PersistentMapping()
        for number in range(GREENLETS):
            connection.root.own[number] = PersistentMapping(count=0)
    gaps: list[float] = []
    heart = gevent.spawn(heartbeat, gaps)
    all_of(*(gevent.spawn(increment, db, number) for number in range(GREENLETS)))
    heart.kill()
    *_, second, longest = sorted(gaps)
    assert len(gaps) > 10 and second < GAP_SECONDS, (len(gaps), second, longest)
    with db.transaction() as connection:
        connection.sync()
        assert connection.root.counter._value == 1 + GREENLETS * COMMITS
        counts = [own["count"] for own in connection.root.own.values()]
        assert counts == [COMMITS] * GREENLETS


def one_waits_for_the_lock_of_another(storage: Any) -> None:
    """All greenlets use one connection per node: one that waits must let the others run."""
    oid, voted, go_on = p64(2**40), Event(), Event()
    storage.new_oid()

    def commit(serial: bytes, wait: bool) -> None:
        t = TransactionMetaData()
        storage.tpc_begin(t)
        storage.store(oid, serial, b"data %d" % wait, "", t)
        storage.tpc_vote(t)
        if wait:
            voted.set()
            go_on.wait()
        tids.append(storage.tpc_finish(t))

    def later() -> None:
        voted.wait()
        try:
            commit(bytes(8), False)
        except transaction.interfaces.TransientError:
            refused.append(True)

    def reader() -> None:
        voted.wait()
        for _ in range(20):
            storage.sync()
            gevent.sleep(0.005)
        go_on.set()

    tids: list[bytes] = []
    refused: list[bool] = []
    all_of(gevent.spawn(commit, bytes(8), True), gevent.spawn(later), gevent.spawn(reader))
    assert len(tids) == 1 and refused == [True], (tids, refused)
    assert storage.load(oid) == (b"data 1", tids[0])


def an_idle_client_hears_of_commits(db: ZODB.DB) -> None:
    other = ZODB.DB(open_storage())
    with other.transaction() as connection:
        connection.root.news = 1
    with gevent.Timeout(PATIENCE_SECONDS):
        while db.lastTransaction() < other.lastTransaction():
            gevent.sleep(0.01)
    with db.transaction() as connection:
        assert connection.root.news == 1
    other.close()


def a_child_of_a_fork_has_connections_of_its_own(db: ZODB.DB) -> None:
    """All greenlets continue in the child, also those of the client that wait for the parent's
    descriptors."""
    pid = os.fork()
    if pid == 0:
        with db.transaction() as connection:
            connection.root.news += 1
        gevent.sleep(0.1)
        os._exit(0)
    with gevent.Timeout(PATIENCE_SECONDS):
        assert os.waitpid(pid, 0) == (pid, 0)
        while True:
            with db.transaction() as connection:
                if connection.root.news == 2:
                    return
            gevent.sleep(0.01)


def main() -> None:
    db = ZODB.DB(open_storage(), pool_size=GREENLETS)
    a_hundred_greenlets(db)
    one_waits_for_the_lock_of_another(db.storage)
    an_idle_client_hears_of_commits(db)
    a_child_of_a_fork_has_connections_of_its_own(db)
    db.close()
    print("all is well")


if __name__ == "__main__":
    main()
