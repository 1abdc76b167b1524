"""Three masters are killed, stopped and restarted while clients write: one serves, nothing is lost.

Real processes. ``NEO_MASTER_ROUNDS`` and ``NEO_MASTER_SEED`` choose a longer run or repeat one.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from neo.protocol.enums import NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import AnswerElection, AskElection, AskPrimary, SetPrimary
from neo.simple.children import STOP_SECONDS, launch, stop_all
from neoctl.client import AdminAway
from tests.faults.load import WRITERS, Load, check
from tests.faults.operator import neoctl
from tests.faults.reigns import epochs_of
from tests.faults.writer import prepare
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.patience import wait_until
from tests.support.ports import free_range
from tests.support.seeds import seed
from tests.support.standstill import stand_still

ROUNDS = int(os.environ.get("NEO_MASTER_ROUNDS", "6"))
M1 = nid_namespace(NodeType.MASTER) + 1


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(masters=3, storages=2, replicas=1, partitions=6) as running:
        yield running


@pytest.fixture
def load(cluster: Cluster, tmp_path: Path) -> Iterator[Load]:
    prepare(cluster.storage(), WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        yield load
    finally:
        load.stop()


def primary(cluster: Cluster, load: Load) -> str:
    """Return the name of the primary's process."""
    found: list[int] = []

    def known() -> bool:
        try:
            with cluster.simple.admin() as admin:
                found.append(admin.ask(AskPrimary()).primary_nid)
        except (AdminAway, ErrorAnswer):
            return False
        return True

    load.wait(known, "no primary")
    return f"master{found[-1] - M1 + 1}"


def hand_over(cluster: Cluster, load: Load, name: str) -> list[str]:
    """Wait until the master of this name is the primary, as ``neoctl set primary`` orders. Return what
    that said. While the machine stands still, masters may elect another: it is ordered again."""
    said: list[str] = []

    def is_primary() -> bool:
        if primary(cluster, load) == name:
            return True
        with suppress(AdminAway, ErrorAnswer), cluster.simple.admin() as admin:
            said.append(admin.ask(SetPrimary(M1 + int(name[-1]) - 1)).message)
        return False

    load.wait(is_primary, "it does not hand over")
    return said


def election(cluster: Cluster, load: Load) -> AnswerElection:
    found: list[AnswerElection] = []

    def known() -> bool:
        try:
            with cluster.simple.admin() as admin:
                found.append(admin.ask(AskElection()))
        except (AdminAway, ErrorAnswer):
            return False
        return True

    load.wait(known, "no primary")
    return found[-1]


def check_epochs(cluster: Cluster) -> None:
    """Check that each epoch had one primary, by the masters' logs."""
    epochs_of(cluster.simple.log(f"master{number}").read_text() for number in (1, 2, 3))


def test_masters_are_lost_and_come_back(cluster: Cluster, load: Load) -> None:
    choices = random.Random(seed("MASTER"))
    for number in range(ROUNDS):
        victim = primary(cluster, load) if number % 2 else f"master{choices.randrange(3) + 1}"
        how = choices.choice(("killed", "terminated", "stopped"))
        print(f"{victim} is {how}")
        process = cluster.simple.processes[victim]
        if how == "stopped":
            stand_still(process.pid)
            load.wait_commits(1 + choices.randrange(50))
            process.send_signal(signal.SIGCONT)
        else:
            if how == "killed":
                cluster.simple.kill(victim)
            else:
                assert cluster.simple.terminate(victim) == 0
            load.wait_commits(1 + choices.randrange(50))
            cluster.simple.restart(victim)
        load.wait_commits(1)
        # Otherwise the next loss could leave no majority with the whole log.
        load.wait(
            lambda: all(not row[4] for row in election(cluster, load).master_list),
            "a master does not come back",
        )
        check(cluster, load)
    check_epochs(cluster)


def test_a_master_that_lost_its_disk_learns_from_the_others(cluster: Cluster, load: Load) -> None:
    first = primary(cluster, load)
    lost = next(name for name in ("master1", "master2") if name != first)
    cluster.simple.kill(lost)
    (folder,) = [
        folder
        for folder in cluster.simple.folder.glob("*.election")
        if f"-{port(cluster, lost)}." in folder.name
    ]
    shutil.rmtree(folder)
    cluster.simple.restart(lost)
    load.logged(lost, "votes from now on")
    cluster.simple.kill(first)
    load.wait_commits(3)
    check(cluster, load)


