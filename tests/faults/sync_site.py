"""A site of :mod:`tests.faults.sync_sites`: a cluster on one machine, maybe the backup of the other."""

from __future__ import annotations

import configparser
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from neo.protocol.enums import ClusterState
from neo.protocol.packets import (
    A,
    AskClusterState,
    AskSync,
    Request,
    SetClusterState,
    SyncRow,
)
from neo.simple.conf import NodeConf
from tests.faults.machines import MachineCluster
from tests.faults.network import Machine, Network
from tests.support.cluster import AWAY
from tests.support.patience import PATIENCE_SECONDS, wait_until

#: The sites differ in their replicas. They need the same number of partitions.
REPLICAS = {"east": 0, "west": 1}
STORAGES, PARTITIONS = 2, 6
#: The least that is allowed, in seconds.
SYNC_TIMEOUT = 2
WAIT_SECONDS = PATIENCE_SECONDS
_END = re.compile(r"standby mode ends at transaction ([0-9a-f]{16})")


def _configuration(
    folder: Path, network: Network, name: str, other: str, masters: int, policy: str
) -> configparser.ConfigParser:
    def addresses(site: str) -> list[str]:
        return [f"{network.machines[site].address}:{2050 + number}" for number in range(masters)]

    host = network.machines[name].address
    parser = configparser.ConfigParser(interpolation=None)
    parser["DEFAULT"] = {
        "cluster": name,
        "masters": " ".join(addresses(name)),
        "partitions": str(PARTITIONS),
        "replicas": str(REPLICAS[name]),
        "autostart": str(STORAGES),
        "adapter": "SQLite",
        # Each is a synchronous backup of the other one when it is told to be a backup.
        "upstream_cluster": other,
        "upstream_masters": " ".join(addresses(other)),
        "sync": "true",
        "sync_backups": other,
        "sync_timeout": str(SYNC_TIMEOUT),
        "sync_policy": policy,
    }
    for number, bind in enumerate(addresses(name), 1):
        parser[f"master{number}"] = {"bind": bind}
        if masters > 1:
            log = str(folder / f"master{number}.election")
            parser[f"master{number}"]["election_log"] = log
    for number in range(1, STORAGES + 1):
        database = str(folder / f"storage{number}.sqlite")
        parser[f"storage{number}"] = {"bind": f"{host}:{2060 + number}", "database": database}
    parser["admin"] = {"bind": f"{host}:2070"}
    for section in parser.sections():
        parser[section]["logfile"] = str(folder / f"{section}.log")
    return parser


class Site(MachineCluster):
    """A cluster of which all nodes run on one machine."""

    def __init__(
        self, folder: Path, network: Network, other: str, masters: int, policy: str
    ) -> None:
        """``folder``: new; its name is that of the site."""
        folder.mkdir()
        name = folder.name
        self.machine: Machine = network.machines[name]
        super().__init__(
            folder, network, _configuration(folder, network, name, other, masters, policy)
        )

    def command(self, node: NodeConf) -> list[str]:
        return [*self.machine.prefix, *super().command(node)]

    def ask(self, message: Request[A]) -> A:
        with self.admin() as admin:
            return admin.ask(message)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait for a condition, while all processes that were started run."""

        def checked() -> bool:
            self.check()
            return condition()

        wait_until(checked, f"{self.name}: {what}", seconds, excuses=AWAY)

    def destroy(self) -> float:
        """Kill all processes at once. Return the time."""
        when = time.monotonic()
        self.signal_all(signal.SIGKILL)
        for name in list(self.processes):
            self.kill(name)
        return when

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all processes at once."""
        for process in self.processes.values():
            os.kill(process.pid, number)

    def set_state(self, wanted: ClusterState) -> None:
        """Repeat the command as long as it is refused."""

        def asked() -> bool:
            self.ask(SetClusterState(wanted))
            return True

        self.wait(asked, f"{wanted.name} is refused")

    def is_state(self, state: ClusterState) -> bool:
        return self.ask(AskClusterState()).state is state

    # -- as a synchronous backup, and with one -------------------------------------------------------

    def own(self) -> SyncRow | None:
        """Return what this backup says of itself, None while it does not serve as one."""
        return self.ask(AskSync()).own

    def claim(self) -> tuple[float, bytes]:
        """Return the time until which this backup says that it was in sync, or is, and the tid up to
        which it says that it is complete."""
        asked = time.monotonic()
        row = self.own()
        assert row is not None, f"{self.name} is no backup"
        _, _, _, tid, seconds, _ = row
        assert seconds is not None and tid is not None, f"{self.name} was never in sync"
        return asked - seconds, tid

    def is_in_sync(self) -> bool:
        row = self.own()
        return row is not None and row[1] == "sync"

    def backup_is(self, state: str) -> bool:
        return [row[1] for row in self.ask(AskSync()).backup_list] == [state]

    def misses_backup(self, least: float) -> bool:
        """Return whether the backup has not been in sync for so many seconds, or never since the present
        primary master began: another master may have taken over."""
        ((_, _, _, _, seconds, _),) = self.ask(AskSync()).backup_list
        return seconds is None or seconds > least

    def cut_tid(self) -> bytes:
        """Return the tid at which backup mode ended."""
        logs = [self.log(node.name).read_text() for node in self.conf.of_role("master")]
        return max(bytes.fromhex(tid) for log in logs for tid in _END.findall(log))
