"""Transfers between two clusters, and ``kill -9`` of applications, storage nodes and masters meanwhile.

A resolver runs beside them. In the end nothing is in doubt, no money is lost or made, and every transfer
that was acknowledged has happened. ``NEO_PREPARED_ROUNDS`` and ``NEO_PREPARED_SEED`` choose a longer run,
or repeat one.
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
from ZODB.POSException import POSError

from neo.client import xa
from tests.support.cluster import Cluster
from tests.support.patience import wait_until
from tests.support.seeds import seed

ROUNDS = int(os.environ.get("NEO_PREPARED_ROUNDS", "6"))
MONEY = 10**6
TELLERS = 2
#: Seconds after which the resolver takes an application for dead. A commit takes some milliseconds, but
#: much longer if a node is killed; an application that is still at work then only has to try again.
OLDER_THAN = 2.0
#: Time within which a strike hits any moment of a commit.
SPREAD_SECONDS = 0.05


class Tellers:
    """Applications in processes of their own, which are started again when they are killed."""

    def __init__(self, clusters: list[Cluster], folder: Path) -> None:
        self._uris = [f"{cluster.uri}?wait_timeout=10" for cluster in clusters]
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._processes = [self._launch(n) for n in range(TELLERS)]

    def _launch(self, number: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.xa.teller", *self._uris, "--rounds", "1000000"]
        with open(self._folder / f"teller{number}", "ab") as out:
            return subprocess.Popen(words, stdout=out, stderr=out)

    def kill(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()

    def restart(self, number: int) -> None:
        self._processes[number] = self._launch(number)

    def stop(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)

    def count(self, word: str) -> int:
        return sum(
            line.startswith(word) for n in range(TELLERS) for line in self.log(n).splitlines()
        )

    def log(self, number: int) -> str:
        return (self._folder / f"teller{number}").read_text()

    def revive(self) -> None:
        """Start those again that ended, because a cluster was away when they opened it."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self.restart(number)


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    with (
        Cluster(name="first", storages=2, partitions=6) as first,
        Cluster(name="second", storages=2, partitions=6, replicas=1) as second,
    ):
        for cluster in (first, second):
            with closing(DB(cluster.storage())) as db, db.transaction() as connection:
                connection.root()["money"] = MONEY
        yield [first, second]


def settle(clusters: list[Cluster], older_than: float) -> bool:
    """Run the resolver. Return whether nothing failed."""
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(closing(c.storage(wait_timeout=20.0))) for c in clusters]
            settled = xa.resolve(opened[0], opened[1:], older_than)
    except POSError as e:
        print(f"the resolver failed: {e}")
        return False
    for line in settled:
        print(line)
    return not any(line.failed for line in settled)


def money(clusters: list[Cluster]) -> list[int]:
    found = []
    for cluster in clusters:
        with closing(DB(cluster.storage())) as db, db.transaction() as connection:
            found.append(connection.root()["money"])
    return found


@pytest.mark.timeout(3600)
def test_kill_anything_while_money_moves(clusters: list[Cluster], tmp_path: Path) -> None:
    choices = random.Random(seed("PREPARED"))
    victims: list[tuple[Cluster, str] | int] = [*range(TELLERS)] * 2
    victims += [(c, name) for c in clusters for name in c.simple.processes if name != "admin"]
    tellers = Tellers(clusters, tmp_path)
    tellers.start()
    try:
        for _ in range(ROUNDS):
            done = tellers.count("done")

            def moves(done: int = done) -> bool:
                tellers.revive()
                settle(clusters, OLDER_THAN)
                return tellers.count("done") > done + 1

            wait_until(moves, f"no transfer succeeds any more: {tellers.log(0)[-2000:]}")
            time.sleep(choices.random() * SPREAD_SECONDS)
            for victim in {choices.choice(victims), choices.choice(victims)}:
                if isinstance(victim, int):
                    tellers.kill(victim)
                    tellers.restart(victim)
                else:
                    cluster, name = victim
                    cluster.simple.kill(name)
                    cluster.simple.restart(name)
    finally:
        tellers.stop()
    wait_until(lambda: settle(clusters, 0.0), "something stays in doubt")
    first, second = money(clusters)
    assert first + second == 2 * MONEY
    assert tellers.count("done") <= second - MONEY <= tellers.count("try") - tellers.count("failed")
    for cluster in clusters:
        with closing(cluster.storage()) as storage:
            assert storage.recover() == []
