"""neomigrate into a NEO cluster and out of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import transaction
from persistent.mapping import PersistentMapping
from ZODB import DB
from ZODB.FileStorage import FileStorage

from neo.migrate import main
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AskLastTransaction
from neo.simple import Cluster
from tests.support.certificates import Authority
from tests.support.cluster import simple_cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

Capture = pytest.CaptureFixture[str]
TRANSACTIONS = 30


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Make a database with several revisions of objects, metadata, and undos of undos."""
    path = tmp_path / "source.fs"
    with closing(DB(FileStorage(str(path)))) as db:
        for number in range(TRANSACTIONS - 4):
            with db.transaction(f"change {number}") as connection:
                root = connection.root()
                root[number] = PersistentMapping(number=number)
                root[0]["text"] = "x" * number * 100
                current = connection.transaction_manager.get()
                current.setUser("ünï")
                current.setExtendedInfo("number", number)
        for _ in range(3):
            db.undo(db.undoInfo(0, 1)[0]["id"], transaction.get())
            transaction.commit()
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with simple_cluster(tmp_path / "cluster", storages=2, partitions=6) as cluster:
        yield cluster


def test_there_and_back_every_record_is_the_same(
    source: Path, cluster: Cluster, tmp_path: Path, capsys: Capture
) -> None:
    back = tmp_path / "back.fs"
    assert main([str(source), cluster.uri, "--verify"]) == 0
    assert main([cluster.uri, str(back), "--verify"]) == 0
    assert main([str(source), str(back), "--verify", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count(f"Copied {TRANSACTIONS} transactions") == 2
    assert out.count(f"Verified {TRANSACTIONS} transactions") == 3
    # Undone changes stay references in both directions: no data is stored twice.
    assert back.stat().st_size == source.stat().st_size


def test_application_goes_on_with_the_copy_where_the_source_was(
    source: Path, cluster: Cluster, capsys: Capture
) -> None:
    main([str(source), cluster.uri])
    config = source.parent / "application.conf"
    config.write_text(
        f"{cluster.zconfig.replace('<zodb_db', '<zodb').replace('/zodb_db', '/zodb')}"
    )
    assert main([str(source), "main", "--config", str(config), "--dry-run", "--verify"]) == 0
    assert "are equal" in capsys.readouterr().out


def test_killed_copy_goes_on_where_it_was(source: Path, cluster: Cluster, capsys: Capture) -> None:
    with closing(DB(FileStorage(str(source)))) as db:
        for number in range(300):
            with db.transaction() as connection:
                connection.root()["more"] = number
    command = [sys.executable, "-m", "neo.migrate", "--quiet", str(source), cluster.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        wait_for_transactions(cluster)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, "it was too quick to be killed"
    assert main([str(source), cluster.uri, "--verify"]) == 0
    out = capsys.readouterr().out
    assert "Going on at transaction 0x" in out
    assert f"Verified {TRANSACTIONS + 300} transactions" in out


def wait_for_transactions(cluster: Cluster) -> None:
    """Wait until the cluster has a transaction."""
    with cluster.admin() as admin:
        wait_until(
            lambda: admin.ask(AskLastTransaction()).tid != ZERO_TID, "nothing is copied", poll=0.005
        )


def test_difference_in_one_record_is_found(source: Path, cluster: Cluster, capsys: Capture) -> None:
    main([str(source), cluster.uri])
    data = source.read_bytes()
    changed = data.replace(b"x" * 100, b"x" * 99 + b"y", 1)
    assert changed != data
    source.write_bytes(changed)
    Path(f"{source}.index").unlink()
    assert main([str(source), cluster.uri, "--verify"]) == 1
    assert "different: transaction 0x" in capsys.readouterr().err


def test_over_tls(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    files = Authority(folder).node()
    with simple_cluster(tmp_path / "secret", storages=1, **files._asdict()) as cluster:
        assert cluster.uri.startswith("neos://")
        assert main([str(source), cluster.uri, "--verify"]) == 0
