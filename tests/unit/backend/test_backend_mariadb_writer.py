"""MariaDB: what the writer shares, saves and waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from threading import Event
from typing import Any

import pytest

from neo.storage.backend.api import BackendFailure, Record
from neo.storage.backend.mariadb import writer as mariadb_writer
from neo.storage.backend.mariadb.link import Link
from tests.support.mariadb import Server
from tests.unit.backend.harness import NP, Harness, p64
from tests.unit.backend.mariadb import kill_writer


@contextmanager
def held_commit(backend: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A COMMIT is under way until the end of the block; gives the list of commits."""
    started, release = Event(), Event()
    commits: list[str] = []
    real = Link.flush

    def flush(link: Link) -> None:
        if b"COMMIT" in link._statements:
            commits.append("COMMIT")
            started.set()
            assert release.wait(60)
        real(link)

    monkeypatch.setattr(Link, "flush", flush)
    backend.engine.stored(lambda: None)
    assert started.wait(60)
    try:
        yield commits
    finally:
        release.set()


def test_calls_that_come_during_a_commit_share_the_next_one(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.33."""
    backend = mariadb.ready()
    mariadb.wait(backend.engine.stored)
    stored: list[int] = []
    with held_commit(backend, monkeypatch) as commits:
        for i in range(100):
            backend.tables.set_config("x", str(i))
            backend.engine.stored(lambda i=i: stored.append(i))
    mariadb.run_until(lambda: len(stored) == 100)
    assert len(commits) == 2, "the one that was under way, and one for all the others"
    assert stored == list(range(100))


def test_one_commit_of_an_object_takes_three_round_trips_of_the_writer_and_two_commits(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = mariadb.ready()
    mariadb.commit(backend, 10, {4: b"x"})
    mariadb.wait(backend.engine.stored)
    trips: list[list[bytes]] = []
    real = Link.flush

    def flush(link: Link) -> None:
        if link._statements:
            trips.append(link._statements[:])
        real(link)

    monkeypatch.setattr(Link, "flush", flush)
    mariadb.vote(backend, 20, {4: b"y"})
    mariadb.wait(backend.engine.stored)
    backend.commits.lock(p64(20), p64(20))
    mariadb.wait(backend.engine.stored)
    mariadb.unlock(backend, 20, 20)
    assert [trip[-1] == b"COMMIT" for trip in trips] == [True, True, False], trips


def test_reads_see_what_is_executed_while_a_commit_runs(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.33."""
    backend = mariadb.ready()
    mariadb.wait(backend.engine.stored)
    mariadb.commit(backend, 10, {4: b"x"})
    with held_commit(backend, monkeypatch):
        assert backend.reads.load(p64(4), None, None).data == b"x"


def test_a_full_queue_waits_for_the_server(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb_writer, "BYTES_MAX", 10_000)
    monkeypatch.setattr(mariadb_writer, "STATEMENTS_MAX", 3)
    backend = mariadb.ready()
    longest = 0
    for oid in range(100):
        mariadb.store_data(backend, oid, bytes(4000))
        backend.tables.set_config("x", str(oid))
        longest = max(longest, len(backend.engine._writer._jobs))
    assert longest <= 4
    assert mariadb.data_rows(backend) == 100


def test_a_full_queue_does_not_wait_for_a_server_that_is_gone(
    mariadb: Harness, mariadb_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb_writer, "STATEMENTS_MAX", 3)
    backend = mariadb.ready()
    kill_writer(backend, mariadb_server)
    for i in range(100):
        backend.tables.set_config("x", str(i))
    mariadb.run_until(lambda: mariadb.failures)
    with pytest.raises(BackendFailure):
        mariadb.store_data(backend, 1, b"x")


def test_a_writer_that_fails_in_an_unexpected_way_is_reported_and_acknowledges_nothing(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = mariadb.ready()

    def fail(link: Link) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(Link, "flush", fail)
    assert "no memory" in str(mariadb.failure(backend))
    with pytest.raises(BackendFailure, match="no memory"):
        backend.engine.drain()


def test_a_transaction_of_many_objects_is_voted_in_few_statements(mariadb: Harness) -> None:
    backend = mariadb.ready()
    mariadb.commit(backend, 10, dict.fromkeys(range(20_000), b"x"))
    assert len(backend.reads.oids(0, p64(0), 100_000)) == 6667


def test_objects_from_a_replica_are_written_in_few_statements(
    mariadb: Harness, mariadb_server: Server
) -> None:
    def statements() -> int:
        ((_, inserts),) = mariadb_server.query("SHOW GLOBAL STATUS LIKE 'Com_insert'")
        ((_, replaces),) = mariadb_server.query("SHOW GLOBAL STATUS LIKE 'Com_replace'")
        return int(str(inserts)) + int(str(replaces))

    backend = mariadb.ready()
    before = statements()
    for number in range(1000):
        data = b"%1000d" % number
        oid = p64(number * NP)
        backend.replication.add_object(oid, Record(p64(10), None, 0, sha1(data).digest(), data, None))
    mariadb.wait(backend.engine.stored)
    assert statements() - before < 20
    assert backend.reads.load(p64(NP), p64(10), None).data == b"%1000d" % 1
