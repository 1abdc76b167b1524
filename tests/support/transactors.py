"""Real transactor daemons on loopback, each in its own process and folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neo.transactor.client import ask_admin
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range

SECRET = "test secret"
#: Number of ports: enough for seven daemons, and one that moves.
PORTS = 24


def connected(daemon: Daemon) -> bool:
    """Return whether a daemon is connected to its peers by all paths that its settings allow. The slow
    network of the benchmark has datagrams only."""
    ways = ["tcp", "udp"] if daemon.settings.get("udp") != "no" else ["tcp"]
    if daemon.settings.get("bind"):
        ways = ["udp"]
    lines = daemon.say("peers").splitlines()
    others = [line for line in lines if not line.endswith("this node")]
    return bool(lines) and all(way in line.split(" ", 5)[5] for line in others for way in ways)


class Daemon:
    def __init__(self, cluster: Transactors, name: str, settings: dict[str, str]) -> None:
        self.name = name
        self.folder = cluster.folder / name
        self.log = self.folder / "log"
        self.ports = {kind: next(cluster.ports) for kind in ("peer", "service", "admin")}
        self.process: subprocess.Popen[bytes] | None = None
        #: Addresses of peers that its configuration has instead of the real ones.
        self.elsewhere: dict[str, str] = {}
        self._cluster = cluster
        self.settings = dict(settings)
        (self.folder / "tlog").mkdir(parents=True)
        (self.folder / "mlog").touch()

    @property
    def service(self) -> tuple[str, int]:
        return ("127.0.0.1", self.ports["service"])

    @property
    def admin(self) -> tuple[str, int] | str:
        """Return the daemon's admin port if one is configured, else its socket."""
        if "admin" in self.settings:
            return ("127.0.0.1", self.ports["admin"])
        return str(self.folder / "admin.sock")

    def configure(self) -> Path:
        settings = {
            "name": self.name,
            "service": f"127.0.0.1:{self.ports['service']}",
            "tlog": str(self.folder / "tlog"),
            "mlog": str(self.folder / "mlog"),
            "pidfile": str(self.folder / "pid"),
            "signal_dumpfile": str(self.folder / "dump"),
            "log": str(self.log),
            "key": SECRET,
            **self.settings,
        }
        daemons = self._cluster.daemons.values()
        peers = {daemon.name: f"127.0.0.1:{daemon.ports['peer']}" for daemon in daemons}
        peers |= self.elsewhere
        lines = [
            "[transactor]",
            *(f"{name} = {value}" for name, value in settings.items() if value),
        ]
        lines += ["[peers]", *(f"{name} = {address}" for name, address in peers.items())]
        path = self.folder / "conf"
        path.write_text("\n".join(lines) + "\n")
        return path

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "neo.transactor", "-c", str(self.configure()), *options]

    def start(self, *options: str, ready: bool = True) -> None:
        self.process = subprocess.Popen(
            self.command("--nodetach", *options),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if ready:
            wait_until(lambda: bool(self.say("gettid")), self.told)

    def told(self) -> str:
        return f"{self.name}: {self.log.read_text() if self.log.exists() else 'no log'}"

    def say(self, command: str) -> str:
        """Return the answer of the admin port, or an empty text without an answer."""
        try:
            return ask_admin(self.admin, command, self.settings.get("admin_secret", ""))
        except OSError:
            return ""

    def info(self, name: str) -> str:
        """Return one value of the command info."""
        lines = dict(line.split(": ", 1) for line in self.say("info").splitlines())
        return lines.get(name, "")

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_SECONDS)
        self.process = None
        return code


class Transactors:
    """A cluster of daemons, named a, b, c, …"""

    def __init__(self, folder: Path, count: int, **settings: str) -> None:
        self.folder = folder
        self.settings = settings
        first = free_range(PORTS)
        #: Ports for all daemons, and for those that move.
        self.ports = iter(range(first, first + PORTS))
        self.daemons: dict[str, Daemon] = {}
        for name in "abcdefg"[:count]:
            self.add(name)

    def add(self, name: str) -> Daemon:
        self.daemons[name] = Daemon(self, name, self.settings)
        return self.daemons[name]

    def __getitem__(self, name: str) -> Daemon:
        return self.daemons[name]

    def __enter__(self) -> Transactors:
        for daemon in self.daemons.values():
            daemon.start(ready=False)
        for daemon in self.daemons.values():
            wait_until(lambda daemon=daemon: daemon.info("majority alive") == "yes", daemon.told)
        self.wait_connected()
        return self

    @contextmanager
    def running(self) -> Iterator[Transactors]:
        """Stop all started daemons at the end of the block."""
        try:
            yield self
        finally:
            self.__exit__()

    def wait_connected(self) -> None:
        for daemon in self.daemons.values():
            if daemon.process is not None:
                wait_until(lambda d=daemon: connected(d), daemon.told)

    def __exit__(self, *error: object) -> None:
        for daemon in self.daemons.values():
            if daemon.process is not None:
                os.kill(daemon.process.pid, signal.SIGCONT)
                daemon.kill()


def wait_same(cluster: Transactors, tid: int) -> None:
    """Wait until each transactor has the log up to this transaction."""
    for daemon in cluster.daemons.values():
        wait_until(lambda d=daemon: int(d.info("tlog tid") or -1) >= tid, daemon.told)
