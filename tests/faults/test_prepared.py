"""``kill -9`` of applications, resolvers, nodes and servers while transactions over several databases
commit (:mod:`tests.faults.clerk`).

In the end nothing is in doubt, each number is in all databases or in none, those that were acknowledged
are there, those that were refused are not, and no lock is left. ``NEO_PREPARED_ROUNDS`` and
``NEO_PREPARED_SEED`` choose a longer run, or repeat one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from ZODB.DB import DB

from tests.faults import clerk
from tests.faults.clerk import SQL, SQL_NAME, WRITERS
from tests.faults.writer import Ledger
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.postgres import Server, running_server
from tests.support.seeds import seed

ROUNDS = int(os.environ.get("NEO_PREPARED_ROUNDS", "4"))
#: The databases of a run: NEO clusters, and whether PostgreSQL is one, too.
SHAPES = ((2, False), (1, True), (2, True))
RESOLVERS = 3
#: Seconds after which a resolver takes an application for dead. With none it takes those that are at work
#: for dead, too, which then only have to try again.
OLDER_THAN = ("0", "0.5", "2")
#: Time from a vote to a kill. The short one hits the commit, the long one the resolvers.
SHORT_SECONDS, LONG_SECONDS = 0.05, 1.0
WAIT_SECONDS = 10

Victim = tuple[str, int] | tuple[Cluster, str] | Server


class Databases:
    """``clusters``: the first one is the coordinator."""

    def __init__(self, clusters: list[Cluster], server: Server | None) -> None:
        self.clusters = clusters
        self.server = server

    def prepare(self) -> None:
        for cluster in self.clusters:
            with closing(DB(cluster.storage())) as db:
                clerk.prepare_zodb(db)
        if self.server is not None:
            self.server.query(*clerk.PREPARE_SQL, "SELECT 1")

    def named(self, sql: str) -> list[str]:
        """Return the databases as a program is given them. ``sql``: begins that of PostgreSQL."""
        uris = [f"{cluster.uri}?wait_timeout={WAIT_SECONDS}" for cluster in self.clusters]
        return uris + ([] if self.server is None else [sql + self.server.dsn()])

    def victims(self) -> list[Victim]:
        found: list[Victim] = [
            (c, name) for c in self.clusters for name in c.simple.processes if name != "admin"
        ]
        return found + ([] if self.server is None else [self.server])

    def entries(self) -> list[set[tuple[int, int]]]:
        """Return what is in each database, as a new client sees it."""
        found = []
        for cluster in self.clusters:
            storage = cluster.storage(wait_timeout=PATIENCE_SECONDS)
            with closing(DB(storage)) as db, db.transaction() as connection:
                found.append(clerk.entries(connection))
        if self.server is not None:
            found.append({(w, n) for w, n in self.server.query("SELECT writer, number FROM entry")})
            ((count,),) = self.server.query("SELECT value FROM counter")
            assert count == len(found[-1])
        return found

    def check_free(self) -> None:
        """Check that nothing is prepared or locked anywhere: all objects can be changed, and no row
        belongs to a transaction in progress."""
        for cluster in self.clusters:
            storage = cluster.storage()
            with closing(DB(storage)) as db, db.transaction() as connection:
                assert storage.recover() == []
                root = connection.root()
                root["count"]["value"] += 1
                for writer in range(WRITERS):
                    root[writer].insert(0)
            for name in cluster.simple.processes:
                if name.startswith("storage"):
                    self._check_rows(cluster, name)
        if self.server is not None:
            assert self.server.query("SELECT gid FROM pg_prepared_xacts") == []
            locked = "UPDATE counter SET value = value + 1", "UPDATE entry SET number = number"
            self.server.query("SET lock_timeout = '5s'", *locked)

    @staticmethod
    def _check_rows(cluster: Cluster, name: str) -> None:
        rows = "SELECT tid FROM ttrans UNION ALL SELECT tid FROM tobj"
        wait_until(lambda: not cluster.query(name, rows), f"{name} has transactions in progress")


class Crew:
    """Applications and resolvers in processes of their own, which are started again when they ended."""

    def __init__(self, databases: Databases, folder: Path, choices: random.Random) -> None:
        self._databases = databases
        self._folder = folder
        self._choices = choices
        self.ledgers = [Ledger(folder, writer) for writer in range(WRITERS)]
        self._processes: dict[tuple[str, int], subprocess.Popen[bytes]] = {}

    def keep(self) -> None:
        """Start all that do not run. An application never ends by itself; a resolver ends with 0 or 1."""
        for writer in range(WRITERS):
            self._start("application", writer, self._application(writer))
        for number in range(RESOLVERS):
            self._start("resolver", number, self.resolver(self._choices.choice(OLDER_THAN)))

    def _application(self, writer: int) -> list[str]:
        words = [sys.executable, "-m", "tests.faults.clerk", str(writer), str(self._folder)]
        return [*words, *self._databases.named(SQL)]

    def resolver(self, older_than: str) -> list[str]:
        coordinator, *others = self._databases.named(f"{SQL_NAME}=")
        words = [sys.executable, "-m", "neo.client.xa", "--older-than", older_than]
        return [*words, "--coordinator", coordinator, *others]

    def _start(self, kind: str, number: int, command: list[str]) -> None:
        process = self._processes.get((kind, number))
        if process is not None:
            code = process.poll()
            if code is None:
                return
            assert kind == "resolver" and code in (0, 1), f"{kind} ended with {code}: {self.logs()}"
        with open(self._folder / f"{kind}{number}.log", "ab") as out:
            self._processes[kind, number] = subprocess.Popen(command, stdout=out, stderr=out)

    def kill(self, victim: tuple[str, int]) -> None:
        process = self._processes.pop(victim, None)
        if process is not None:
            process.kill()
            process.wait()

    def kill_all(self, kind: str) -> None:
        for victim in [key for key in self._processes if key[0] == kind]:
            self.kill(victim)

    def wait(self, condition: object, what: str) -> None:
        assert callable(condition)

        def checked() -> bool:
            self.keep()
            return bool(condition())

        wait_until(checked, lambda: f"{what}\n{self.logs()}", poll=0.002)

    def logs(self) -> str:
        paths = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in paths)

    def victims(self) -> list[Victim]:
        applications: list[Victim] = [("application", writer) for writer in range(WRITERS)]
        return applications * 2 + [("resolver", number) for number in range(RESOLVERS)]


@pytest.fixture
def choices() -> random.Random:
    return random.Random(seed("PREPARED"))


@pytest.fixture
def databases(choices: random.Random) -> Iterator[Databases]:
    count, sql = choices.choice(SHAPES)
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(Cluster(2, partitions=6, name=name, replicas=replicas))
            for replicas, name in enumerate(("first", "second")[:count])
        ]
        server = stack.enter_context(running_server()) if sql else None
        found = Databases(clusters, server)
        found.prepare()
        yield found


def strike(databases: Databases, crew: Crew, choices: random.Random) -> None:
    """Kill one to four processes at once. Nodes and servers start again."""
    chosen = choices.choices([*crew.victims(), *databases.victims()], k=choices.randint(1, 4))
    unique = [victim for n, victim in enumerate(chosen) if victim not in chosen[:n]]
    for victim in unique:
        if isinstance(victim, Server):
            victim.kill()
        elif isinstance(victim[0], Cluster):
            victim[0].simple.kill(str(victim[1]))
        else:
            crew.kill((victim[0], int(victim[1])))
    for victim in unique:
        if isinstance(victim, Server):
            victim.start()
        elif isinstance(victim[0], Cluster):
            victim[0].simple.restart(str(victim[1]))


def settle(crew: Crew) -> None:
    """Run the resolver until nothing is in doubt."""

    def settled() -> bool:
        done = subprocess.run(crew.resolver("0"), capture_output=True, text=True)
        print(done.stdout, done.stderr, flush=True)
        return done.returncode == 0 and done.stdout == "nothing is in doubt\n"

    wait_until(settled, "something stays in doubt")


@pytest.mark.timeout(3600)
def test_kill_anything_while_several_databases_commit(
    databases: Databases, choices: random.Random, tmp_path: Path
) -> None:
    crew = Crew(databases, tmp_path, choices)
    try:
        for _ in range(ROUNDS):
            done = [ledger.acknowledged for ledger in crew.ledgers]
            crew.wait(
                lambda done=done: any(
                    ledger.acknowledged > n for ledger, n in zip(crew.ledgers, done, strict=True)
                ),
                "nothing is committed any more",
            )
            ledger = choices.choice(crew.ledgers)
            last = ledger.voting
            crew.wait(lambda ledger=ledger, last=last: ledger.voting > last, "no vote")
            time.sleep(choices.random() * choices.choice((SHORT_SECONDS, LONG_SECONDS)))
            strike(databases, crew, choices)
        crew.kill_all("application")
        crew.kill_all("resolver")
        settle(crew)
        check(databases.entries(), crew.ledgers)
        databases.check_free()
        assert "Traceback" not in crew.logs()
    finally:
        crew.kill_all("application")
        crew.kill_all("resolver")


def check(found: list[set[tuple[int, int]]], ledgers: list[Ledger]) -> None:
    """Check that each number is everywhere or nowhere, as its application was told."""
    first, *others = found
    for other in others:
        assert other == first, f"in some databases only: {sorted(first ^ other)}"
    for writer, ledger in enumerate(ledgers):
        there = {number for its, number in first if its == writer}
        lost = set(ledger.all_acknowledged()) - there
        assert not lost, f"writer {writer}: acknowledged and not there: {sorted(lost)}"
        refused = set(ledger.all_refused()) & there
        assert not refused, f"writer {writer}: refused and there: {sorted(refused)}"
        assert there <= set(ledger.all_attempted())
    print(len(first), "numbers in", len(found), "databases", flush=True)
