"""Money moves between two databases: a crash at any step of the commit neither loses nor makes any."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import product
from typing import Any

import pytest
import transaction
from ZODB.DB import DB
from ZODB.POSException import ReadConflictError

from neo.client import NEOStorage, xa
from neo.client.errors import PreparedConflictError
from neo.client.xa import command
from neo.client.xa.evidence import BRANCHES_KEY, XID_KEY
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Server
from tests.support.whole import few
from tests.xa.teller import CRASH, DECIDED, FIRST, SECOND, STEPS, Teller

MONEY = 100
NEO, POSTGRES = "neo", "postgres"
PAIRS = (NEO, POSTGRES)


class Pair:
    """Two databases with money. ``dsn``: of the second one if it is PostgreSQL's."""

    def __init__(self, clusters: list[Cluster], postgres: Server | None) -> None:
        self.clusters = clusters
        self.postgres = postgres
        self.first = clusters[0].uri
        self.second = clusters[1].uri if postgres is None else postgres.dsn()

    def reset(self) -> None:
        """Give both databases the same money."""
        for cluster in self.clusters:
            with closing(DB(cluster.storage())) as db, db.transaction() as connection:
                connection.root()["money"] = MONEY
        if self.postgres is not None:
            self.postgres.query(
                "CREATE TABLE account (money int)", f"INSERT INTO account VALUES ({MONEY})"
            )

    def read(self) -> list[int]:
        """Return the money in both, as a new client sees it."""
        found = []
        for cluster in self.clusters:
            with closing(DB(cluster.storage())) as db, db.transaction() as connection:
                found.append(connection.root()["money"])
        if self.postgres is not None:
            found += [money for (money,) in self.postgres.query("SELECT money FROM account")]
        return found

    def crash(self, step: str) -> None:
        """Run a teller that ends at a step of its first transfer."""
        words = [sys.executable, "-m", "tests.xa.teller", self.first, self.second, "--crash", step]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == CRASH, done.stderr

    def resolve(self, older_than: float = 0.0) -> list[xa.Settled]:
        with ExitStack() as stack:
            first, *rest = [stack.enter_context(closing(c.storage())) for c in self.clusters]
            branches: list[Any] = [*rest]
            if self.postgres is not None:
                branches = [xa.DBAPIBranch(SECOND, self.postgres.connect)]
            return xa.resolve(first, branches, older_than)

    def in_doubt(self) -> list[bytes]:
        """Return the xids that are prepared anywhere."""
        found: list[bytes] = []
        for cluster in self.clusters:
            with closing(cluster.storage()) as storage:
                found += [p.xid for p in storage.recover()]
        if self.postgres is not None:
            found += xa.DBAPIBranch(SECOND, self.postgres.connect).recover()
        return found


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[Cluster]]:
    with Cluster(name=FIRST, partitions=3) as first, Cluster(name=SECOND, partitions=3) as second:
        yield [first, second]


@pytest.fixture(params=PAIRS)
def pair(clusters: list[Cluster], request: pytest.FixtureRequest, postgres: Server) -> Pair:
    pair = Pair(clusters, None) if request.param == NEO else Pair(clusters[:1], postgres)
    pair.reset()
    return pair


def test_both_databases_commit_and_forget(pair: Pair) -> None:
    with ExitStack() as stack:
        teller = Teller(pair.first, pair.second, lambda name: None, stack)
        teller.transfer(7)
        assert [account.read() for account in teller.accounts] == [MONEY - 7, MONEY + 7]
        teller.manager.abort()
        teller.transfer(1)
    assert pair.read() == [MONEY - 8, MONEY + 8]
    assert pair.in_doubt() == [] and pair.resolve() == []


def test_the_xid_is_in_the_undo_log(pair: Pair) -> None:
    with ExitStack() as stack:
        Teller(pair.first, pair.second, lambda name: None, stack).transfer(7)
    with closing(pair.clusters[0].storage()) as storage:
        (entry,) = storage.undoLog(0, 1)
    assert entry[XID_KEY].startswith("neo-xa-") and entry[BRANCHES_KEY] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("pair", "step"),
    few(
        *product([NEO], STEPS),
        (POSTGRES, "after prepare second"),
        (POSTGRES, "after commit second"),
        whole=product(PAIRS, STEPS),
    ),
    indirect=["pair"],
)
def test_a_crash_of_the_application_is_settled(pair: Pair, step: str) -> None:
    """Requirement 5: what is prepared takes part in recovery with its coordinator."""
    pair.crash(step)
    settled = pair.resolve()
    assert not any(line.failed for line in settled), settled
    moved = STEPS.index(step) >= DECIDED
    assert pair.read() == ([MONEY - 1, MONEY + 1] if moved else [MONEY, MONEY])
    assert pair.in_doubt() == [] and pair.resolve() == []


