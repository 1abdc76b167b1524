"""What proves that a transaction of PostgreSQL has ended as decided, and in which database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import transaction
from ZODB.POSException import StorageTransactionError

from neo.client import xa
from neo.client.xa.evidence import Fate
from neo.client.xa.joining import SessionManager, Unit
from tests.support.postgres import Server

XID = b"neo-xa-" + b"0" * 32


@pytest.fixture
def branch(postgres: Server) -> Iterator[xa.DBAPIBranch]:
    postgres.query("CREATE TABLE account (name text)")
    branch = xa.DBAPIBranch("bank", postgres.connect)
    yield branch
    branch.close()


def names(postgres: Server) -> list[str]:
    return [name for (name,) in postgres.query("SELECT name FROM account ORDER BY name")]


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN"])
def test_a_session_whose_transaction_the_application_ended_is_refused(
    branch: xa.DBAPIBranch, word: str
) -> None:
    session = branch.begin(XID)
    session.connection.execute("INSERT INTO account VALUES ('jo')")
    session.connection.execute(word)
    session.connection.execute("INSERT INTO account VALUES ('mo')")
    for step in (session.savepoint, session.prepare, session.commit):
        with pytest.raises(StorageTransactionError, match="a COMMIT or ROLLBACK was executed"):
            step()
    session.rollback()
    assert branch.recover() == {}


def test_the_application_may_choose_the_isolation(branch: xa.DBAPIBranch) -> None:
    """It has to be the first statement that reads."""
    session = branch.begin(XID)
    session.connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    session.prepare()
    session.rollback()


@pytest.mark.parametrize("fate", [Fate.COMMITTED, Fate.ROLLED_BACK])
def test_the_server_tells_what_was_done_by_hand(
    branch: xa.DBAPIBranch, postgres: Server, fate: Fate
) -> None:
    session = branch.begin(XID)
    session.connection.execute("INSERT INTO account VALUES ('jo')")
    proof = session.proof()
    session.prepare()
    session.leave()
    assert branch.fate(XID, proof, 0.0) is Fate.FORGOTTEN, "it is not decided"
    word = "COMMIT" if fate is Fate.COMMITTED else "ROLLBACK"
    ((gid,),) = postgres.query("SELECT gid FROM pg_prepared_xacts")
    postgres.query(f"{word} PREPARED '{gid}'")
    assert branch.fate(XID, proof, 0.0) is fate
    assert branch.fate(XID, None, 0.0) is Fate.UNPROVEN


def test_another_database_of_the_server_proves_nothing(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    session = branch.begin(XID)
    proof = session.proof()
    session.rollback()
    wrong = xa.DBAPIBranch("bank", lambda: postgres.connect("template1"))
    assert wrong.fate(XID, proof, 0.0) is Fate.FOREIGN
    _, _, database, number = proof.split(" ")
    assert branch.fate(XID, f"postgresql 1 {database} {number}", 0.0) is Fate.FOREIGN


def test_a_savepoint_undoes_the_statements_after_it(
    branch: xa.DBAPIBranch, postgres: Server
) -> None:
    """transaction.savepoint() calls the data manager's."""
    manager = transaction.TransactionManager()
    joined = SessionManager(Unit({}, XID, None), branch, manager)  # type: ignore[arg-type]
    manager.get().join(joined)
    insert = joined.session.connection.execute
    insert("INSERT INTO account VALUES ('jo')")
    outer = manager.savepoint()
    insert("INSERT INTO account VALUES ('mo')")
    manager.savepoint()
    insert("INSERT INTO account VALUES ('po')")
    outer.rollback()
    insert("INSERT INTO account VALUES ('ko')")
    outer.rollback()
    joined.session.prepare()
    joined.session.commit()
    assert names(postgres) == ["jo"]


def test_rows_may_be_dictionaries(branch: xa.DBAPIBranch, postgres: Server) -> None:
    """An application chooses what its connections make of rows."""

    def connect() -> Any:
        connection = postgres.connect()
        connection.row_factory = psycopg.rows.dict_row
        return connection

    dictionaries = xa.DBAPIBranch("bank", connect)
    session = dictionaries.begin(XID)
    proof = session.proof()
    session.prepare()
    assert [*dictionaries.recover()] == [XID]
    session.commit()
    assert dictionaries.fate(XID, proof, 0.0) is branch.fate(XID, proof, 0.0) is Fate.COMMITTED
    dictionaries.close()
