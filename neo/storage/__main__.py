"""``neostorage``: the command."""

from __future__ import annotations

import argparse
import logging
import math
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Protocol

from neo.node.config import (
    TRACING,
    ConfigError,
    Option,
    load,
    names,
    one_of,
    role_options,
    seconds,
)
from neo.node.core_life import StartFailure
from neo.node.known_masters import RememberedMasters
from neo.node.passwords import has_password
from neo.node.process import main as run
from neo.protocol.packets import Address
from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.backend.api import Backend, BackendFailure, DatabaseAway
from neo.storage.backend.factory import ADAPTERS, make_backend
from neo.storage.blobs.contents import open_disk
from neo.storage.blobs.folder import ContentFolder
from neo.storage.database import Refusals
from neo.storage.host import StorageHost
from neo.storage.node import NodeSettings, StorageNode
from neo.storage.operations.worker import ThreadWorker
from neo.topology.masters import MasterCandidates

logger = logging.getLogger("neo.storage")

DESCRIPTION = "Storage node of a NEO cluster: keeps a part of the data."
OPTIONS = role_options(
    TRACING,
    Option("adapter", "SQLite, or MySQL for MariaDB", one_of(*ADAPTERS), "SQLite", short="a"),
    Option(
        "database",
        "SQLite: a file; MariaDB: [user[:password]@]database[unix_socket]",
        short="d",
        required=True,
        secret=has_password,
    ),
    Option(
        "mark",
        "MariaDB: a file of this machine where the node notes how far it acknowledged, to refuse a"
        " database that is behind that; each node needs one of its own",
    ),
    Option("engine", "storage engine of MariaDB's tables, InnoDB by default", short="e"),
    Option(
        "wait",
        "seconds to wait at start for a MariaDB server that is away, -1 for ever",
        seconds,
        0.0,
        short="w",
    ),
    Option("dedup", "keep equal values only once; stores are slower", flag=True, default=False),
    Option(
        "disable_drop_partitions",
        "keep the data of partitions that this node loses",
        flag=True,
        default=False,
    ),
    Option(
        "devpath",
        "where the node is, from the widest place to the disk: copies are kept apart"
        " (default: the machine's name and, with SQLite, its disk)",
        names,
    ),
    Option(
        "blob_dir",
        "folder for the contents of blobs (default with SQLite: the database's name with .blobs; with"
        " MariaDB none, and blobs are refused)",
    ),
    Option(
        "fetch_blobs",
        "the folder for the contents of blobs is empty on purpose: copy them from other nodes",
        flag=True,
        default=False,
    ),
    Option("reset", "erase the database first", flag=True, default=False, command_line_only=True),
    Option(
        "new_nid",
        "make a copy of a node's database a node of its own, then end",
        flag=True,
        command_line_only=True,
    ),
)


def load_settings(argv: list[str]) -> argparse.Namespace:
    """Return the settings of the command line and the file. Raises ConfigError."""
    settings = load("storage", DESCRIPTION, OPTIONS, argv)
    if settings.bind is None:
        raise ConfigError("setting 'bind' is missing: the address where clients find this node")
    if settings.new_nid and settings.reset:
        raise ConfigError("settings 'new_nid' and 'reset': an empty database is no clone")
    return settings


class ConfiguredHost(StorageHost, Protocol):
    """A host that knows the settings of its node, and where the node listens."""

    settings: argparse.Namespace
    bind: Address | None


def make_core(
    host: ConfiguredHost, acknowledged: Acknowledged | None = None, refusals: Refusals | None = None
) -> StorageNode:
    """Return a core with its database open. ``acknowledged``: by earlier cores of this process;
    ``refusals``: of the database to them.

    Raises StartFailure when the database cannot be used, ConfigError when a setting is wrong.
    """
    settings = host.settings
    remembered = RememberedMasters(settings.dynamic_master_list)
    cores: list[StorageNode] = []  # empty while the backend is being opened

    def failed(failure: BackendFailure) -> None:
        for core in cores:
            core.backend_failed(failure)

    assert host.bind is not None
    backend, disk = None, _folder(host, settings)
    try:
        if settings.reset and disk is not None:
            disk.condemn()
        backend = _open(host, settings, failed, acknowledged)
        open_disk(disk, backend)
        settings.fetch_blobs = False  # once, as reset
        node = NodeSettings(
            settings.cluster,
            host.bind,
            tuple(settings.devpath or _devpath(settings)),
            drop_partitions=not settings.disable_drop_partitions,
            is_clone=bool(settings.new_nid),
        )
        masters = MasterCandidates([*settings.masters, *remembered.addresses])
        worker = ThreadWorker(host.from_thread)
        core = StorageNode(host, node, masters, backend, disk, remembered.save, worker, refusals)
    except (ValueError, OSError, BackendFailure) as e:
        if disk is not None:
            disk.close()
        if backend is not None:
            _close(backend)
        patience = settings.wait if isinstance(e, DatabaseAway) else 0.0
        raise StartFailure(str(e), patience if patience >= 0 else math.inf) from None
    cores.append(core)
    return core


def _open(
    host: ConfiguredHost,
    settings: argparse.Namespace,
    failed: Callable[[BackendFailure], None],
    acknowledged: Acknowledged | None,
) -> Backend:
    try:
        backend = make_backend(
            settings.adapter,
            settings.database,
            settings.engine,
            host.from_thread,
            failed,
            settings.dedup,
            acknowledged,
            settings.mark,
        )
    except BackendFailure as e:
        raise ConfigError(str(e)) from None
    backend.open(settings.reset)
    settings.reset = False  # once, not again after a failure
    return backend


def _folder(host: ConfiguredHost, settings: argparse.Namespace) -> ContentFolder | None:
    """Return the folder of contents, which is not open yet; None if the node has none."""
    path = settings.blob_dir
    if path is None and settings.adapter.lower() == "sqlite" and settings.database != ":memory:":
        path = f"{settings.database}.blobs"
    return ContentFolder(path, host.from_thread, settings.fetch_blobs) if path else None


def _close(backend: Backend) -> None:
    try:
        backend.close()
    except BackendFailure as e:
        logger.error("the database could not be closed cleanly: %s", e)


def _devpath(settings: argparse.Namespace) -> list[str]:
    """Return the default: the machine and, with SQLite, the disk."""
    host = socket.gethostname()
    if settings.adapter.lower() != "sqlite":
        return [host]
    folder = os.path.dirname(os.path.abspath(settings.database))
    return [host, str(os.stat(folder).st_dev)]


def main() -> int:
    """Entry point; returns the exit code."""
    make = partial(make_core, acknowledged=Acknowledged(), refusals=Refusals())
    return run("storage", load_settings, make)


if __name__ == "__main__":
    sys.exit(main())
