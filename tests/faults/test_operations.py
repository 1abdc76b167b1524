"""``neoctl backup`` and ``restore`` with real processes (specification 27, 28): under load, and with
``kill -9`` of any process at any moment.

``NEO_OPERATION_ROUNDS`` and ``NEO_OPERATION_SEED`` choose a longer run, or repeat one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ZODB.blob import Blob
from ZODB.DB import DB

from neo.archive.folder import ArchiveFolder
from neo.archive.manifest import Manifest
from neo.archive.verify import verify_partition
from neo.protocol.ids import add64
from tests.faults.load import Load
from tests.faults.operations import begun, ended, wait_moment
from tests.faults.operator import findings, neoctl, wait_for
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.seeds import seed
from tests.support.whole import few

ROUNDS = int(os.environ.get("NEO_OPERATION_ROUNDS", "3"))


def records(cluster: Cluster, until: bytes) -> list[Any]:
    """Return all transactions up to a tid, with their records and the contents of blobs."""
    found = []
    with closing(cluster.storage()) as storage:
        for t in storage.iterator(None, until):
            rows = [(r.oid, r.tid, r.data, content(storage, r)) for r in t]
            found.append((t.tid, t.user, t.description, t.extension, sorted(rows)))
    return found


def content(storage: Any, record: Any) -> bytes | None:
    if record.data is None or b"ZODB.blob" not in record.data[:40]:
        return None
    return Path(storage.loadBlob(record.oid, record.tid)).read_bytes()


def damage(folder: ArchiveFolder) -> list[str]:
    """Return everything that is wrong with the copies of an archive."""
    problems: list[str] = []
    for manifest in folder.complete().values():
        assert isinstance(manifest, Manifest)
        chain = folder.chain(manifest)
        for file in manifest.files:
            problems += verify_partition(folder, chain, file, lambda size: None)
    return problems


def backup(cluster: Cluster, path: Path, *words: str) -> Any:
    done = neoctl(cluster.simple.admin_address, "backup", str(path), *words)
    assert done["state"] == "SUCCEEDED", done
    return done


@pytest.fixture(params=few("mariadb", whole=["sqlite", "mariadb"]))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cluster_is_backed_up_under_load_and_restored_elsewhere(
    backend: str, tmp_path: Path
) -> None:
    """Specification 27.50 to 27.66: other numbers of nodes and of partitions, from the other backend."""
    folder = ArchiveFolder(str(tmp_path / "archive"))
    with Cluster(storages=3, partitions=12, replicas=1) as source:
        load = Load(source, tmp_path, writers=4)
        prepare(source.storage(), len(load.ledgers))
        with closing(DB(source.storage())) as db:
            with db.transaction() as connection:
                connection.root()["blob"] = Blob(b"a content" * 100_000)
        load.start()
        try:
            load.wait_commits(5)
            backup(source, folder.path)
            load.wait_commits(20)
            with closing(DB(source.storage())) as db, db.transaction() as connection:
                connection.root()["second"] = Blob(b"another")
            backup(source, folder.path)
            load.wait_commits(1)
        finally:
            load.stop()
        first, second = folder.tids()
        assert damage(folder) == []
        with closing(source.storage()) as storage:
            tids = [t.tid for t in storage.iterator(add64(first, 1), second)]
        moments = [tids[len(tids) // 2], second]
        expected = [records(source, moment) for moment in moments]
    for moment, rows in list(zip(moments, expected, strict=True))[
        -1 if backend == "mariadb" else 0 :
    ]:
        with Cluster(storages=3, backend=backend, partitions=5, replicas=1) as target:
            admin = target.simple.admin_address
            words = "restore", str(folder.path), f"0x{moment.hex()}"
            # Refused while a new node is not ready.
            done = wait_for(partial(neoctl, admin, *words), lambda: "the cluster is not ready")
            assert done["state"] == "SUCCEEDED", done
            assert records(target, b"\x7f" + b"\xff" * 7) == rows
            assert findings(admin) == {"equal": 5}  # each node has loaded what its replica has
            with closing(DB(target.storage())) as db, db.transaction() as connection:
                connection.root()["after"] = 1  # it is a database as any other


def test_a_restore_into_a_database_with_data_is_refused(tmp_path: Path) -> None:
    """Specification 27.61."""
    with Cluster(storages=1, partitions=2) as cluster:
        with closing(DB(cluster.storage())):
            pass
        backup(cluster, tmp_path / "archive")
        with pytest.raises(AssertionError, match="the database is not empty"):
            neoctl(cluster.simple.admin_address, "restore", str(tmp_path / "archive"))


def test_a_copy_waits_for_a_node_that_is_down(tmp_path: Path) -> None:
    """Unless it has ended before."""
    with Cluster(storages=2, partitions=2, replicas=1) as cluster:
        admin = cluster.simple.admin_address
        with closing(DB(cluster.storage())):
            pass
        with begun(cluster, "backup", str(tmp_path / "archive")):
            rows = wait_until(
                lambda: neoctl(admin, "print", "operations")["operations"], "no operation begins"
            )
            cluster.simple.kill("storage2")
            cluster.simple.restart("storage2")
        assert ended(cluster, rows[0]["id"])["state"] == "SUCCEEDED"


@pytest.fixture(params=few(3, whole=[1, 3]), ids="masters={}".format)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=4, replicas=1, masters=request.param) as running:
        yield running


@pytest.mark.timeout(3600)
def test_kill_any_process_during_backups(cluster: Cluster, tmp_path: Path) -> None:
    """All or nothing: a copy is complete, or there is no trace of it; the next backup works."""
    chance = random.Random(seed("OPERATION"))
    folder = ArchiveFolder(str(tmp_path / "archive"))
    names = [name for name in cluster.simple.processes if name != "admin"]
    with ExitStack() as stack:
        db = stack.enter_context(closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))))
        for number in range(ROUNDS):
            with db.transaction() as connection:
                connection.root()[number] = Blob(chance.randbytes(chance.randrange(200_000)))
            victim = chance.choice(names)
            known = set(folder.complete())
            with begun(cluster, "backup", str(folder.path)) as process:
                wait_moment(cluster, process, chance)
                cluster.simple.kill(victim)
                cluster.simple.restart(victim)
            cluster.simple.wait_running()  # then all nodes have told of their journals
            last = ended(cluster)
            complete = set(folder.complete())
            assert set(folder.tids()) == complete, (victim, last)
            if last is not None and last["state"] == "FAILED" and process.returncode:
                assert complete == known, (victim, last)
            assert damage(folder) == []
        with db.transaction() as connection:
            connection.root()["last"] = True
        backup(cluster, folder.path)
    assert damage(folder) == []