@pytest.mark.parametrize("pair", few(POSTGRES, whole=PAIRS), indirect=True)
def test_an_application_that_is_at_work_is_left_alone(pair: Pair) -> None:
    pair.crash("after prepare second")
    (line,) = pair.resolve(older_than=3600.0)
    assert "left alone" in str(line) and len(pair.in_doubt()) == 2
    pair.resolve()
    assert pair.in_doubt() == []


def test_the_command_settles_after_a_dry_run(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.crash("before commit second")
    second = pair.second if pair.postgres is None else f"{SECOND}={pair.second}"
    options = ["--coordinator", pair.first, second]
    assert command.main([*options, "--dry-run"]) == 0
    assert "would be committed in second, as in first" in capsys.readouterr().out
    assert len(pair.in_doubt()) == 1
    assert command.main(options) == 0
    assert "committed in second, as in first" in capsys.readouterr().out
    assert command.main(options) == 0
    assert capsys.readouterr().out == "nothing is in doubt\n"


@pytest.mark.parametrize(
    ("pair", "step"),
    few(
        (NEO, "before commit first"),
        (POSTGRES, "before commit second"),
        whole=product(PAIRS, ("before commit first", "before commit second")),
    ),
    indirect=["pair"],
)
def test_several_resolvers_at_once_do_it_once(pair: Pair, step: str) -> None:
    pair.crash(step)
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(pair.resolve) for _ in range(3)]
    lines = [line for run in runs for line in run.result()]
    assert lines and not any(line.failed for line in lines), lines
    moved = STEPS.index(step) >= DECIDED
    assert pair.read() == ([MONEY - 1, MONEY + 1] if moved else [MONEY, MONEY])
    assert pair.in_doubt() == [] and pair.resolve() == []


def test_a_database_that_was_given_up_is_not_committed(pair: Pair) -> None:
    """The resolver gives the transaction up while the application is between prepare and decision."""

    def step(name: str) -> None:
        if name == "before commit first":
            settled = pair.resolve()
            assert any("rolled back in first" in str(line) for line in settled)

    with ExitStack() as stack:
        teller = Teller(pair.first, pair.second, step, stack)
        with pytest.raises(Exception, match="was rolled back"):
            teller.transfer(7)
    assert pair.read() == [MONEY, MONEY] and pair.in_doubt() == []


def test_a_resolver_that_is_faster_is_no_error(pair: Pair) -> None:
    """It commits and forgets in the middle of the application's commits."""

    def step(name: str) -> None:
        if name == "after commit first":
            assert pair.resolve()

    with ExitStack() as stack:
        Teller(pair.first, pair.second, step, stack).transfer(7)
    assert pair.read() == [MONEY - 7, MONEY + 7] and pair.in_doubt() == []


def test_held_objects_are_refused_with_the_xid(clusters: list[Cluster]) -> None:
    """Specification 24.9. Requirement 18 does not hold for what is prepared: it is not aborted."""
    pair = Pair(clusters, None)
    pair.reset()
    pair.crash("after prepare second")
    (xid, _) = pair.in_doubt()
    manager = transaction.TransactionManager()
    with closing(DB(clusters[1].storage())) as db:
        connection = db.open(manager)
        root = connection.root()
        assert root["money"] == MONEY, "the old state is read"
        root["money"] = 0
        with pytest.raises(PreparedConflictError, match=xid.decode()):
            manager.commit()
        manager.abort()
        connection.readCurrent(root)
        connection.add(other := type(root)())
        assert other._p_oid
        with pytest.raises(ReadConflictError, match=xid.decode()):
            manager.commit()
        manager.abort()
    pair.resolve()
    with closing(DB(clusters[1].storage())) as db, db.transaction() as connection:
        connection.root()["money"] = MONEY
    assert pair.read() == [MONEY, MONEY]


def test_a_connection_that_was_open_sees_what_the_resolver_commits(clusters: list[Cluster]) -> None:
    pair = Pair(clusters, None)
    pair.reset()
    storage: NEOStorage = clusters[1].storage()
    manager = transaction.TransactionManager()
    with closing(DB(storage)) as db:
        root = db.open(manager).root()
        assert root["money"] == MONEY
        pair.crash("after commit first")
        pair.resolve()
        manager.begin()
        storage.sync()
        manager.begin()
        assert root["money"] == MONEY + 1
