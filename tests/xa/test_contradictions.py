"""``neoresolve`` with a wrong address, and after somebody decided by hand against the coordinator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from ZODB.DB import DB
from ZODB.POSException import StorageTransactionError

from neo.client.xa import command
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Server
from tests.xa.teller import CRASH, FIRST, SECOND, Teller

MONEY = 100
DECIDED = "after commit first"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(name=FIRST, partitions=3) as first:
        yield first


@pytest.fixture
def first(cluster: Cluster, postgres: Server) -> Cluster:
    with closing(DB(cluster.storage())) as db, db.transaction() as connection:
        connection.root()["money"] = MONEY
    postgres.query("CREATE TABLE account (money int)", f"INSERT INTO account VALUES ({MONEY})")
    return cluster


def crash(first: Cluster, second: str, step: str) -> None:
    """Run a teller that ends at a step of its transfer of 1."""
    words = [sys.executable, "-m", "tests.xa.teller", first.uri, second, "--crash", step]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == CRASH, done.stderr


def money(first: Cluster, postgres: Server) -> list[int]:
    with closing(DB(first.storage())) as db, db.transaction() as connection:
        return [connection.root()["money"], *postgres.query("SELECT money FROM account")[0]]


def test_a_wrong_dsn_forgets_nothing(
    first: Cluster, postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """The outcome would be unknown later, and the branch rolled back that others have committed."""
    crash(first, postgres.dsn(), DECIDED)
    coordinator = ["--coordinator", first.uri]
    for _ in range(2):
        assert command.main([*coordinator, f"{SECOND}={postgres.dsn('template1')}"]) == 1
        assert "it is another database than the one that prepared it" in capsys.readouterr().err
    assert command.main([*coordinator, f"{SECOND}={postgres.dsn()}"]) == 0
    assert "committed in second, as in first" in capsys.readouterr().out
    assert money(first, postgres) == [MONEY - 1, MONEY + 1]


def test_a_decision_by_hand_is_named_until_it_is_acknowledged(
    first: Cluster, postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    crash(first, postgres.dsn(), DECIDED)
    ((gid,),) = postgres.query("SELECT gid FROM pg_prepared_xacts")
    postgres.query(f"ROLLBACK PREPARED '{gid}'")
    words = ["--coordinator", first.uri, f"{SECOND}={postgres.dsn()}"]
    for _ in range(2):
        assert command.main(words) == 1
        error = capsys.readouterr().err
        assert "committed in first, but in second it is rolled back" in error
    xid = error.split(":")[0]
    assert command.main([*words, "--acknowledge", xid]) == 0
    capsys.readouterr()
    assert command.main(words) == 0 and capsys.readouterr().out == "nothing is in doubt\n"


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
def test_a_session_that_the_application_ended_moves_nothing(
    first: Cluster, postgres: Server, word: str
) -> None:
    with ExitStack() as stack:
        teller = Teller(first.uri, postgres.dsn(), lambda name: None, stack)
        teller.manager.begin()
        ours, theirs = teller.accounts
        ours.add(-1)
        theirs.read()
        teller.joined.session(teller.branch).connection.execute(word)
        theirs.add(1)
        with pytest.raises(StorageTransactionError, match="a COMMIT or ROLLBACK was executed"):
            teller.manager.commit()
        teller.manager.abort()
    assert money(first, postgres) == [MONEY, MONEY]


def test_a_savepoint_covers_both_databases(first: Cluster, postgres: Server) -> None:
    with ExitStack() as stack:
        teller = Teller(first.uri, postgres.dsn(), lambda name: None, stack)
        teller.manager.begin()
        ours, theirs = teller.accounts
        ours.add(-1)
        theirs.add(1)
        savepoint = teller.manager.savepoint()
        ours.add(-50)
        theirs.add(50)
        savepoint.rollback()
        teller.manager.commit()
    assert money(first, postgres) == [MONEY - 1, MONEY + 1]


def test_a_history_proves_what_a_cluster_does_not_remember(
    first: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the cluster that has committed the transaction has its xid."""
    with Cluster(name=SECOND, partitions=2) as second:
        with closing(DB(second.storage())) as db, db.transaction() as connection:
            connection.root()["money"] = MONEY
        crash(first, second.uri, DECIDED)
        with closing(second.storage()) as storage:
            (outcome,) = storage.recover()
            storage.commit_prepared(outcome.xid)
            storage.forget_prepared(outcome.xid)
        with Cluster(name=SECOND, partitions=2) as another:
            assert command.main(["--coordinator", first.uri, another.uri]) == 1
            assert "it is another database" in capsys.readouterr().err
        assert command.main(["--coordinator", first.uri, second.uri]) == 0
        assert capsys.readouterr().out == "nothing is in doubt\n"
    with closing(first.storage()) as storage:
        assert storage.outcome(outcome.xid) is None


def test_nothing_is_rolled_back_that_the_coordinator_has_committed_and_forgotten(
    first: Cluster, postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    crash(first, postgres.dsn(), DECIDED)
    with closing(first.storage()) as storage:
        outcomes = [outcome.xid for outcome in storage.outcomes(100) if outcome.tid]
        for xid in outcomes:
            storage.forget_prepared(xid)
    for options in (["--dry-run"], [], []):
        words = [*options, "--coordinator", first.uri, f"{SECOND}={postgres.dsn()}"]
        assert command.main(words) == 1
        assert "has committed it, and has forgotten that" in capsys.readouterr().err
    ((gid,),) = postgres.query("SELECT gid FROM pg_prepared_xacts")
    postgres.query(f"COMMIT PREPARED '{gid}'")
    assert money(first, postgres) == [MONEY - 1, MONEY + 1]
