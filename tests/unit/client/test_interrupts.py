"""An exception from outside at any instruction of a call costs only that call.

With NEO_EVERY_BOUNDARY in the environment all instructions are tried, else a sample.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData

from neo.client import NEOStorage
from neo.client.commit.participants import Participants
from neo.protocol.ids import p64
from neo.protocol.packets import AskRebaseTransaction, InvalidateObjects, NotifyDeadlock, Ping, Pong
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.boundaries import count, interrupt
from tests.unit.client.scripted import NAME
from tests.unit.client.stubborn import Client, Stubborn

#: Instructions of each call that are tried in the short form.
SAMPLE = 24


@pytest.fixture
def client() -> Iterator[Client]:
    cluster = Stubborn()
    try:
        # A call that waits for what an interrupted one left never ends in time.
        storage = NEOStorage(cluster.masters, NAME, wait_timeout=4 * PATIENCE_SECONDS)
        try:
            client = Client(cluster, storage)
            client.channels()
            yield client
        finally:
            storage.close()
    finally:
        cluster.close()


def everywhere(
    client: Client,
    prepare: Callable[[], Callable[[], Any]],
    check: Callable[[str], None] = lambda where: None,
) -> None:
    """Interrupt the call that ``prepare`` returns, at each instruction, or at a sample.
    ``check(where)`` runs before the client's own checks."""
    total = 0
    for _ in range(2):
        total = max(total, count(prepare()))
        check("without an exception")
    client.check("without an exception")
    points = list(range(total))
    if "NEO_EVERY_BOUNDARY" not in os.environ and total > SAMPLE:
        points = sorted(random.Random(total).sample(points, SAMPLE))
    hit = 0
    for at in points:
        where = interrupt(prepare(), at)
        if where is not None:
            hit += 1
        where = f"point {at} of {total}: {where}"
        check(where)
        client.check(where)
    # The number of points varies with the messages that arrive together.
    assert hit > 0.8 * len(points)


def test_load(client: Client) -> None:
    def prepare() -> Callable[[], Any]:
        oid = client.fresh()
        return lambda: client.storage.load(oid)

    everywhere(client, prepare)


def test_prefetch(client: Client) -> None:
    def prepare() -> Callable[[], Any]:
        oids = [client.fresh() for _ in range(5)]
        return lambda: client.storage.prefetch(oids, p64(1 << 60))

    everywhere(client, prepare)


