"""``neo.conf`` of a small cluster: its shape, addresses and files.

It is written once, when the folder is new. Later starts read it, so a folder keeps its ports and its
data. The nodes read the same file (``neostorage -f neo.conf -s storage1``).
"""

from __future__ import annotations

import configparser
import ipaddress
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from neo.net.sockets import format_address, parse_bind
from neo.net.transport import bound_socket
from neo.node.config import ConfigError, read_file
from neo.protocol.packets import Address

#: Ports below the range of outgoing connections, so that none is taken between two starts of a cluster.
FIRST_PORT = 20000
LAST_PORT = 32000
HOST = "127.0.0.1"
ROLES = ("master", "storage", "admin")


class ConfError(Exception):
    """The folder does not hold such a cluster. The message says what to do."""


@dataclass(frozen=True)
class Shape:
    """The shape of a new cluster. ``database``: template of the database strings of the storage nodes,
    with ``{n}`` for 1, 2…; None: a SQLite file in the folder. ``host``: address of this machine where
    all nodes listen, IPv6 without brackets. ``settings``: more lines of ``[DEFAULT]``."""

    name: str = "neo"
    masters: int = 1
    storages: int = 1
    partitions: int = 12
    replicas: int = 0
    adapter: str = "SQLite"
    database: str | None = None
    host: str = HOST
    port_base: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ConfError if no cluster can have this shape."""
        try:
            ipaddress.ip_address(self.host)
            bound_socket((self.host, 0)).close()
        except (OSError, ValueError) as e:
            raise ConfError(
                f"host {self.host!r} is not an IP address of this machine, such as {HOST} or ::1: {e}"
            ) from None
        for name in ("masters", "storages", "partitions"):
            if getattr(self, name) < 1:
                raise ConfError(f"{name} is {getattr(self, name)}: at least 1 is needed")
        if not 0 <= self.replicas < self.storages:
            raise ConfError(
                f"{self.replicas} replicas need at least {self.replicas + 1} storage nodes, "
                f"not {self.storages}: give --storages {self.replicas + 1}"
            )
        if self.database is None and self.adapter != "SQLite":
            raise ConfError(
                f"adapter {self.adapter} needs --database with {{n}} for the number of the node, "
                "for example 'user:password@neo{n}'; the databases must exist"
            )
        if self.database is not None and self.storages > 1 and "{n}" not in self.database:
            raise ConfError(
                f"database {self.database!r} would be shared by {self.storages} storage nodes: "
                "write {n} where the number of the node goes"
            )


@dataclass(frozen=True)
class NodeConf:
    """One section. ``name``: ``master1``, ``storage2``, ``admin``."""

    name: str
    role: str
    address: Address
    logfile: Path


class ClusterConf:
    """The parsed file. Raises ConfError if it is not the file of a small cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            parser = read_file(path)
            self.values = dict(parser.defaults())
            self.name = self.values["cluster"]
            self.masters = self.values["masters"]
            self.nodes = [_node(parser, name) for name in parser.sections()]
        except (ConfigError, KeyError, ValueError) as e:
            raise ConfError(
                f"{path} is not the file of a neosimple cluster ({e}): choose another folder"
            ) from None
        for role in ROLES:
            if not self.of_role(role):
                raise ConfError(f"{path} has no section of a {role}: choose another folder")

    def of_role(self, role: str) -> list[NodeConf]:
        return [node for node in self.nodes if node.role == role]

    def check(self, wanted: Mapping[str, object]) -> None:
        """Raise ConfError if the cluster of this folder is not the wanted one."""
        actual = {
            "name": self.name,
            "host": self.of_role("master")[0].address[0],
            "masters": len(self.of_role("master")),
            "storages": len(self.of_role("storage")),
            "partitions": int(self.values["partitions"]),
            "replicas": int(self.values["replicas"]),
            "adapter": self.values["adapter"],
        }
        for name, value in actual.items():
            if wanted.get(name) not in (None, value):
                raise ConfError(
                    f"{self.path.parent} holds a cluster with {name} {value}, not "
                    f"{wanted[name]}: choose another folder, or leave the option out"
                )
        first = self.nodes[0].address[1]
        if wanted.get("port_base") not in (None, first):
            raise ConfError(
                f"{self.path.parent} holds a cluster whose first port is {first}, not"
                f" {wanted['port_base']}: leave --port-base out, or write other addresses into"
                f" {self.path}"
            )


def _node(parser: configparser.ConfigParser, name: str) -> NodeConf:
    section = parser[name]
    role = name.rstrip("0123456789")
    if role not in ROLES:
        raise ValueError(f"section [{name}] is no master, storage or admin")
    return NodeConf(name, role, parse_bind(section["bind"]), Path(section["logfile"]))


def create(path: Path, shape: Shape) -> ClusterConf:
    """Write the file of a new cluster with free addresses, and return it. Raises ConfError."""
    shape.check()
    names = [f"master{n + 1}" for n in range(shape.masters)]
    names += [f"storage{n + 1}" for n in range(shape.storages)]
    names.append("admin")
    addresses = dict(zip(names, _free_addresses(len(names), shape.host, shape.port_base), strict=True))
    parser = configparser.ConfigParser(interpolation=None)
    parser["DEFAULT"] = {
        "cluster": shape.name,
        "masters": " ".join(addresses[name] for name in names if name.startswith("master")),
        "partitions": str(shape.partitions),
        "replicas": str(shape.replicas),
        "autostart": str(shape.storages),
        "adapter": shape.adapter,
        **shape.settings,
    }
    folder = path.parent
    for name in names:
        parser[name] = {"bind": addresses[name], "logfile": str(folder / f"{name}.log")}
        if name.startswith("storage"):
            parser[name]["database"] = (
                str(folder / f"{name}.sqlite")
                if shape.database is None
                else shape.database.replace("{n}", name.removeprefix("storage"))
            )
            if shape.adapter != "SQLite":
                parser[name]["mark"] = str(folder / f"{name}.acknowledged")
                parser[name]["blob_dir"] = str(folder / f"{name}.blobs")
    _write_durably(path, parser)
    return ClusterConf(path)


def _write_durably(path: Path, parser: configparser.ConfigParser) -> None:
    """Write a new file, for its owner alone, because it may have the password of a database: after a
    crash all of it is there, or nothing. Raise OSError."""
    draft = path.with_name(f"{path.name}.new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        parser.write(file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    for folder in (path.parent, path.parent.parent):
        with suppress(PermissionError):  # the folder may be below one that only others may list
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _free_addresses(count: int, host: str, base: int | None) -> list[str]:
    if base is not None:
        busy = [port for port in range(base, base + count) if not is_free(port, host)]
        if busy:
            raise ConfError(f"port {busy[0]} is in use: choose another --port-base")
        return [format_address((host, port)) for port in range(base, base + count)]
    # A random start separates clusters that are created at the same time.
    start = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT)
    found: list[str] = []
    for port in (*range(start, LAST_PORT), *range(FIRST_PORT, start)):
        if is_free(port, host):
            found.append(format_address((host, port)))
            if len(found) == count:
                return found
    raise ConfError(f"no {count} ports between {FIRST_PORT} and {LAST_PORT} are free")


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether a node of this machine could listen there now."""
    try:
        bound_socket((host, port)).close()
    except OSError:
        return False
    return True
