"""A path with a small MTU, made by the kernel: the largest of the five sizes that passes is found.

Run as a script, inside namespaces of its own, it is the network and the two daemons.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from neo.transactor.client import ask_admin
from tests.faults.network import Network, isolated
from tests.faults.script import passes
from tests.support.patience import wait_until

LIMIT_SECONDS = 90
#: The MTU of the cable, with IPv4 and UDP headers.
MTU = 1280
NAMES = ("a", "b")


def test_the_largest_size_that_passes_a_narrow_path_is_found(tmp_path: Path) -> None:
    """The sizes of specification 20.35."""
    script = [sys.executable, "-m", "tests.faults.test_transactor_mtu", str(tmp_path)]
    assert "both are right" in passes(isolated(script), LIMIT_SECONDS)


def configure(folder: Path, name: str, addresses: dict[str, str]) -> list[str]:
    """Write the settings of one node. Return the command that starts it."""
    (folder / "tlog").mkdir(parents=True)
    (folder / "mlog").touch()
    here = addresses[name]
    lines = [
        "[transactor]", f"name = {name}", f"service = {here}:7001",
        f"tlog = {folder / 'tlog'}", f"mlog = {folder / 'mlog'}", f"log = {folder / 'log'}",
        "key = secret", "[peers]", *(f"{peer} = {host}:7000" for peer, host in addresses.items()),
    ]  # fmt: skip
    (folder / "conf").write_text("\n".join(lines) + "\n")
    return [sys.executable, "-m", "neo.transactor", "-c", str(folder / "conf"), "--nodetach"]


def path_of(folder: Path) -> str:
    """Return the path to the only peer, as the admin port says, or an empty text without an answer."""
    try:
        lines = ask_admin(str(folder / "admin.sock"), "peers").splitlines()
    except OSError:
        return ""
    return next((line.split(" ", 5)[5] for line in lines if not line.endswith("this node")), "")


def main(folder: Path) -> None:
    with ExitStack() as stack:
        network = Network(NAMES)
        stack.callback(network.close)
        addresses = {name: machine.address for name, machine in network.machines.items()}
        for name, machine in network.machines.items():
            machine.set_mtu(MTU)
            command = [*machine.prefix, *configure(folder / name, name, addresses)]
            daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            stack.callback(daemon.wait)
            stack.callback(daemon.kill)
        for name in NAMES:
            node = folder / name
            wait_until(lambda n=node: path_of(n) == "udp 1232 tcp", lambda n=node: path_of(n))
        print("both are right")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
