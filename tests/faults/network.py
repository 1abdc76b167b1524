"""A network of machines on one machine: each has a network namespace, an address, and a cable to a
switch.

The calling process must already be in a namespace of its own (:func:`isolated` gives the command),
inside a namespace of process ids. When the calling process ends in any way, the kernel ends all the
others. Nothing is left on the machine, and none of its names and addresses is touched.

A cut loses packets silently, as a broken switch does: no process learns that a connection is over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.support.patience import wait_until

HUB = "10.77.0.1"
#: The hardware address of a station that does not exist: packets to it are lost.
_NOBODY = "02:00:00:00:00:01"
#: Debian installs it into a folder that is not in every PATH.
IP = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or "ip"
#: A namespace is created within milliseconds.


class NetworkError(Exception):
    """The machine does not allow namespaces. The message says which setting would allow them."""


def isolated(command: Sequence[str]) -> list[str]:
    """Return the command that runs ``command`` in namespaces of its own. Raise NetworkError. It works
    as root, or as a user that the kernel allows user namespaces."""
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


def run(*command: str) -> None:
    """Run a command. Raise NetworkError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


class Machine:
    """A network namespace, which lives as long as a process that sleeps in it."""

    def __init__(self, number: int) -> None:
        self.address = f"10.77.0.{number}"
        self._cable = f"cable{number}"
        self._sleeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.pid = str(self._sleeper.pid)
        self.prefix = ["nsenter", "--target", self.pid, "--net"]
        self._wait()
        run(IP, "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        run(IP, "link", "set", self._cable, "master", "switch", "up")
        run(*self.prefix, IP, "address", "add", f"{self.address}/24", "dev", "eth0")
        run(*self.prefix, IP, "link", "set", "eth0", "up")
        run(*self.prefix, IP, "link", "set", "lo", "up")

    def _wait(self) -> None:
        ours = os.readlink("/proc/self/ns/net")
        there = f"/proc/{self._sleeper.pid}/ns/net"
        wait_until(lambda: os.readlink(there) != ours, "a network namespace does not come", poll=0.001)

    def unplug(self) -> None:
        """Cut the machine off from all others, in both directions."""
        run(IP, "link", "set", self._cable, "down")

    def plug(self) -> None:
        run(IP, "link", "set", self._cable, "up")

    def set_mtu(self, size: int) -> None:
        """Set the MTU of the cable: larger packets are lost in both directions."""
        run(IP, "link", "set", self._cable, "mtu", str(size))
        run(*self.prefix, IP, "link", "set", "eth0", "mtu", str(size))

    def lose(self, other: Machine) -> None:
        """Lose the packets from this machine to another one; the other direction stays open."""
        where = ["to", other.address, "dev", "eth0"]
        run(
            *self.prefix, IP, "neighbour", "replace", *where, "lladdr", _NOBODY, "nud", "permanent"
        )

    def find(self, other: Machine) -> None:
        run(*self.prefix, IP, "neighbour", "del", other.address, "dev", "eth0")

    def close(self) -> None:
        self._sleeper.kill()
        self._sleeper.wait()


class Network:
    """The network. The calling process is on a machine with the address :data:`HUB`, which is never cut
    off."""

    def __init__(self, names: Sequence[str]) -> None:
        run(IP, "link", "set", "lo", "up")
        run(IP, "link", "add", "switch", "type", "bridge")
        run(IP, "address", "add", f"{HUB}/24", "dev", "switch")
        run(IP, "link", "set", "switch", "up")
        self.machines = {name: Machine(number) for number, name in enumerate(names, 2)}

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()
