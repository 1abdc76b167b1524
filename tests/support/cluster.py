"""A cluster of real processes for tests and benchmarks, with its own folder, free ports and MariaDB."""

from __future__ import annotations

import configparser
import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from neo.protocol.errors import ErrorAnswer
from neo.simple import Cluster as SimpleCluster
from neoctl.client import AdminAway
from tests.support import mariadb
from tests.support.ports import free_range

#: What an admin node says, and what is said without one, while a cluster is not ready.
AWAY = (AdminAway, ErrorAnswer)
#: Room for the biggest object that tests store.
_MARIADB_OPTIONS = ("--max-allowed-packet=1G",)


def simple_cluster(folder: Path, **shape: Any) -> SimpleCluster:
    """Return a cluster with ports that no other process of the tests has, if the folder is new."""
    if (folder / "neo.conf").exists():
        return SimpleCluster(folder, **shape)
    count = shape.get("masters", 1) + shape.get("storages", 1) + 1
    return SimpleCluster(folder, **{"port_base": free_range(count), **shape})


def configure(cluster: SimpleCluster, sections: Mapping[str, Mapping[str, str]]) -> None:
    """Give nodes of a cluster that is not started more settings. ``sections``: by name."""
    conf = configparser.ConfigParser(interpolation=None)
    conf.read(cluster.conf.path)
    for section, settings in sections.items():
        conf[section].update(settings)
    with cluster.conf.path.open("w") as file:
        conf.write(file)


class Cluster:
    """``backend``: 'sqlite' or 'mariadb'. ``server``: an existing MariaDB server to use.

    ``user``: ``name:password`` of a user to create, without administrative rights. ``sections``: more
    settings of nodes, by section. The object has neither threads nor open storages, so that the process
    may fork.
    """

    def __init__(
        self,
        storages: int = 2,
        backend: str = "sqlite",
        partitions: int = 12,
        folder: Path | None = None,
        server: mariadb.Server | None = None,
        user: str = "root",
        sections: Mapping[str, Mapping[str, str]] | None = None,
        **options: Any,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._shape = {"storages": storages, "partitions": partitions, **options}
        self._backend = backend
        self._folder = folder
        self._user = user
        self._sections = sections or {}
        self.server = server
        self.simple: SimpleCluster

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:
            folder = self._folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            shape = dict(self._shape)
            if self._backend == "mariadb":
                if self.server is None:
                    self.server = stack.enter_context(mariadb.running_server(*_MARIADB_OPTIONS))
                shape |= {"adapter": "MySQL", "database": self._databases()}
            self.simple = simple_cluster(folder, **shape)
            configure(self.simple, self._sections)
            stack.enter_context(self.simple)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _databases(self) -> str:
        """Create the databases. Return the template of the settings ``database``."""
        assert self.server is not None
        first = self.server.create_database()
        name = mariadb.schema(first)
        if self._user != "root":
            self.server.create_user(*self._user.split(":"))
        for number in range(1, self._shape["storages"] + 1):
            self.server.query(f"CREATE DATABASE `{name}_{number}`")
        return f"{self._user}@{name}_{{n}}{self.server.socket}"

    # -- use -------------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        return self.simple.uri

    def storage(self, **options: Any) -> Any:
        """Return a new client: :class:`neo.client.Storage`."""
        from neo.client import Storage

        return Storage(self.simple.masters, self.simple.name, **options)

    def database(self, name: str) -> str:
        """Return the setting ``database`` of a storage node."""
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(self.simple.conf.path)
        setting = parser[name]["database"]
        return setting if self.server else str(self.simple.folder / setting)

    def query(self, name: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in the database of a storage node. Return the rows of the last one."""
        database = self.database(name)
        if self.server is not None:
            return self.server.query(f"USE `{mariadb.schema(database)}`", *statements)
        rows = []
        with contextlib.closing(sqlite3.connect(database)) as db, db:
            for statement in statements:
                rows = db.execute(statement).fetchall()
        return rows

    def copy(self, name: str, folder: Path) -> str:
        """Copy the database of a storage node that has ended, as a copy of its disk. Return the setting
        ``database`` of a node with the copy."""
        database = self.database(name)
        if self.server is not None:
            return self.server.copy_database(database)
        return shutil.copyfile(database, str(folder / "copy.sqlite"))

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.simple.processes.items()}
