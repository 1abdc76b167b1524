"""``neoresolve`` with the address of another database that has the coordinator's name."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest
from ZODB.DB import DB

from neo.client.xa import command
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Server
from tests.xa.teller import CRASH, FIRST, SECOND

MONEY = 100


def test_a_wrong_coordinator_rolls_nothing_back(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy for tests, or a database created anew, does not know what the coordinator has committed."""
    postgres.query("CREATE TABLE account (money int)", f"INSERT INTO account VALUES ({MONEY})")
    with Cluster(name=FIRST, partitions=3) as first, Cluster(name=FIRST, partitions=2) as another:
        for cluster in (first, another):
            with closing(DB(cluster.storage())) as db, db.transaction() as connection:
                connection.root()["money"] = MONEY
        words = [sys.executable, "-m", "tests.xa.teller", first.uri, postgres.dsn()]
        words += ["--crash", "after commit first"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == CRASH, done.stderr
        for _ in range(2):
            given = ["--coordinator", another.uri, f"{SECOND}={postgres.dsn()}"]
            assert command.main(given) == 1
            assert "it is another database than the coordinator" in capsys.readouterr().err
        assert command.main(["--coordinator", first.uri, f"{SECOND}={postgres.dsn()}"]) == 0
        assert "committed in second, as in first" in capsys.readouterr().out
        assert postgres.query("SELECT money FROM account") == [(MONEY + 1,)]


def test_the_right_coordinator_rolls_back_what_it_has_forgotten(
    postgres: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """An application that could not reach the other database forgets its own rollback."""
    postgres.query("CREATE TABLE account (money int)", f"INSERT INTO account VALUES ({MONEY})")
    with Cluster(name=FIRST, partitions=3) as first:
        with closing(DB(first.storage())) as db, db.transaction() as connection:
            connection.root()["money"] = MONEY
        words = [sys.executable, "-m", "tests.xa.teller", first.uri, postgres.dsn()]
        words += ["--crash", "before commit first"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == CRASH, done.stderr
        with closing(first.storage()) as storage:
            (prepared,) = storage.recover()
            storage.rollback_prepared(prepared.xid)
            storage.forget_prepared(prepared.xid)
        assert command.main(["--coordinator", first.uri, f"{SECOND}={postgres.dsn()}"]) == 0
        assert "rolled back in second, as in first" in capsys.readouterr().out
        assert postgres.query("SELECT money FROM account") == [(MONEY,)]
