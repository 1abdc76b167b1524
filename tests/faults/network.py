"""A network of machines in one: each has a network namespace, an address, and a cable to a switch.

Everything is made inside a namespace that the calling process must already be in (:func:`isolated`
gives the command), with a namespace of process ids around it: when the calling process ends, however
it ends, the kernel ends all the rest. Nothing is left on the machine, and no name or address of it is
touched.

What is cut loses packets in silence, as a broken switch does: nobody is told that a connection is over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

HUB = "10.77.0.1"
#: A station that does not exist: what is sent to it is lost.
_NOBODY = "02:00:00:00:00:01"
#: In Debian it is where not everybody looks.
_IP = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or "ip"
#: A namespace is there within milliseconds.
_DEADLINE_SECONDS = 30


class NetworkError(Exception):
    """The machine does not allow it; the message says what would."""


def isolated(command: Sequence[str]) -> list[str]:
    """``command``, to be run in namespaces of its own: as root, or as anybody whom the kernel allows
    user namespaces. Raises NetworkError."""
    unshare = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.getuid() != 0:
        unshare[1:1] = ["--user", "--map-root-user"]
    tried = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    if tried.returncode:
        raise NetworkError(
            f"this test makes a network of its own, and cannot: {tried.stderr.strip()}. Run it as "
            "root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
            "kernel.apparmor_restrict_unprivileged_userns=0); a container needs CAP_SYS_ADMIN"
        )
    return [*unshare, *command]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


class Machine:
    """A namespace that lives as long as a process that sleeps in it."""

    def __init__(self, number: int) -> None:
        self.address = f"10.77.0.{number}"
        self._cable = f"cable{number}"
        self._sleeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.prefix = ["nsenter", "--target", str(self._sleeper.pid), "--net"]
        self._wait()
        pid = str(self._sleeper.pid)
        _run(_IP, "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", pid)
        _run(_IP, "link", "set", self._cable, "master", "switch", "up")
        _run(*self.prefix, _IP, "address", "add", f"{self.address}/24", "dev", "eth0")
        _run(*self.prefix, _IP, "link", "set", "eth0", "up")
        _run(*self.prefix, _IP, "link", "set", "lo", "up")

    def _wait(self) -> None:
        ours = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while os.readlink(f"/proc/{self._sleeper.pid}/ns/net") == ours:
            if time.monotonic() > deadline:
                raise NetworkError("a network namespace does not come")
            time.sleep(0.001)

    def unplug(self) -> None:
        """Nobody reaches it, and it reaches nobody."""
        _run(_IP, "link", "set", self._cable, "down")

    def plug(self) -> None:
        _run(_IP, "link", "set", self._cable, "up")

    def set_mtu(self, size: int) -> None:
        """Of its cable: what is larger does not get through, neither way."""
        _run(_IP, "link", "set", self._cable, "mtu", str(size))
        _run(*self.prefix, _IP, "link", "set", "eth0", "mtu", str(size))

    def lose(self, other: Machine) -> None:
        """What it sends to another machine is lost; the other way is open."""
        where = ["to", other.address, "dev", "eth0"]
        _run(
            *self.prefix, _IP, "neighbour", "replace", *where, "lladdr", _NOBODY, "nud", "permanent"
        )

    def find(self, other: Machine) -> None:
        _run(*self.prefix, _IP, "neighbour", "del", other.address, "dev", "eth0")

    def close(self) -> None:
        self._sleeper.kill()
        self._sleeper.wait()


class Network:
    """The calling process is on a machine with the address :data:`HUB`, which is never cut off."""

    def __init__(self, names: Sequence[str]) -> None:
        _run(_IP, "link", "set", "lo", "up")
        _run(_IP, "link", "add", "switch", "type", "bridge")
        _run(_IP, "address", "add", f"{HUB}/24", "dev", "switch")
        _run(_IP, "link", "set", "switch", "up")
        self.machines = {name: Machine(number) for number, name in enumerate(names, 2)}

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()
