"""A PostgreSQL database as a branch: sessions, decisions by xid, and what a crash leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

from neo.client import xa
from neo.client.xa.branches import DBAPISession
from tests.support.postgres import Server

XID, OTHER = b"neo-xa-" + b"0" * 32, b"neo-xa-" + b"1" * 32


@pytest.fixture
def branch(postgres: Server) -> Iterator[xa.DBAPIBranch]:
    postgres.query("CREATE TABLE account (name text PRIMARY KEY, money int)")
    branch = xa.DBAPIBranch("bank", postgres.connect)
    yield branch
    branch.close()


def insert(branch: xa.DBAPIBranch, xid: bytes, name: str = "jo") -> DBAPISession:
    session = branch.begin(xid)
    session.connection.execute("INSERT INTO account VALUES (%s, 5)", (name,))
    return session


def names(postgres: Server) -> list[str]:
    return [name for (name,) in postgres.query("SELECT name FROM account ORDER BY name")]


def test_work_is_committed_in_one_phase_or_in_two(branch: xa.DBAPIBranch, postgres: Server) -> None:
    insert(branch, XID).commit()
    assert names(postgres) == ["jo"]
    session = insert(branch, OTHER, "mo")
    session.prepare()
    assert names(postgres) == ["jo"] and [*branch.recover()] == [OTHER]
    session.commit()
    assert names(postgres) == ["jo", "mo"] and branch.recover() == {}


def test_work_is_rolled_back_before_and_after_it_is_prepared(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    insert(branch, XID).rollback()
    session = insert(branch, XID)
    session.prepare()
    session.rollback()
    assert names(postgres) == [] and branch.recover() == {}


@pytest.mark.parametrize("end", [DBAPISession.prepare, DBAPISession.commit])
def test_work_with_an_error_that_the_application_ignored_is_refused(
    branch: xa.DBAPIBranch, postgres: Server, end: Callable[[DBAPISession], None]
) -> None:
    """The server would roll it back in silence, while the other databases commit."""
    insert(branch, XID).commit()
    session = insert(branch, OTHER, "mo")
    with pytest.raises(psycopg.errors.UniqueViolation):
        session.connection.execute("INSERT INTO account VALUES ('jo', 5)")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        end(session)
    session.rollback()
    assert names(postgres) == ["jo"] and branch.recover() == {}


def test_connections_are_used_again(branch: xa.DBAPIBranch) -> None:
    first = branch.begin(XID)
    connection = first.connection
    first.rollback()
    second = branch.begin(OTHER)
    assert second.connection is connection
    second.rollback()


def test_what_is_prepared_outlives_the_session_and_is_decided_by_xid(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    for xid, name in ((XID, "jo"), (OTHER, "mo")):
        session = insert(branch, xid, name)
        session.prepare()
        session.leave()
    since = branch.recover()
    assert sorted(since) == [XID, OTHER]
    (now,) = postgres.query("SELECT extract(epoch FROM now())")[0]
    assert all(s is not None and 0 <= float(now) - s < 60 for s in since.values())
    branch.commit(XID)
    branch.rollback(OTHER)
    assert names(postgres) == ["jo"] and branch.recover() == {}
    with pytest.raises(psycopg.Error, match="does not exist"):
        branch.commit(XID)


def test_a_crash_of_the_server_keeps_what_is_prepared(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    session = insert(branch, XID)
    session.prepare()
    session.leave()
    postgres.kill()
    postgres.start()
    assert [*branch.recover()] == [XID]
    branch.commit(XID)
    assert names(postgres) == ["jo"]


def test_two_databases_of_a_server_have_xids_of_their_own(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    """The server takes an xid only once: the name of the database makes two of it."""
    other = xa.DBAPIBranch("shop", postgres.connect)
    for each, name in ((branch, "jo"), (other, "mo")):
        session = insert(each, XID, name)
        session.prepare()
        session.leave()
    assert [*branch.recover()] == [*other.recover()] == [XID]
    branch.commit(XID)
    assert branch.recover() == {} and [*other.recover()] == [XID]
    other.rollback(XID)


def test_transactions_of_another_database_of_the_server_are_not_listed(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    """A copy of the application for tests may use the same names. A resolver would roll back its own."""
    postgres.query("DROP DATABASE IF EXISTS staging", "CREATE DATABASE staging")
    staging = xa.DBAPIBranch("bank", lambda: postgres.connect("staging"))
    session = staging.begin(XID)
    session.prepare()
    session.leave()
    assert branch.recover() == {} and [*staging.recover()] == [XID]
    staging.rollback(XID)
    staging.close()


def test_transactions_of_others_are_not_listed(branch: xa.DBAPIBranch, postgres: Server) -> None:
    postgres.query("BEGIN", "PREPARE TRANSACTION 'of another application'")
    assert branch.recover() == {}


def test_a_connection_that_failed_is_not_used_again(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    session = insert(branch, XID)
    broken = session.connection
    postgres.kill()
    postgres.start()
    with pytest.raises(psycopg.Error):
        session.prepare()
    with pytest.raises(psycopg.Error):
        session.rollback()
    again = branch.begin(XID)
    assert again.connection is not broken
    again.rollback()


def test_a_restart_of_the_server_while_a_connection_is_idle_is_not_noticed(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    insert(branch, XID).commit()
    postgres.kill()
    postgres.start()
    insert(branch, OTHER, "mo").commit()
    assert names(postgres) == ["jo", "mo"]


def test_a_child_does_not_use_the_connections_of_its_parent(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    def backend(session: DBAPISession) -> int:
        (pid,) = session.connection.execute("SELECT pg_backend_pid()").fetchone()
        session.rollback()
        return int(pid)

    ours = backend(branch.begin(XID))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, b"%d" % backend(branch.begin(OTHER)))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert int(pipe.read()) != ours
    assert backend(branch.begin(XID)) == ours
