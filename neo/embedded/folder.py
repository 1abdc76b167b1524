"""The folder of an embedded database: that of ``neosimple``, and a lock.

``neo.conf`` names nodes, files, and the addresses for the day on which processes serve the folder. Here
the addresses are only names.
"""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path

from neo.client.errors import ConfigurationError, RefusedError
from neo.master.__main__ import load_settings as load_master
from neo.node.config import ConfigError
from neo.node.lockfile import LockFile
from neo.simple.conf import ClusterConf, ConfError, Shape, create
from neo.storage.__main__ import load_settings as load_storage

CONF = "neo.conf"
#: Locked by the process that has the database open; holds its id.
LOCK = "embedded.lock"


class Folder:
    """The folder, locked for this process. ``path``: its real path.

    Raise ConfigurationError if it holds no such database, RefusedError if another process has it open.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.conf: ClusterConf
        self._lock: LockFile | None = None
        try:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._take_lock()
                conf = self.path / CONF
                self.conf = ClusterConf(conf) if conf.exists() else create(conf, _new_shape())
                self.master, self.storages = self._settings()
            except OSError as e:
                raise ConfigurationError(
                    f"folder {path} cannot be used: {e.strerror or e}"
                ) from None
            except (ConfError, ConfigError) as e:
                raise ConfigurationError(str(e)) from None
        except BaseException:
            self.release()
            raise

    def _take_lock(self) -> None:
        path = self.path / LOCK
        try:
            self._lock = LockFile(path)
        except BlockingIOError:
            owner = path.read_text("ascii").strip()
            raise RefusedError(self._in_use(f"process {owner}" if owner else "another process")) from None
        self._lock.write(f"{os.getpid()}\n")

    def _in_use(self, owner: str) -> str:
        """Return the message for a database that another process has open."""
        return (
            f"{self.path} is in use by {owner}: one process at a time can embed a database. To share it,"
            f" end that process, run: neosimple --folder {self.path}, and open the URI that it prints"
        )

    def _settings(self) -> tuple[argparse.Namespace, list[argparse.Namespace]]:
        """Return the settings of the master and of the storage nodes."""
        conf = self.conf
        if len(conf.of_role("master")) > 1:
            raise ConfError(
                f"{conf.path} is of a cluster with several masters, which cannot be embedded: serve it"
                f" with neosimple --folder {self.path}"
            )
        master = load_master(["-f", str(conf.path), "-s", conf.of_role("master")[0].name])
        if master.upstream_cluster or master.sync_backups:
            raise ConfError(
                f"{conf.path} is of a standby, or of a cluster with synchronous standbys, which cannot be"
                f" embedded: serve it with neosimple --folder {self.path}"
            )
        master.election_log = str(self.path / master.election_log)
        storages = []
        for node in conf.of_role("storage"):
            settings = load_storage(["-f", str(conf.path), "-s", node.name])
            if settings.adapter != "SQLite":
                raise ConfError(
                    f"{conf.path}: {node.name} keeps its data in MariaDB, which cannot be embedded:"
                    f" serve it with neosimple --folder {self.path}"
                )
            settings.database = str(self.path / settings.database)
            if os.path.realpath(os.path.dirname(settings.database)) != str(self.path):
                raise ConfError(
                    f"{conf.path}: the database of {node.name} is {settings.database}, in another"
                    " folder. If this folder was moved or copied, correct the paths in that file"
                )
            self._check_free(settings.database)
            storages.append(settings)
        return master, storages

    def _check_free(self, database: str) -> None:
        """Raise RefusedError if the process of a storage node uses the database."""
        if os.path.exists(lock := f"{database}-lock"):
            try:
                LockFile(lock).close()
            except BlockingIOError:
                masters = self.conf.masters.replace(" ", ",")
                raise RefusedError(
                    f"{self.path} is served by another process, which has locked {lock}: open"
                    f" neo://{self.conf.name}@{masters} instead, or stop that process"
                ) from None

    def release(self) -> None:
        """Give up the lock. Idempotent."""
        if self._lock is not None:
            self._lock.close()


def _new_shape() -> Shape:
    """Return the shape of a new folder. Its name is unique, because ZODB sorts the databases of one
    transaction by it: two of the same name could wait for each other."""
    return Shape(name=f"neo-{secrets.token_hex(4)}")