def port(cluster: Cluster, name: str) -> int:
    (node,) = [node for node in cluster.simple.conf.nodes if node.name == name]
    return node.address[1]


def test_the_primary_hands_over(cluster: Cluster, load: Load) -> None:
    first = primary(cluster, load)
    other = next(name for name in ("master1", "master2") if name != first)
    said = hand_over(cluster, load, other)
    assert set(said) <= {f"M{other[-1]} becomes the primary master"}
    load.wait_commits(1)
    check(cluster, load)


# -- masters come and go, word for word as docs/masters.md says --------------------------------


@contextmanager
def fourth_master(cluster: Cluster, running: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a fourth master. Its ``masters`` are itself and the running ones."""
    simple = cluster.simple
    own = f"127.0.0.1:{free_range(1)}"
    options = ["-c", simple.name, "-m", f"{own} {running}", "-b", own]
    log = simple.folder / "master4.log"
    process = launch([sys.executable, "-m", "neo.master", *options], simple.folder, log)
    try:
        yield process
    finally:
        stop_all([process])


def wait_state(cluster: Cluster, load: Load, name: str, state: str) -> None:
    """Wait until ``neoctl print node master`` shows the state."""

    def shown() -> bool:
        try:
            rows = neoctl(cluster.simple.admin_address, "print", "node", "master")["nodes"]
        except AssertionError:
            return False  # the admin node looks for the primary
        return {row["nid"]: row["state"] for row in rows}.get(name) == state

    load.wait(shown, f"{name} is not {state}")


def notes(cluster: Cluster) -> dict[str, str]:
    """Return the remarks of ``neoctl print masters``."""
    rows = neoctl(cluster.simple.admin_address, "print", "masters")["masters"]
    return {row["nid"]: row["note"] for row in rows}


def test_a_master_joins_and_the_primary_leaves_while_clients_go_on(
    cluster: Cluster, load: Load
) -> None:
    simple = cluster.simple
    first = primary(cluster, load)
    leaver = f"M{first[-1]}"
    with fourth_master(cluster, simple.masters) as process:
        wait_state(cluster, load, "M4", "PENDING")
        neoctl(simple.admin_address, "add", "M4")
        load.wait(lambda: not notes(cluster)["M4"], "M4 does not vote")
        load.wait_commits(3)
        hand_over(cluster, load, "master4")
        load.wait_commits(3)

        def ends() -> bool:
            if primary(cluster, load) == first:
                hand_over(cluster, load, "master4")
            neoctl(simple.admin_address, "kill", leaver)
            return True

        # What was not refused is not repeated: the process ends.
        wait_until(ends, f"{leaver} is not told to end", excuses=(AssertionError,))
        assert simple.processes.pop(first).wait(STOP_SECONDS) == 0
        wait_state(cluster, load, leaver, "DOWN")
        neoctl(simple.admin_address, "drop", leaver)
        load.wait_commits(3)
        assert sorted(notes(cluster)) == sorted({"M1", "M2", "M3", "M4"} - {leaver})
        # Two of the three members are a majority; the dropped master does not count.
        process.kill()
        load.wait_commits(3)
        check(cluster, load)
    check_epochs(cluster)


def test_a_master_that_is_lost_for_ever_is_replaced_by_one_with_another_address(
    cluster: Cluster, load: Load
) -> None:
    simple = cluster.simple
    first = primary(cluster, load)
    lost, other = (name for name in ("master1", "master2", "master3") if name != first)
    simple.kill(lost)
    running = " ".join(f"127.0.0.1:{port(cluster, name)}" for name in (first, other))
    with fourth_master(cluster, running):
        wait_state(cluster, load, "M4", "PENDING")
        wait_state(cluster, load, f"M{lost[-1]}", "DOWN")
        neoctl(simple.admin_address, "drop", f"M{lost[-1]}")
        neoctl(simple.admin_address, "add", "M4")
        load.wait(lambda: not notes(cluster)["M4"], "M4 does not vote")
        load.wait_commits(3)
        # Without the new master the last of the first three would have no majority.
        simple.kill(first)
        load.wait_commits(3)
        check(cluster, load)
    check_epochs(cluster)


def test_masters_with_certificates(tmp_path: Path) -> None:
    ca, cert, key = Authority(tmp_path).node("all")
    with Cluster(masters=3, storages=1, ca=ca, cert=cert, key=key) as cluster:
        with cluster.simple.admin() as admin:
            first = f"master{admin.ask(AskPrimary()).primary_nid - M1 + 1}"
        cluster.simple.kill(first)
        cluster.simple.wait_running()
