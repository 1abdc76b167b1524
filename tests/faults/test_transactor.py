"""Real transactors: the table of the example on three of them, which are killed at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from neo.transactor.client import Transactor
from neo.transactor.example import Table
from tests.support.forwarder import Forwarder
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.seeds import seed
from tests.support.standstill import stand_still
from tests.support.transactors import Transactors, wait_same

ROUNDS = int(os.environ.get("NEO_KILL_ROUNDS", 6))


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Transactors]:
    with Transactors(tmp_path, 3) as cluster:
        yield cluster


class Writer(threading.Thread):
    """Increments its row, one confirmed change after the other."""

    def __init__(self, table: Table, row: str) -> None:
        super().__init__()
        self.table = table
        self.row = row
        self.count = 0
        self.ended = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                old = str(self.count) if self.count else None
                assert self.table.replace(self.row, old, str(self.count + 1), PATIENCE_SECONDS), (
                    "changed twice"
                )
                self.count += 1
        except Exception as e:  # noqa: BLE001 - the test fails with it
            self.error = e


def test_three_tables_stay_equal_while_transactors_are_killed_at_random(three: Transactors) -> None:
    chance = random.Random(seed("KILL"))
    tables = {name: Table(daemon.service) for name, daemon in three.daemons.items()}
    writers = [Writer(table, name) for name, table in tables.items()]
    for writer in writers:
        writer.start()
    for _ in range(ROUNDS):
        name = chance.choice("abc")
        before = sum(writer.count for writer in writers)
        time.sleep(chance.random() * 0.3)  # the moment of the kill
        three[name].kill()
        wait_until(
            lambda before=before: sum(w.count for w in writers) > before + 2, "two do not go on"
        )
        three[name].start()
    for writer in writers:
        writer.ended.set()
        writer.join(PATIENCE_SECONDS)
        assert writer.error is None, writer.error
    newest = max(table.tid for table in tables.values())
    for name, table in tables.items():
        wait_until(lambda table=table: table.tid >= newest, three[name].told)
    assert len({table.digest() for table in tables.values()}) == 1
    assert {writer.row: writer.count for writer in writers} == {
        row: int(tables["a"].get(row) or 0) for row in tables
    }
    for table in tables.values():
        table.close()


def test_a_stopped_node_is_gone_around_and_catches_up(three: Transactors) -> None:
    table = Table(three["a"].service)
    table.set("k", "1", PATIENCE_SECONDS)
    assert three["b"].process is not None
    stand_still(three["b"].process.pid)
    for n in range(5):
        table.set("k", str(n), PATIENCE_SECONDS)
    wait_until(lambda: three["a"].info("suspected") == "b", three["a"].told)
    os.kill(three["b"].process.pid, signal.SIGCONT)
    wait_same(three, table.tid - 1)
    wait_until(lambda: three["a"].info("suspected") == "none", three["a"].told)
    table.close()


def test_application_servers_outlast_a_stop_and_a_start(three: Transactors) -> None:
    with ExitStack() as stack:
        between = Forwarder(three["a"].service)
        stack.callback(between.close)
        table = Table(between.address)
        stack.callback(table.close)
        table.set("k", "1", PATIENCE_SECONDS)
        assert three["a"].say("stop") == "stopped\n"
        wait_until(lambda: between.count > 2, three["a"].told)  # refused, and connected again
        writer = Writer(table, "row")
        writer.start()
        assert three["a"].say("start") == "started\n"
        wait_until(lambda: writer.count > 1 or writer.error is not None, three["a"].told)
        writer.ended.set()
        writer.join(PATIENCE_SECONDS)
        assert writer.error is None, writer.error


def test_failure_is_detected_while_nothing_is_posted(three: Transactors) -> None:
    three["c"].kill()
    wait_until(lambda: three["a"].info("suspected") == "c", three["a"].told)
    three["b"].kill()
    wait_until(lambda: three["a"].info("majority alive") == "no", three["a"].told)


def test_a_node_without_its_logs_is_recovered_by_one_command(three: Transactors) -> None:
    table = Table(three["a"].service)
    for n in range(3):
        table.set("k", str(n), PATIENCE_SECONDS)
    three["b"].kill()
    table.set("k", "without b", PATIENCE_SECONDS)
    (three["b"].folder / "mlog").unlink()
    (three["b"].folder / "tlog").rename(three["b"].folder / "gone")
    refused = subprocess.run(
        three["b"].command("-nd"), capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert refused.returncode == 1 and "--recover" in refused.stderr
    three["b"].start("--recover")
    wait_until(lambda: three["b"].info("role") == "votes", three["b"].told)
    # The node votes again: now another one may be away.
    three["c"].kill()
    table.set("k", "without c", PATIENCE_SECONDS)
    wait_until(lambda: int(three["b"].info("tlog tid") or 0) >= table.tid - 1, three["b"].told)
    table.close()


def test_a_node_whose_logs_were_emptied_is_not_believed(three: Transactors) -> None:
    table = Table(three["a"].service)
    table.set("k", "1", PATIENCE_SECONDS)
    three["b"].kill()
    (three["b"].folder / "mlog").write_bytes(b"")
    three["b"].start()
    wait_until(lambda: three["a"].info("strangers") == "b", three["a"].told)
    assert "b came back with another journal" in three["a"].log.read_text()
    assert three["a"].say('reset_node "b"') == "reset_node b\n"
    wait_until(lambda: three["a"].info("strangers") == "none", three["a"].told)
    table.close()


def test_members_are_added_moved_and_removed_while_the_cluster_runs(three: Transactors) -> None:
    table = Table(three["a"].service)
    table.set("k", "1", PATIENCE_SECONDS)
    new = three.add("d")
    assert three["a"].say(f'add_peer "d" 127.0.0.1 {new.ports["peer"]}').startswith("posted")
    wait_until(lambda: three["b"].info("members") == "a, b, c, d", three["b"].told)
    new.start("--join")
    wait_until(lambda: new.info("role") == "votes", new.told)
    assert three["a"].say('remove_peer "c"').startswith("posted")
    wait_until(lambda: new.info("members") == "a, b, d", new.told)
    three["c"].kill()
    three["b"].kill()
    table.set("k", "with a and d only", PATIENCE_SECONDS)
    wait_until(lambda: new.info("tlog tid") == str(table.tid - 1), new.told)
    # The first members in its log are those that it learned, not those of its configuration.
    new.kill()
    new.start()
    table.set("k", "with a and d again", PATIENCE_SECONDS)
    three["b"].ports["peer"] = next(three.ports)  # it moves
    assert (
        three["a"].say(f'move_peer "b" 127.0.0.1 {three["b"].ports["peer"]}').startswith("posted")
    )
    three["b"].start()
    wait_until(lambda: "not reached" not in three["a"].say("peers"), three["a"].told)
    wait_until(lambda: three["b"].info("tlog tid") == three["a"].info("tlog tid"), three["b"].told)
    table.close()


def test_a_peer_of_another_address_family_or_of_no_address_does_no_harm(tmp_path: Path) -> None:
    """The peer is in the configuration, and in the log, where each start finds it again."""
    cluster = Transactors(tmp_path, 3)
    cluster["a"].elsewhere = {"b": "[::1]:7000"}
    for daemon in cluster.daemons.values():
        daemon.start(ready=False)
    with cluster.running():
        table = Table(cluster["a"].service)
        table.set("k", "0", PATIENCE_SECONDS)
        for name, host in (("y", "::1"), ("z", "nowhere.invalid")):
            added = cluster["c"].say(f'add_peer "{name}" {host} 7000')
            assert added.startswith("posted"), added
            table.set("k", name, PATIENCE_SECONDS)
        refused = cluster["c"].say('add_peer "x" b..example 7000')
        assert refused.startswith("error: b..example 7000 is not an address"), refused
        wait_until(lambda: "nowhere.invalid cannot be" in cluster["c"].told(), cluster["c"].told)
        cluster["a"].kill()
        cluster["a"].start()
        table.set("k", "again", PATIENCE_SECONDS)
        wait_same(cluster, table.tid - 1)
        table.close()


def test_two_nodes_that_cannot_see_each_other_use_the_third(tmp_path: Path) -> None:
    cluster = Transactors(tmp_path, 3)
    cluster["a"].elsewhere, cluster["b"].elsewhere = {"b": "127.0.0.1:9"}, {"a": "127.0.0.1:9"}
    for daemon in cluster.daemons.values():
        daemon.start(ready=False)
    with cluster.running():
        wait_until(lambda: "through c" in cluster["a"].say("peers"), cluster["a"].told)
        wait_until(lambda: "through c" in cluster["b"].say("peers"), cluster["b"].told)
        table = Table(cluster["a"].service)
        table.set("k", "v", PATIENCE_SECONDS)
        wait_same(cluster, 1)
        wait_until(lambda: cluster["a"].info("suspected") == "none", cluster["a"].told)
        table.close()


def test_without_udp_tcp_is_enough(tmp_path: Path) -> None:
    with Transactors(tmp_path, 3, udp="no") as cluster:
        table = Table(cluster["c"].service)
        table.set("k", "v", PATIENCE_SECONDS)
        wait_same(cluster, 1)
        assert "udp" not in cluster["a"].say("peers")
        table.close()


def wait_linked(cluster: Transactors) -> None:
    """Wait until each of three nodes has a connection to each other one."""
    for daemon in cluster.daemons.values():
        wait_until(lambda d=daemon: d.say("peers").count(" tcp\n") == 2, daemon.told)


def test_ports_of_peers_may_be_mapped(tmp_path: Path) -> None:
    """All nodes know each other by mapped ports, which forward to the real ones; with TCP only."""
    cluster = Transactors(tmp_path, 3, udp="no")
    mapped = {}
    with ExitStack() as stack:
        for name, daemon in cluster.daemons.items():
            here = ("127.0.0.1", daemon.ports["peer"])
            mapped[name] = Forwarder(here)
            stack.callback(mapped[name].close)
            daemon.settings["bind"] = f"{here[0]}:{here[1]}"
        for daemon in cluster.daemons.values():
            daemon.elsewhere = {name: "{}:{}".format(*m.address) for name, m in mapped.items()}
            daemon.start(ready=False)
        stack.enter_context(cluster.running())
        for name in ("b", "a"):
            table = Table(cluster[name].service)
            table.set("k", name, PATIENCE_SECONDS)
            table.close()
        wait_same(cluster, 2)
        wait_linked(cluster)
        cluster["b"].kill()
        cluster["b"].start()
        wait_linked(cluster)
        # The node with the lower name dials; the other one may see the end of the old connection late.
        wait_until(lambda: mapped["b"].count >= 2 and mapped["c"].count >= 3, cluster["c"].told)
        assert mapped["a"].count == 0


def test_large_specifications_arrive(three: Transactors) -> None:
    seen: list[bytes] = []
    client = Transactor(three["b"].service, lambda tid, data: seen.append(data))
    data = random.Random(1).randbytes(3_000_000)
    client.execute(data, PATIENCE_SECONDS)
    assert seen == [data]
    wait_same(three, 1)
    client.close()


def test_several_application_servers_of_one_transactor_all_get_on(three: Transactors) -> None:
    tables = [Table(three["a"].service) for _ in range(4)]
    writers = [Writer(table, f"row{n}") for n, table in enumerate(tables)]
    for writer in writers:
        writer.start()
    wait_until(
        lambda: min(writer.count for writer in writers) >= 5,
        lambda: str([w.count for w in writers]),
    )
    for writer in writers:
        writer.ended.set()
        writer.join(PATIENCE_SECONDS)
        assert writer.error is None, writer.error
    for table in tables:
        table.close()
