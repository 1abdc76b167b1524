"""The symptoms of docs/trouble.md, caused on a real cluster: it says what the page shows."""

from __future__ import annotations

import io
import re
import shutil
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import ZODB
from persistent.mapping import PersistentMapping
from transaction import TransactionManager
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError

from neo.client import Storage
from neo.client.errors import TransactionLostError, UnavailableError
from neo.simple import Cluster
from neoctl.__main__ import main
from tests.support.cluster import simple_cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.standstill import stand_still

PAGE = (Path(__file__).parents[2] / "docs" / "trouble.md").read_text("utf-8")
ROOT = b"\0" * 8
#: The comparison at the start of a node mends what differs in the last hundred transactions.
COMMITS = 106


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def shown(title: str, command: str) -> list[str]:
    """Return the lines that a section shows below a command; of a text without a prompt, that text."""
    blocks = re.findall(r"(?:^    .*\n)+", section(title), re.MULTILINE)
    for block in blocks:
        lines = [line[4:] for line in block.splitlines()]
        for number, line in enumerate(lines):
            if line.startswith("$ ") and line.endswith(f" {command}"):
                after = lines[number + 1 :]
                end = next((n for n, text in enumerate(after) if text.startswith("$ ")), None)
                return after[:end]
        if lines[0].startswith(command):
            return lines
    raise AssertionError(f"{title} does not show {command!r}")


def plain(text: str) -> str:
    """Return a text in which all numbers, ids, times and addresses are 0."""
    return re.sub(r"0x[0-9a-f]+|\d+(?:[.:-]\d+)*", "0", text)


def check(lines: list[str], said: str) -> None:
    """Raise AssertionError unless each line of the page is in what was said."""
    assert lines
    for line in lines:
        parts = [re.escape(part) for part in plain(line).split("…")]
        assert re.search(".*".join(parts), plain(said)), f"{line!r} is not in\n{said}"


