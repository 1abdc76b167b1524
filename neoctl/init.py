"""The verb that writes the folder of a new cluster: settings, certificates, units, firewall."""

from __future__ import annotations

import ipaddress
import re
import sys
from pathlib import Path

from neo.net.sockets import parse_address
from neo.protocol.packets import Address
from neoctl.certificates import NODE_DAYS, Authority
from neoctl.layout import PACKAGE_HOME, PORTS, Plan
from neoctl.units import SETTINGS
from neoctl.verbs import Arguments, CommandError, Reply, local_verb

#: Port of a master if none is given; its storage node and admin node have the next two, and the pages of
#: the admin node the fourth, on loopback.
PORT = 2050
PORT_MAX = 65536 - PORTS
UNITS = "etc/systemd/system"


@local_verb(
    "init FOLDER [NAME HOST...]",
    "write all files of a new cluster: settings, certificates, units",
    1,
    None,
)
def init(arguments: Arguments) -> Reply:
    """Data: ``folder name machines`` (addresses of masters) and ``files`` (paths in the folder)."""
    folder, *words = arguments.words
    plan = _plan(words or _asked())
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise CommandError(f"folder {folder!r} is not empty: choose a new one")
        _write(path, plan)
    except OSError as e:
        raise CommandError(f"folder {folder!r} cannot be written: {e.strerror}") from None
    files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    data = {"folder": str(path), "name": plan.name, "machines": plan.masters, "files": files}
    hint = f"what to do with these files: {path / 'README.md'}"
    return Reply("\n".join(str(path / file) for file in files), data, 0, hint)


def _asked() -> list[str]:
    """Return name and hosts, as a person at the terminal says them."""
    if not sys.stdin.isatty():
        raise CommandError(
            "write: neoctl init FOLDER NAME HOST..., with one host or at least three"
        )
    try:
        print(
            "Name of the cluster, which cannot be changed (such as shop): ", end="", file=sys.stderr
        )
        name = input()
        print(
            "Addresses of its machines, one or three (10.0.0.1 10.0.0.2 …): ",
            end="",
            file=sys.stderr,
        )
        return [name.strip(), *input().replace(",", " ").split()]
    except EOFError:
        raise CommandError("no answer: nothing is written") from None


def _plan(words: list[str]) -> Plan:
    name, *hosts = words
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise CommandError(
            f"{name!r} is no name of a cluster: write letters, digits, '-', '_' and '.'"
        )
    machines = [_machine(host) for host in hosts]
    if len(machines) in (0, 2):
        raise CommandError(
            f"{len(machines)} machines: name one, or at least three, because two are worse than one"
        )
    if len(set(machines)) < len(machines):
        raise CommandError("an address is named twice: each machine needs one of its own")
    if len({":" in host for host, _ in machines}) > 1:
        raise CommandError("name all machines by IPv4 addresses, or all by IPv6 addresses")
    return Plan(name, machines, sys.prefix == PACKAGE_HOME)


def _machine(text: str) -> Address:
    try:
        try:
            host, port = str(ipaddress.ip_address(text)), PORT
        except ValueError:
            host, port = parse_address(text, PORT)
        if not 0 < port <= PORT_MAX:
            raise ValueError(f"{text!r}: the port of a master is at most {PORT_MAX}")
        return host, port
    except ValueError as e:
        raise CommandError(
            f"{e}; or write an IP address alone: the ports are then {PORT} to {PORT + PORTS - 1}"
        ) from None


def _write(path: Path, plan: Plan) -> None:
    authority = Authority(plan.name)
    authority.write(path / "ca.crt", path / "ca.key")
    (path / "neo.conf").write_text(plan.conf())
    for number in range(1, len(plan.machines) + 1):
        machine = path / f"machine{number}"
        settings = machine / SETTINGS.lstrip("/")
        settings.mkdir(parents=True)
        (settings / "neo.conf").write_text(plan.conf())
        (settings / "neo.nft").write_text(plan.firewall())
        authority.write(settings / "ca.crt")
        authority.write_member(f"machine{number}", settings / "node.crt", settings / "node.key")
        for name, text in plan.units().items():
            (machine / UNITS).mkdir(parents=True, exist_ok=True)
            (machine / UNITS / name).write_text(text)
    application = path / "application"
    application.mkdir()
    authority.write(application / "ca.crt")
    authority.write_member(
        "application", application / "application.crt", application / "application.key"
    )
    (application / "zope.conf").write_text(plan.zconfig())
    (path / "README.md").write_text(plan.todo(NODE_DAYS))