class Transaction:
    """A transaction on two objects, as a thread of ZODB makes it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.metadata = TransactionMetaData()
        self.oids = [client.fresh(), client.fresh()]
        self.instance = client.adapter.new_instance()
        self.instance.poll_invalidations()

    def begin(self) -> None:
        self.instance.tpc_begin(self.metadata)

    def store(self) -> None:
        for oid in self.oids:
            serial, _ = self.client.cluster.current(oid)
            self.instance.store(oid, serial, b"new" + oid, "", self.metadata)

    def vote(self) -> None:
        self.instance.tpc_vote(self.metadata)

    def finish(self) -> None:
        self.instance.tpc_finish(self.metadata)

    def abort(self) -> None:
        self.instance.tpc_abort(self.metadata)

    def over(self) -> None:
        """End the transaction as the package ``transaction`` does, in any state."""
        self.abort()
        self.instance.release()


STEPS = ("begin", "store", "vote", "finish", "abort")


@pytest.mark.parametrize("step", STEPS)
def test_a_transaction(client: Client, step: str) -> None:
    transactions: list[Transaction] = []

    def prepare() -> Callable[[], Any]:
        transaction = Transaction(client)
        for before in STEPS[: STEPS.index("vote" if step == "abort" else step)]:
            getattr(transaction, before)()
        transactions.append(transaction)
        call: Callable[[], Any] = getattr(transaction, step)
        return call

    def check(where: str) -> None:
        transaction = transactions.pop()
        transaction.over()
        if step == "finish":
            for oid in transaction.oids:
                _told(client, oid, where)

    everywhere(client, prepare, check)


def test_an_abort_that_is_interrupted_twice_ends_with_the_next_transaction(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks would else stay as long as the connections of the client."""
    transaction = Transaction(client)
    transaction.begin()
    transaction.store()
    abort, left = Participants.abort, [KeyboardInterrupt, KeyboardInterrupt]

    def interrupted(self: Participants, ttid: bytes) -> None:
        if left:
            raise left.pop()
        abort(self, ttid)

    monkeypatch.setattr(Participants, "abort", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transaction.abort()
    assert client.cluster.locks()
    later = Transaction(client)
    later.begin()
    later.over()
    client.check("after the next transaction")


def _told(client: Client, oid: bytes, where: str) -> None:
    """Wait for the outcome; other connections of the process must see a commit."""
    client.storage.sync()
    serial, data = client.cluster.current(oid)
    if data == b"new" + oid:
        assert client.storage.lastTransaction() >= serial, where
        assert client.storage.load(oid) == (data, serial), where
        for other in client.others:
            found = other._invalidations
            assert found is None or oid in found, f"{where}: another connection reads stale objects"


def test_an_application_that_fails_in_the_callback_of_tpc_finish(client: Client) -> None:
    transaction = Transaction(client)
    for step in STEPS[:3]:
        getattr(transaction, step)()
    told: list[bytes] = []

    def callback(tid: bytes) -> None:
        told.append(tid)
        raise KeyError("of the application")

    with pytest.raises(KeyError):
        client.storage.tpc_finish(transaction.metadata, callback)
    assert len(told) == 1
    assert client.storage.lastTransaction() == told[0]
    for oid in transaction.oids:
        _told(client, oid, "the callback")
    transaction.over()
    client.check("the callback")


class Copied:
    """A storage to copy from, with one new transaction."""

    def __init__(self, client: Client) -> None:
        client.cluster.next_ttid += 1
        self.tid, self.status = p64(client.cluster.next_ttid), " "
        self.user = self.description = self.extension_bytes = b""
        self._oids = [client.fresh(), client.fresh()]

    def iterator(self) -> Iterator[Copied]:
        yield self

    def __iter__(self) -> Iterator[Any]:
        for oid in self._oids:
            yield SimpleNamespace(oid=oid, tid=self.tid, data=b"new" + oid, data_txn=None)


def test_a_copy_of_transactions(client: Client) -> None:
    """The copying method aborts what it began, because the application does not know the
    transaction."""

    def prepare() -> Callable[[], Any]:
        copied = Copied(client)
        return lambda: client.storage.copyTransactionsFrom(copied)

    everywhere(client, prepare)


def test_invalidations_that_the_interrupted_thread_reads_for_all(client: Client) -> None:
    """Specification 16.13."""
    cluster = client.cluster
    sent: list[tuple[bytes, bytes]] = []

    def ping(m: Ping) -> Pong:
        while sent and sent[-1] not in told:
            tid, oid = sent[-1]
            told.append((tid, oid))
            cluster.tell(InvalidateObjects(tid, [oid]))
        return Pong()

    told: list[tuple[bytes, bytes]] = []
    cluster.master.answers[Ping] = ping

    def prepare() -> Callable[[], Any]:
        oid = client.fresh()
        client.storage.load(oid)
        cluster.next_tid += 1
        cluster.last_tid = tid = p64(cluster.next_tid)
        cluster.revisions[oid] = [(tid, b"changed")]
        sent.append((tid, oid))
        return client.storage.sync

    def check(where: str) -> None:
        client.storage.sync()
        tid, oid = sent[-1]
        assert client.storage.lastTransaction() == tid, where
        assert client.storage.load(oid) == (b"changed", tid), where
        for other in client.others:
            found = other._invalidations
            assert found is None or oid in found, where

    everywhere(client, prepare, check)


def test_a_deadlock_of_another_thread_that_the_interrupted_one_reads(client: Client) -> None:
    """All storage nodes of that transaction are sent the new locking tid."""
    cluster = client.cluster
    deadlocks: list[NotifyDeadlock] = []

    def ping(m: Ping) -> Pong:
        while deadlocks:
            cluster.tell(deadlocks.pop())
        return Pong()

    cluster.master.answers[Ping] = ping
    transactions: list[Transaction] = []

    def prepare() -> Callable[[], Any]:
        transaction = Transaction(client)
        transaction.begin()
        transaction.store()
        transactions.append(transaction)
        ttid = client.storage._begun(transaction.metadata).ttid
        deadlocks.append(NotifyDeadlock(ttid, p64(int.from_bytes(ttid, "big") + 10**6)))
        return client.storage.sync

    def check(where: str) -> None:
        client.storage.sync()
        transaction = transactions.pop()
        client.in_another_thread(transaction.vote)
        for node in cluster.storages.values():
            assert node.asked(AskRebaseTransaction), where
        client.in_another_thread(transaction.finish)
        transaction.over()

    everywhere(client, prepare, check)
    assert threading.active_count() < 50