class Operator:
    """Somebody who types the commands of the page."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def neoctl(self, *words: str, admin: str = "") -> str:
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            main(["-a", admin or self.cluster.admin_address, *words])
        return said.getvalue()

    def reads(self, title: str, command: str) -> None:
        """Wait until a command says what the page shows."""
        lines = shown(title, command)
        said = ""

        def as_shown() -> bool:
            nonlocal said
            said = self.neoctl(*command.split())
            try:
                check(lines, said)
            except AssertionError:
                return False
            return True

        wait_until(as_shown, f"{command} of {title!r}")

    def waits(self, text: str, *command: str) -> None:
        wait_until(lambda: text in self.neoctl(*command), f"{text} in {command}")


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with simple_cluster(tmp_path / "cluster", storages=2, replicas=1, partitions=4) as cluster:
        yield Operator(cluster)


def database(operator: Operator) -> ZODB.DB:
    return ZODB.DB(Storage(operator.cluster.masters, operator.cluster.name))


def test_a_node_that_runs_and_does_nothing_is_named(operator: Operator) -> None:
    process = operator.cluster.processes["storage2"]
    title = "The site stands still"
    stand_still(process.pid)
    try:
        lines = shown(title, "problem: S2 has not answered")
        said = re.compile(r"problem: S\d has not answered")
        wait_until(lambda: said.search(operator.neoctl("status")), "a silent node that is named")
        check(lines, operator.neoctl("status"))
    finally:
        process.send_signal(signal.SIGCONT)
    operator.waits("No problem.", "status")


def test_conflicts_and_a_transaction_that_makes_others_wait(operator: Operator) -> None:
    with closing(database(operator)) as db:
        first, second = TransactionManager(), TransactionManager()
        for manager in (first, second):
            db.open(manager).root()["name"] = manager is first
        first.commit()
        with pytest.raises(ConflictError) as conflict:
            second.commit()
        second.abort()
        check(shown("Conflicts all day", "ConflictError"), f"ConflictError {conflict.value}")

        storage, meta = Storage(operator.cluster.masters, operator.cluster.name), TransactionMetaData()
        storage.tpc_begin(meta)
        data, serial = storage.load(ROOT)
        storage.store(ROOT, serial, data, "", meta)
        storage.tpc_vote(meta)

        def commit() -> None:
            with db.transaction() as connection:
                connection.root()["name"] = 2

        waiting = threading.Thread(target=commit)
        waiting.start()
        title = "Commits take seconds"
        operator.reads(title, "print transactions")
        operator.reads(title, "status")
        listed = operator.neoctl("print", "transactions").splitlines()[1:]
        (ttid,) = (line.split()[0] for line in listed if " voted " in line)
        command = next(c for c in re.findall(r"ADMIN (end 0x\w+)", section(title)))
        check(shown(title, command), operator.neoctl("end", ttid))
        waiting.join(PATIENCE_SECONDS)
        assert not waiting.is_alive()
        with pytest.raises(TransactionLostError):
            storage.tpc_finish(meta)
        storage.close()


def test_nodes_are_lost_and_come_back(operator: Operator) -> None:
    cluster = operator.cluster
    with closing(database(operator)) as db, db.transaction() as connection:
        connection.root()["name"] = PersistentMapping()
    cluster.kill("storage1")
    operator.waits("no storage node may fail", "status")
    with closing(database(operator)) as db, db.transaction() as connection:
        connection.root()["name"] = 1
    cluster.kill("storage2")
    operator.reads("The site stands still", "status")
    with pytest.raises(UnavailableError) as failure:
        Storage(cluster.masters, cluster.name, wait_timeout=1)
    check(shown("The site stands still", "UnavailableError"), f"UnavailableError {failure.value}")
    cluster.restart("storage1")
    operator.reads("The cluster does not start", "status")
    cluster.restart("storage2")
    operator.waits("No problem.", "status")

    cluster.kill("storage1")
    for path in cluster.folder.glob("storage1.sqlite*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.restart("storage1")
    operator.reads("A disk is lost", "status")
    (lost,) = re.findall(r"^(S\d) .*DOWN", operator.neoctl("print", "node"), re.MULTILINE)
    check(shown("A disk is lost", "replace S2 S3"), operator.neoctl("replace", lost, "S3"))
    operator.waits("No problem.", "status")

    title = "neoctl does not answer"
    nobody = "127.0.0.1:1"
    check(shown(title, f"-a {nobody} status"), operator.neoctl("status", admin=nobody))
    cluster.kill("master1")
    operator.waits("Not connected", "status")
    check(shown(title, "ADMIN status"), operator.neoctl("status"))


def test_copies_differ(operator: Operator) -> None:
    cluster, title = operator.cluster, "Copies differ"
    with closing(database(operator)) as db:
        for number in range(COMMITS):
            with db.transaction() as connection:
                connection.root()["name"] = number
    cluster.terminate("storage1")
    with closing(sqlite3.connect(cluster.folder / "storage1.sqlite")) as rows:
        assert rows.execute(
            "DELETE FROM obj WHERE tid = (SELECT tid FROM obj ORDER BY tid LIMIT 1 OFFSET 5)"
        ).rowcount
        rows.commit()
    cluster.restart("storage1")
    operator.waits("No problem.", "status")
    operator.neoctl("check")
    operator.reads(title, "status")
    port = _port(cluster, "storage2")
    (good,) = re.findall(rf"^(S\d) .*:{port} ", operator.neoctl("print", "node"), re.MULTILINE)
    check(shown(title, "check 0:S1"), operator.neoctl("check", f"0:{good}"))
    operator.reads(title, "print check")
    check(shown(title, "repair"), operator.neoctl("repair"))
    operator.waits("No problem.", "status")


def _port(cluster: Cluster, name: str) -> str:
    text = (cluster.folder / "neo.conf").read_text("utf-8").partition(f"[{name}]")[2]
    found = re.search(r"bind = .*:(\d+)", text)
    assert found is not None
    return found[1]
