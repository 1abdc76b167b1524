"""Several clients at once on real clusters: deadlocks, one counter, invalidations, TLS."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import transaction
import ZODB
import zodburi
from transaction.interfaces import TransientError
from ZODB.Connection import TransactionMetaData
from ZODB.tests.ConflictResolution import PCounter
from ZODB.utils import p64

from neo.client import NEOStorage
from neo.client.errors import RefusedError
from tests.support.certificates import Authority, NodeFiles
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.peers import in_threads
from tests.zodb.conftest import GetFleet
from tests.zodb.fleet import Fleet


@pytest.fixture(params=["sqlite", "embedded"])
def cluster(fleets: GetFleet, request: pytest.FixtureRequest) -> Fleet:
    fleet = fleets(3, request.param, 0)
    fleet.start()
    return fleet


def test_one_counter_of_many_clients_loses_no_increment(cluster: Fleet) -> None:
    """Specification 23.4."""
    clients, increments = 4, 25
    db = ZODB.DB(cluster.storage())
    with db.transaction() as connection:
        connection.root.counter = PCounter()

    def increment() -> None:
        own = ZODB.DB(cluster.storage())
        for _ in range(increments):
            for attempt in transaction.TransactionManager().attempts(1000):
                with attempt as t:
                    connection = own.open(attempt.manager)
                    connection.root.counter.inc()
                    assert t is not None
                connection.close()
        own.close()

    assert in_threads(*[increment] * clients) == [None] * clients
    with db.transaction() as connection:
        connection.sync()
        assert connection.root.counter._value == clients * increments
    db.close()


def test_transactions_that_lock_in_opposite_orders_all_end(cluster: Fleet) -> None:
    """Each transaction stores objects of all three nodes in a random order: rebases resolve the
    deadlocks."""
    oids = [p64(n) for n in range(1, 13)]
    rounds = 30
    first = cluster.storage()
    t = TransactionMetaData()
    first.tpc_begin(t)
    for oid in oids:
        first.store(oid, None, b"0", "", t)
    first.tpc_vote(t)
    first.tpc_finish(t)
    committed = []

    def work(number: int) -> None:
        storage = cluster.storage(wait_timeout=PATIENCE_SECONDS)
        mine = oids[number:] + oids[:number]
        if number % 2:
            mine.reverse()
        done = 0
        while done < rounds:
            storage.sync()
            t = TransactionMetaData()
            storage.tpc_begin(t)
            try:
                for oid in mine[:6]:
                    _, serial = storage.load(oid)
                    storage.store(oid, serial, b"%d" % number, "", t)
                storage.tpc_vote(t)
            except TransientError:
                storage.tpc_abort(t)
            else:
                committed.append((storage.tpc_finish(t), mine[:6]))
                done += 1
        storage.close()

    workers = 4
    assert in_threads(*(lambda n=n: work(3 * n + n % 2) for n in range(workers))) == [None] * 4
    first.sync()
    for oid in oids:
        last = max((tid for tid, its in committed if oid in its), default=None)
        if last is not None:
            assert first.load(oid)[1] == last
    assert len(committed) == workers * rounds
    first.close()


def test_tls_from_end_to_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.node()
    with Cluster(storages=1, ca=files.ca, cert=files.cert, key=files.key) as cluster:
        factory, _ = zodburi.resolve_uri(cluster.uri)
        assert cluster.uri.startswith("neos://")
        db = ZODB.DB(factory())
        with db.transaction() as connection:
            connection.root.big = "x" * (1 << 20)
        results = in_threads(*[lambda: _read(db)] * 4)
        assert results == [1 << 20] * 4
        db.close()
        refused(cluster, "the peer uses TLS and this node does not: give all nodes ca, cert and key")
        foreign = Authority(tmp_path, "other").node()
        refused(cluster, "TLS failed: self-signed certificate in certificate chain; each node", foreign)
        # Only the node notices this, after the client's part of the handshake.
        foreign = foreign._replace(ca=files.ca)
        refused(cluster, "TLS failed: tlsv1 alert unknown ca; each node needs a certificate", foreign)
    with Cluster(storages=1) as cluster:
        refused(cluster, "this node uses TLS and the peer does not: give all nodes ca, cert", files)


def refused(cluster: Cluster, reason: str, files: NodeFiles | None = None) -> None:
    """An application whose objects do not fit gets an error, whatever it did last."""
    for _ in range(5):
        with pytest.raises(RefusedError, match=reason):
            NEOStorage(
                cluster.simple.masters,
                cluster.simple.name,
                wait_timeout=600.0,
                **({} if files is None else files._asdict()),
            )


def _read(db: ZODB.DB) -> int:
    manager = transaction.TransactionManager()
    connection = db.open(manager)
    connection.cacheMinimize()
    length = len(connection.root.big)
    connection.close()
    return length


def test_threads_of_one_storage_commit_at_once(cluster: Fleet) -> None:
    storage = cluster.storage()
    barrier = threading.Barrier(6)

    def work(number: int) -> bytes:
        serial = None
        barrier.wait(PATIENCE_SECONDS)
        for n in range(40):
            t = TransactionMetaData()
            storage.tpc_begin(t)
            storage.store(p64(number), serial, b"%d" % n, "", t)
            storage.tpc_vote(t)
            serial = storage.tpc_finish(t)
        assert serial is not None
        return serial

    tids = in_threads(*(lambda n=n: work(n) for n in range(1, 7)))
    assert [storage.load(p64(n)) for n in range(1, 7)] == [(b"39", tid) for tid in tids]
    assert storage.lastTransaction() == max(tids)
    storage.close()
