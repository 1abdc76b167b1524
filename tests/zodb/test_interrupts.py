"""Exceptions from outside at random moments, on a real cluster and on an embedded database: the other
threads never fail."""

from __future__ import annotations

import ctypes
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle, zodb_unpickle
from ZODB.utils import z64

from neo.client import NEOStorage
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.seeds import seed
from tests.zodb.conftest import GetFleet
from tests.zodb.fleet import Fleet

ACCOUNTS = 12
EACH = 100
INTERRUPTS = 300
#: Time of an exception after the beginning of a transaction.
LATEST_SECONDS = 0.006
#: Of the client. A call that waits for a lock which an interrupted one left is seen before.
WAIT_SECONDS = 4 * PATIENCE_SECONDS


class Interrupted(BaseException):
    pass


class Bank:
    """Accounts in one storage, used by several threads."""

    def __init__(self, storage: NEOStorage) -> None:
        self.storage = storage
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        self.accounts = [storage.new_oid() for _ in range(ACCOUNTS)]
        for oid in self.accounts:
            storage.store(oid, z64, zodb_pickle(MinPO(EACH)), "", transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)

    def transfer(self, transaction: TransactionMetaData, choice: random.Random) -> None:
        """Transfer between accounts. Raise ConflictError; abort the transaction after any exception."""
        storage = self.storage
        source, target = choice.sample(self.accounts, 2)
        storage.prefetch([source, target], b"\x7f" + b"\xff" * 7)
        storage.tpc_begin(transaction)
        for oid, amount in (source, -1), (target, 1):
            data, serial = storage.load(oid)
            data = zodb_pickle(MinPO(zodb_unpickle(data).value + amount))
            storage.store(oid, serial, data, "", transaction)
        storage.tpc_vote(transaction)
        storage.tpc_finish(transaction)

    def attempt(self, choice: random.Random) -> bool:
        """Transfer once. Return False after a conflict."""
        transaction = TransactionMetaData()
        try:
            self.transfer(transaction, choice)
            return True
        except ConflictError:
            return False
        finally:
            self.storage.tpc_abort(transaction)


@contextmanager
def others(bank: Bank) -> Iterator[None]:
    """Two threads that transfer meanwhile, and must never fail."""
    over = threading.Event()
    failed: list[BaseException] = []
    done = [0, 0]

    drawn = seed("INTERRUPT")

    def work(n: int) -> None:
        choice = random.Random(f"{drawn}/{n}")
        try:
            while not over.is_set():
                done[n] += bank.attempt(choice)
        except BaseException as e:  # noqa: BLE001 - raised by the test
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a call waits"
    if failed:
        raise failed[0]
    assert all(done), "a thread never committed"


def check(fleet: Fleet, bank: Bank, channels: list[Any]) -> None:
    """Check that nothing is lost, locked or stale, and that no connection was made again."""
    storage = bank.storage
    assert storage.load(bank.accounts[0])
    assert channels == connections(storage), "a connection ended"
    other = fleet.storage()
    try:
        transaction = TransactionMetaData()
        other.tpc_begin(transaction)
        total = 0
        for oid in bank.accounts:
            data, serial = other.load(oid)
            storage.sync()
            assert storage.load(oid) == (data, serial), "a stale read"
            total += zodb_unpickle(data).value
            other.store(oid, serial, data, "", transaction)
        assert total == ACCOUNTS * EACH
        other.tpc_vote(transaction)
        tid = other.tpc_finish(transaction)
        # No other thread uses the connections meanwhile.
        wait_until(lambda: storage.lastTransaction() == tid, "no invalidation arrives", poll=0.001)
    finally:
        other.close()


def connections(storage: NEOStorage) -> list[Any]:
    session = storage._session
    nids = sorted(storage.replicas.view().addresses)
    return [session.master.channel(), *map(session.storages.channel, nids)]


@pytest.fixture(params=["sqlite", "embedded"])
def bank(fleets: GetFleet, request: pytest.FixtureRequest) -> Iterator[tuple[Fleet, Bank]]:
    fleet = fleets(3, request.param, 0)
    fleet.start()
    storage = fleet.storage(cache_size=1 << 20, wait_timeout=WAIT_SECONDS)
    yield fleet, Bank(storage)
    storage.close()


def until_hit(work: Callable[[], Any]) -> None:
    """Work, and wait for the exception if it comes later. It does not come if ZODB's conflict
    resolution swallowed it."""
    work()
    deadline = time.monotonic() + LATEST_SECONDS + 0.1
    while time.monotonic() < deadline:
        time.sleep(0.0001)


def test_signals_whose_handler_raises_in_the_main_thread(bank: tuple[Fleet, Bank]) -> None:
    fleet, accounts = bank
    channels = connections(accounts.storage)
    choice = random.Random(seed("INTERRUPT"))
    hits = 0

    def raise_it(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, raise_it)
    try:
        with others(accounts):
            while hits < INTERRUPTS:
                transaction = TransactionMetaData()
                try:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, choice.uniform(0.0001, LATEST_SECONDS))
                        until_hit(lambda t=transaction: accounts.transfer(t, choice))
                    except ConflictError:
                        until_hit(lambda: None)
                except Interrupted:
                    hits += 1
                accounts.storage.tpc_abort(transaction)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    check(fleet, accounts, channels)


def test_asynchronous_exceptions_in_some_threads(bank: tuple[Fleet, Bank]) -> None:
    fleet, accounts = bank
    channels = connections(accounts.storage)
    left = threading.Semaphore(INTERRUPTS)
    hits: list[int] = []
    failed: list[BaseException] = []

    drawn = seed("INTERRUPT")

    def victim(number: int) -> None:
        choice = random.Random(f"{drawn}/victim {number}")
        me = ctypes.c_ulong(threading.get_ident())

        def shoot() -> None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(Interrupted))

        while left.acquire(blocking=False):
            transaction = TransactionMetaData()
            timer = threading.Timer(choice.uniform(0.0001, LATEST_SECONDS), shoot)
            try:
                try:
                    timer.start()
                    accounts.transfer(transaction, choice)
                except ConflictError:
                    pass
                until_hit(timer.join)
            except Interrupted:
                hits.append(threading.get_ident())
            except BaseException as e:  # noqa: BLE001 - raised by the test
                failed.append(e)
                return
            accounts.storage.tpc_abort(transaction)

    victims = [threading.Thread(target=victim, args=(number,)) for number in range(2)]
    with others(accounts):
        for thread in victims:
            thread.start()
        for thread in victims:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
    if failed:
        raise failed[0]
    assert len(hits) > INTERRUPTS / 2
    check(fleet, accounts, channels)
