"""Failures of MariaDB: away, killed, read-only, too small for an object.

The cluster logs the reason, loses nothing, and goes on by itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import transaction
from ZODB.DB import DB
from ZODB.POSException import POSError

from neo.client.errors import UnavailableError
from neo.simple import ClusterError
from neoctl.status import status_reply
from tests.faults.load import Load, check
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.mariadb import running_server
from tests.support.patience import PATIENCE_SECONDS, wait_until

#: A short ``wait-timeout``, with which a client notices that the cluster is away.
WAIT_SECONDS = 3.0
BIG_BYTES = 40 << 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=2, backend="mariadb", partitions=6, user="neo:secret") as running:
        yield running


@pytest.fixture
def db(cluster: Cluster) -> Iterator[DB]:
    """Yield an application that is never restarted."""
    made = application(cluster)
    yield made
    made.close()


def application(cluster: Cluster) -> DB:
    """Open a database. With a short ``wait-timeout`` this may fail while the machine is busy."""
    return wait_until(
        lambda: DB(cluster.storage(wait_timeout=WAIT_SECONDS)), "it never opens", excuses=(POSError,)
    )


def write(db: DB, value: Any, count: int = 8) -> None:
    """Commit one transaction over all partitions. Raise POSError."""
    with db.transaction(transaction.TransactionManager()) as connection:
        root = connection.root()
        for number in range(count):
            root.setdefault(number, type(root)())["value"] = value


def read(cluster: Cluster) -> set[Any]:
    """Return the values that a new client reads."""
    fresh = DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))
    try:
        root = fresh.open().root()
        return {value["value"] for value in root.values()}
    finally:
        fresh.close()


def in_time(attempt: Callable[[], None]) -> None:
    """Repeat the attempt until it succeeds."""

    def succeeds() -> bool:
        attempt()
        return True

    wait_until(succeeds, "it never succeeds", excuses=(POSError,))


def wait_logged(cluster: Cluster, name: str, text: str) -> None:
    log = cluster.simple.log(name)
    wait_until(
        lambda: text in log.read_text(),
        lambda: f"no {text!r} in the log of {name}:\n{log.read_text()}",
    )


# -- away ------------------------------------------------------------------------------------------


def test_away_at_the_start() -> None:
    """Without ``wait``, a storage node ends at once and logs the reason (specification 22.5)."""
    command = [sys.executable, "-m", "neo.storage", "-c", "lab", "-m", "127.0.0.1:1"]
    command += ["-b", "127.0.0.1:0", "-a", "MySQL", "-d", "neo:secret@neo1/nonexistent/socket"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 1
    begun, line = ended.stderr.splitlines()
    assert begun.endswith("begins")
    assert line.startswith("neostorage: MariaDB database neo1/nonexistent/socket: the server is away.")
    assert "secret" not in ended.stderr


def test_a_cluster_that_is_started_before_its_server(tmp_path: Path) -> None:
    """With ``wait``, storage nodes may start before their server (specification 22.5)."""
    with Cluster(
        backend="mariadb", partitions=6, user="neo:secret", settings={"wait": "-1"}
    ) as cluster:
        assert cluster.server is not None
        simple = cluster.simple
        simple.stop()
        cluster.server.stop()

        def waits() -> bool:
            """Return whether a node had the time to say that it waits. While a machine stands still, the
            master may not even listen."""
            with pytest.raises(ClusterError) as raised:
                simple.start(timeout=5)
            said = (
                "is not running",
                "not started yet, trying again each second",
                "the server is away. Start it",
            )
            return all(text in str(raised.value) for text in said)

        wait_until(waits, "no storage node says that it waits for its server")
        cluster.server.start()
        simple.start()
        db = DB(cluster.storage())
        try:
            write(db, "served")
        finally:
            db.close()


def assert_waits_for_database(cluster: Cluster) -> None:
    """Check what ``neoctl status`` says about nodes whose processes run without their databases."""
    with cluster.simple.admin() as admin:
        reply = status_reply(admin)
    words = [node["says"] for node in reply.data["nodes"] if node["type"] == "STORAGE"]
    assert len(words) == 2 and all("the server is away" in text for text in words), words
    assert "is down, but its process runs, and says: " in str(reply.text)
    assert "start neostorage" not in str(reply.text) and "neoctl drop" not in str(reply.text)


def test_killed_under_a_writing_load(cluster: Cluster, tmp_path: Path) -> None:
    """Only MariaDB is restarted, neither the nodes nor the clients."""
    assert cluster.server is not None
    prepare(cluster.storage(), 2)
    load = Load(cluster, tmp_path)
    load.start()
    processes = cluster.pids()
    try:
        for _ in range(3):
            load.wait_commits(2)
            cluster.server.kill()
            # Both nodes have noticed, and have failed to open the database at least once.
            for name in ("storage1", "storage2"):
                mark = cluster.simple.log(name).read_text().count("the server is away")
                load.wait(
                    lambda name=name, mark=mark: (
                        cluster.simple.log(name).read_text().count("the server is away") > mark
                    ),
                    f"{name} does not say that the server is away",
                )
            assert_waits_for_database(cluster)
            cluster.server.start()
            load.wait_commits(1)
            check(cluster, load)
    finally:
        load.stop()
    assert cluster.pids() == processes
    cluster.simple.check()


def test_stopped_under_a_writing_load(cluster: Cluster, tmp_path: Path) -> None:
    """A server hangs for a while: commits wait for it, and succeed when it goes on."""
    assert cluster.server is not None
    prepare(cluster.storage(), 2)
    load = Load(cluster, tmp_path)
    load.start()
    processes = cluster.pids()
    try:
        for _ in range(3):
            load.wait_commits(2)
            cluster.server.pause()
            try:
                load.wait(
                    lambda: all(ledger.acknowledged < ledger.attempted for ledger in load.ledgers),
                    "writers commit without their databases",
                )
            finally:
                cluster.server.resume()
            load.wait_commits(1)
            check(cluster, load)
    finally:
        load.stop()
    assert cluster.pids() == processes


# -- refusing --------------------------------------------------------------------------------------


def test_read_only(cluster: Cluster, db: DB) -> None:
    """The commit fails, nothing of it is visible, and the same application goes on later."""
    assert cluster.server is not None
    in_time(lambda: write(db, "old"))
    cluster.server.query("SET GLOBAL read_only=1")
    try:
        with pytest.raises(POSError) as raised:
            write(db, "new")
        assert isinstance(raised.value, transaction.interfaces.TransientError)
        said = r"S\d 127\.0\.0\.1:\d+: the peer says: the database failed: .*the server is read-only"
        # The master may be the first to tell.
        either = rf"{said}|the cluster stopped serving; S\d is not running"
        assert re.search(either, str(raised.value)), raised.value
        wait_logged(cluster, "storage1", "the server is read-only. SET GLOBAL read_only=0")
        away = f"did not answer for {WAIT_SECONDS:g} s; last reason: .*Retry Later, since .*{said}"
        with pytest.raises(UnavailableError, match=away):
            write(db, "newer")
    finally:
        cluster.server.query("SET GLOBAL read_only=0")
    assert read(cluster) == {"old"}
    in_time(lambda: write(db, "again"))
    assert read(cluster) == {"again"}


def test_no_space_left() -> None:
    """Nothing is lost, and the same application goes on when there is space."""
    size = "--innodb-data-file-path=ibdata1:12M:autoextend:max:{}M"
    with (
        running_server("--innodb-file-per-table=0", size.format(40)) as server,
        Cluster(storages=1, backend="mariadb", partitions=4, server=server) as cluster,
    ):
        server.options[-1] = size.format(200)
        db = application(cluster)
        committed, full, noise = {b""}, False, Random(1)
        log, said = cluster.simple.log("storage1"), "the server has no space left. Free space on its disk"
        while not full:
            value = noise.randbytes(1 << 20)
            try:
                write(db, value, 2)
                committed = {value}
            except POSError:
                # A commit that failed for the application may have been decided before.
                committed.add(value)
                full = said in log.read_text()
        assert committed != {b""}
        server.stop()
        server.start()
        assert read(cluster) in [{value} for value in committed]
        in_time(lambda: write(db, b"again", 2))
        assert read(cluster) == {b"again"}
        db.close()


def test_an_object_above_max_allowed_packet(cluster: Cluster, db: DB) -> None:
    """The node writes the object in pieces; the client does not notice."""
    assert cluster.server is not None
    cluster.server.query(f"SET GLOBAL max_allowed_packet={16 << 20}")
    for name in ("storage1", "storage2"):
        cluster.simple.restart(name)
    cluster.simple.wait_running()
    value = Random(1).randbytes(BIG_BYTES)
    in_time(lambda: write(db, value, 1))
    assert read(cluster) == {value}


def test_a_packet_that_became_too_small(cluster: Cluster, db: DB) -> None:
    """A node stops service before it loses an object, and goes on when the limit is raised."""
    assert cluster.server is not None
    in_time(lambda: write(db, "old"))
    server = cluster.server
    server.query(f"SET GLOBAL max_allowed_packet={1 << 20}")
    server.query("KILL USER neo")
    wait_logged(cluster, "storage1", "max_allowed_packet=1048576 is too small for big objects")
    server.query(f"SET GLOBAL max_allowed_packet={64 << 20}")
    in_time(lambda: write(db, Random(1).randbytes(1 << 20)))
    assert len(read(cluster)) == 1


def test_rights_that_were_taken_away(cluster: Cluster, db: DB) -> None:
    assert cluster.server is not None
    in_time(lambda: write(db, "old"))
    cluster.server.query("REVOKE ALL ON `neo%`.* FROM neo", "KILL USER neo")
    wait_logged(cluster, "storage1", "the server refuses this user. Check user and password")
    with pytest.raises(POSError):
        write(db, "new")
    cluster.server.query("GRANT ALL ON `neo%`.* TO neo")
    in_time(lambda: write(db, "again"))
    assert read(cluster) == {"again"}
