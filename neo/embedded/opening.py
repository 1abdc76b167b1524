"""Open a folder, once per process: all storages of a path share its nodes, as clients of one cluster."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from neo.client import NEOStorage
from neo.client.errors import ConfigurationError
from neo.client.host.green import MODULES
from neo.embedded.folder import Folder
from neo.embedded.machine import Machine
from neo.embedded.system import LocalSystem

#: Options of NEOStorage that say how to reach a cluster.
#: ``cache_dir``: loads of this process come from this process.
OF_CLUSTERS = {
    *("master_nodes", "name", "ca", "cert", "key", "dynamic_master_list", "host", "cache_dir"),
}


class Machines:
    """The machines of this process, by the real path of their folder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The machines, and how many storages use each.
        self._open: dict[str, tuple[Machine, int]] = {}
        #: Machines that the parent of this process had open when it forked. SQLite keeps what it locked
        #: in the memory of the process, so that this one can never open their databases.
        self._inherited: dict[str, Machine] = {}

    def acquire(self, path: str) -> Machine:
        """Return the machine of a folder, started. Raise NEOStorageError."""
        key = os.path.realpath(path)
        with self._lock:
            if (inherited := self._inherited.get(key)) is not None:
                inherited.check()
            machine, count = self._open.get(key, (None, 0))
            if machine is None:
                machine = self._started(key)
            else:
                machine.check()
            self._open[key] = machine, count + 1
            return machine

    @staticmethod
    def _started(path: str) -> Machine:
        folder = Folder(path)
        try:
            machine = Machine(folder)
            machine.start()
            return machine
        except BaseException:
            folder.release()
            raise

    def release(self, machine: Machine) -> None:
        """Close the machine of a storage that was closed, if it was the last one."""
        key = str(machine.folder.path)
        with self._lock:
            if key in self._inherited:
                return
            _, count = self._open[key]
            if count > 1:
                self._open[key] = machine, count - 1
            else:
                machine.close()
                del self._open[key]

    def forked(self) -> None:
        """Start anew in the child of a fork. The machines stay, so that nothing of them is closed."""
        self._lock = threading.Lock()
        self._inherited |= {key: machine for key, (machine, _) in self._open.items()}
        self._open.clear()


_machines = Machines()
os.register_at_fork(after_in_child=_machines.forked)


def open(path: str | os.PathLike[str], **options: Any) -> NEOStorage:
    """Return a storage on the database in a folder, which is made if it does not exist. ``options``:
    those of NEOStorage that do not concern connections.

    Raise ConfigurationError; RefusedError if another process has the folder open: the message names it,
    and says how to share the database.
    """
    _check_threads()
    if strange := sorted(OF_CLUSTERS & options.keys()):
        raise ConfigurationError(
            f"{strange[0]} is for a cluster, and {os.fspath(path)!r} is a folder: leave it out"
        )
    machine = _machines.acquire(os.fspath(path))
    host = LocalSystem(machine, _machines.release)
    try:
        conf = machine.folder.conf
        return NEOStorage(conf.masters, conf.name, host=host, **options)
    except BaseException:
        host.stop()
        raise


def _check_threads() -> None:
    """Raise ConfigurationError in a process in which gevent has replaced threads by greenlets."""
    monkey: Any = sys.modules.get("gevent.monkey")
    if monkey is not None and any(map(monkey.is_module_patched, MODULES)):
        raise ConfigurationError(
            "an embedded database needs threads, which gevent has replaced in this process: serve the"
            " folder with neosimple --folder, and open its URI"
        )
