"""Somebody decides in another database what the coordinator has not decided."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from ZODB.DB import DB

from neo.client.xa import command
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Server
from tests.xa.teller import CRASH, FIRST, SECOND

MONEY = 100


@pytest.fixture
def crashed(postgres: Server) -> Iterator[Cluster]:
    """Return a coordinator whose application ended before the decision."""
    postgres.query("CREATE TABLE account (money int)", f"INSERT INTO account VALUES ({MONEY})")
    with Cluster(name=FIRST, partitions=3) as first:
        with closing(DB(first.storage())) as db, db.transaction() as connection:
            connection.root()["money"] = MONEY
        words = [sys.executable, "-m", "tests.xa.teller", first.uri, postgres.dsn()]
        words += ["--crash", "before commit first"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == CRASH, done.stderr
        ((gid,),) = postgres.query("SELECT gid FROM pg_prepared_xacts")
        postgres.query(f"COMMIT PREPARED '{gid}'")
        yield first


@pytest.mark.parametrize("agree", [True, False], ids=["commit", "acknowledge"])
def test_a_commit_by_hand_before_the_decision_is_named(
    crashed: Cluster, postgres: Server, capsys: pytest.CaptureFixture[str], agree: bool
) -> None:
    words = ["--coordinator", crashed.uri, "--older-than", "0", f"{SECOND}={postgres.dsn()}"]
    for options in (["--dry-run"], [], []):
        assert command.main([*options, *words]) == 1
        error = capsys.readouterr().err
        assert "not decided in first, but in second it is committed" in error
    with closing(crashed.storage()) as storage:
        (prepared,) = storage.recover()
        if agree:
            storage.commit_prepared(prepared.xid)
            assert command.main(words) == 0
            assert storage.outcome(prepared.xid) is None, "both have committed"
        else:
            assert command.main([*words, "--acknowledge", prepared.xid.decode()]) == 0
            assert "rolled back in first" in capsys.readouterr().out
    assert command.main(words) == 0 and "nothing is in doubt" in capsys.readouterr().out
