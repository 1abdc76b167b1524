"""``neoserver``: the nodes of a machine in one process.

They have the addresses, databases and logs of their sections in ``neo.conf``, so that each can as well
run in a process of its own. What they say to each other passes as objects (:mod:`neo.node.local`).
"""

from __future__ import annotations

import argparse
import configparser
import sys
from collections.abc import Callable, Sequence
from functools import partial

import neo.admin.__main__ as admin
import neo.master.__main__ as master
import neo.storage.__main__ as storage
from neo import __version__
from neo.net.sockets import parse_bind
from neo.net.transport import is_here
from neo.node.config import ConfigError, read_file
from neo.node.node_host import MakeCore
from neo.node.process import NodePlan, run_nodes
from neo.protocol.packets import Address
from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.database import Refusals

LoadSettings = Callable[[list[str]], argparse.Namespace]

#: In the order in which the nodes of a process start, and hear of its end: by the first letters of a
#: section's name.
LOAD: dict[str, LoadSettings] = {
    "master": master.load_settings,
    "storage": storage.load_settings,
    "admin": admin.load_settings,
}
ROLES = tuple(LOAD)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="neoserver",
        description="All nodes of this machine in one process: the sections of neo.conf whose address is"
        " one of this machine.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("-f", "--file", required=True, help="configuration file, such as neo.conf")
    add("-s", "--section", nargs="+", metavar="NAME", help="these sections instead")
    return parser.parse_args(argv)


def load(argv: list[str]) -> list[NodePlan]:
    """Return the nodes that the process runs, masters first. Raise ConfigError."""
    arguments = _arguments(argv)
    parser = read_file(arguments.file)
    names: list[str] = arguments.section or _here(arguments.file, parser)
    roles = {name: _role(name) for name in names}
    names = sorted(roles, key=lambda name: ROLES.index(roles[name]))
    return [_plan(arguments.file, name, roles[name]) for name in names]


def _here(path: str, parser: configparser.ConfigParser) -> list[str]:
    """Return the sections of this machine."""
    names = [name for name in parser.sections() if _is_here(name, parser[name].get("bind"))]
    if not names:
        raise ConfigError(
            f"{path!r} has no section whose address is one of this machine: choose some with --section"
        )
    return names


def _is_here(name: str, bind: str | None) -> bool:
    if bind is None:
        return True  # the node's own settings say what is missing
    try:
        address: Address = parse_bind(bind)
    except ValueError as e:
        raise ConfigError(f"section [{name}]: setting 'bind': {e}") from None
    return is_here(address[0])


def _role(name: str) -> str:
    for role in ROLES:
        if name.startswith(role):
            return role
    raise ConfigError(
        f"section [{name}]: the name of a section must begin with {', '.join(ROLES[:-1])} or {ROLES[-1]},"
        " to say what the node is; rename it, or choose other sections with --section"
    )


def _plan(path: str, name: str, role: str) -> NodePlan:
    try:
        settings = LOAD[role](["-f", path, "-s", name])
    except ConfigError as e:
        raise ConfigError(f"section [{name}]: {e}") from None
    return NodePlan(name, role, settings, _make_core(role))


def _make_core(role: str) -> MakeCore:
    if role == "storage":
        return partial(storage.make_core, acknowledged=Acknowledged(), refusals=Refusals())
    return master.make_core if role == "master" else admin.make_core


def main() -> int:
    """Run the process, and return its exit code."""
    return run_nodes("neoserver", load)


if __name__ == "__main__":
    sys.exit(main())
