"""Start, watch and stop the processes of a small cluster: one for each node, or one for all.

One thread at a time may use a :class:`Cluster`. Every wait ends when its condition holds, when a
process dies, or at a deadline with an error that shows the log.
"""

from __future__ import annotations

import shlex
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

from neo.net.sockets import format_address
from neo.net.tls import tls_context
from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AskClusterState, AskNodeList
from neo.simple import conf
from neo.simple.children import STOP_SECONDS, Guardian, launch, stop_all, tail
from neo.simple.conf import ClusterConf, ConfError, NodeConf, Shape
from neoctl.client import AdminAway, AdminClient

#: Timeout of a start, which takes about a second, but much longer on a loaded machine.
START_SECONDS = 60.0
#: Interval of polling.
POLL_SECONDS = 0.02
#: Timeout of the admin node. It answers at once, or it is not ready.
ADMIN_SECONDS = 5.0
TLS_FILES = ("ca", "cert", "key")
#: Name of the process that runs all nodes.
SERVER = "server"


class ClusterError(Exception):
    """The cluster cannot be started or does not work. The message shows the process and its log."""


class Cluster:
    """A cluster in a folder, as a context manager that starts and stops it.

    Omitted arguments are those of the folder's cluster, or the defaults of :class:`conf.Shape` if the
    folder is new. ``database``: a template with ``{n}``, see there. ``ca``, ``cert``, ``key``: files; if
    given, every link uses TLS. ``settings``: additions to ``[DEFAULT]`` of a new neo.conf.
    ``processes``: whether each node has a process of its own; else ``neoserver`` runs all of them. The
    folder may be served either way at each start. Raises ClusterError.

    The attribute ``processes``: name (``master1``, ``storage1``, ``admin``, or ``server``) → Popen of the
    processes that were started and not killed by this object.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        name: str | None = None,
        masters: int | None = None,
        storages: int | None = None,
        partitions: int | None = None,
        replicas: int | None = None,
        adapter: str | None = None,
        database: str | None = None,
        host: str | None = None,
        port_base: int | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        settings: Mapping[str, str] | None = None,
        processes: bool = True,
    ) -> None:
        self.folder = Path(folder).absolute()
        #: Whether each node has a process of its own after the next start.
        self.separate = processes
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guardian: Guardian | None = None
        wanted: dict[str, object] = {
            "name": name,
            "masters": masters,
            "storages": storages,
            "partitions": partitions,
            "replicas": replicas,
            "adapter": adapter,
            "database": database,
            "host": host,
            "port_base": port_base,
        }
        tls = {
            name: str(Path(path).absolute())
            for name, path in zip(TLS_FILES, (ca, cert, key), strict=True)
            if path
        }
        try:
            self.conf = self._configure(wanted, {**tls, **(settings or {})})
            self._tls = self._tls_context()
        except (ConfError, ValueError) as e:
            raise ClusterError(str(e)) from None

    def _configure(self, wanted: dict[str, object], settings: dict[str, str]) -> ClusterConf:
        path = self.folder / "neo.conf"
        if path.exists():
            found = ClusterConf(path)
            found.check(wanted)
            return found
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            given = {name: value for name, value in wanted.items() if value is not None}
            return conf.create(path, Shape(settings=settings, **given))  # type: ignore[arg-type]
        except OSError as e:
            raise ConfError(f"folder {self.folder} cannot be used: {e.strerror}") from None

    def _tls_context(self) -> ssl.SSLContext | None:
        files = [self.conf.values.get(name) for name in TLS_FILES]
        if not any(files):
            return None
        ca, cert, key = files
        if not (ca and cert and key):
            raise ConfError(f"{self.conf.path}: TLS needs all of ca, cert and key")
        return tls_context(ca, cert, key, server=False)

    # -- addresses -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.conf.name

    @property
    def masters(self) -> str:
        """``host:port`` of all masters, separated by spaces, as neo.conf and ZConfig take them."""
        return self.conf.masters

    @property
    def admin_address(self) -> str:
        """``host:port`` for ``neoctl -a``."""
        return format_address(self.conf.of_role("admin")[0].address)

    @property
    def neoctl(self) -> str:
        """The command that operators type before a verb. With TLS, it reads the files from neo.conf."""
        if self._tls is None:
            return f"neoctl -a {self.admin_address}"
        return f"neoctl -f {shlex.quote(str(self.conf.path))}"

    @property
    def uri(self) -> str:
        """The URI that applications open with zodburi."""
        masters = self.masters.replace(" ", ",")
        if self._tls is None:
            return f"neo://{self.name}@{masters}"
        options = urlencode({name: self.conf.values[name] for name in TLS_FILES})
        return f"neos://{self.name}@{masters}?{options}"

    @property
    def zconfig(self) -> str:
        """The section for an application's zope.conf or zodb.conf."""
        lines = [f"master_nodes {self.masters}", f"name {self.name}"]
        lines += [f"{name} {self.conf.values[name]}" for name in TLS_FILES if self._tls is not None]
        inner = "".join(f"    {line}\n" for line in lines)
        return f"%import neo.client\n<zodb_db main>\n  <NEOStorage>\n{inner}  </NEOStorage>\n</zodb_db>"

    def log(self, name: str) -> Path:
        """Return the log file of a node; for ``server``, what its process writes to standard error."""
        return self.folder / f"{SERVER}.log" if name == SERVER else self._node(name).logfile

    def admin(self, timeout: float = ADMIN_SECONDS) -> AdminClient:
        """Connect to the admin node. Raises AdminAway."""
        return AdminClient(self.conf.of_role("admin")[0].address, self._tls, timeout)

    # -- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start all processes that do not run, and wait until the cluster serves.

        Raises ClusterError after stopping all processes.
        """
        try:
            deadline = time.monotonic() + timeout
            if not self.separate:
                self._launch_server()
                self.wait_running(timeout)
                return
            masters = [node for node in self.conf.of_role("master") if self._launch(node)]
            # Without a listening master, the others would pause before they try again.
            for node in masters:
                self._wait_listening(node, deadline)
            for role in ("storage", "admin"):
                for node in self.conf.of_role(role):
                    self._launch(node)
            self.wait_running(deadline - time.monotonic())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes. Those that do not stop in time are killed."""
        processes, self.processes = self.processes, {}
        stop_all(processes.values())
        if self._guardian is not None:
            for process in processes.values():
                self._guardian.tell("-", process.pid)
            self._guardian.close()
            self._guardian = None

    def kill(self, name: str) -> None:
        """Kill one process, as ``kill -9`` does."""
        process = self._take(name)
        process.kill()
        self._forget(process)

    def terminate(self, name: str) -> int:
        """Stop one process cleanly. Return its exit code (negative: the signal that ended it)."""
        process = self._take(name)
        stop_all([process])
        self._forget(process)
        return process.returncode

    def restart(self, name: str) -> None:
        """Stop one process cleanly if it runs, start it, and return when it listens.

        Raises ClusterError.
        """
        if name in self.processes:
            self.terminate(name)
        if name == SERVER:
            self._launch_server()
            self.wait_running()
            return
        node = self._node(name)
        self._launch(node)
        self._wait_listening(node, time.monotonic() + START_SECONDS)

    def wait_running(self, timeout: float = START_SECONDS) -> None:
        """Wait until the cluster is RUNNING with all started storage processes.

        Raises ClusterError.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.check()
            problem = self._not_running()
            if problem is None:
                return
            if time.monotonic() > deadline:
                logs = "\n".join(self._describe(name) for name in self.processes)
                raise ClusterError(f"cluster {self.name} is not running: {problem}\n{logs}")
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Raise ClusterError if a process ended by itself."""
        dead = self.dead()
        if dead:
            raise ClusterError("\n".join(self.obituary(name) for name in dead))

    def dead(self) -> list[str]:
        """Return the names of the processes that ended by themselves."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def stopped(self) -> bool:
        """Return whether the operator stopped the cluster: masters and storage nodes ended cleanly. Admin
        nodes continue, and search for a master."""
        codes = [
            process.poll() for name, process in self.processes.items() if not name.startswith("admin")
        ]
        return bool(codes) and not any(code is None or code for code in codes)

    def obituary(self, name: str) -> str:
        """Return a sentence about a process that ended by itself, with its log."""
        code = self.processes[name].returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{name} {how}; {self._describe(name)}"

    def words(self, name: str) -> list[str]:
        """Return the words that start a process by hand."""
        program = f"neo{name.rstrip('0123456789')}"
        words = [program, "-f", str(self.conf.path)]
        return words if name == SERVER else [*words, "-s", name]

    def command(self, node: NodeConf) -> list[str]:
        """Return the command of a node's process. A subclass may start it somewhere else."""
        module = f"neo.{node.role}"
        return [sys.executable, "-m", module, "-f", str(self.conf.path), "-s", node.name]

    # -- inside ----------------------------------------------------------------------------------

    def _node(self, name: str) -> NodeConf:
        for node in self.conf.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.conf.nodes)
        raise ClusterError(f"the cluster has no {name!r}, it has {names}")

    def _describe(self, name: str) -> str:
        log = self.log(name)
        if name == SERVER and not _size(log):
            # The node that wrote last knows why the process ended.
            log = max((node.logfile for node in self.conf.nodes), key=_changed)
        return f"log {log} ends with:\n{tail(log)}"

    def _launch_server(self) -> None:
        names = [node.name for node in self.conf.nodes]
        command = [sys.executable, "-m", "neo.server", "-f", str(self.conf.path), "-s", *names]
        self._run(SERVER, command, self.conf.nodes)

    def _launch(self, node: NodeConf) -> bool:
        return self._run(node.name, self.command(node), [node])

    def _run(self, name: str, command: list[str], nodes: Sequence[NodeConf]) -> bool:
        """Start a process of these nodes. Return False if it runs."""
        process = self.processes.get(name)
        if process is not None and process.poll() is None:
            return False
        node = next(filter(_listens, nodes), None)
        if node is not None:
            raise ClusterError(
                f"{format_address(node.address)} of {node.name} is in use: is the cluster in "
                f"{self.folder} running already? If not, another program has the port: "
                f"choose another one in {self.conf.path}"
            )
        if self._guardian is None:
            self._guardian = Guardian()
        process = launch(command, self.folder, self.log(name))
        self.processes[name] = process
        self._guardian.tell("+", process.pid)
        return True

    def _take(self, name: str) -> subprocess.Popen[bytes]:
        if name != SERVER:
            self._node(name)
        try:
            return self.processes.pop(name)
        except KeyError:
            raise ClusterError(f"{name} does not run: start it first") from None

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(STOP_SECONDS)
        if self._guardian is not None:
            self._guardian.tell("-", process.pid)

    def _wait_listening(self, node: NodeConf, deadline: float) -> None:
        process = self.processes[node.name]
        while not _listens(node):
            if process.poll() is not None:
                raise ClusterError(self.obituary(node.name))
            if time.monotonic() > deadline:
                raise ClusterError(f"{node.name} does not listen; {self._describe(node.name)}")
            time.sleep(POLL_SECONDS)

    def _not_running(self) -> str | None:
        """Return what is missing, None if the cluster serves."""
        try:
            with self.admin() as admin:
                state = admin.ask(AskClusterState()).state
                nodes = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
        except (AdminAway, ErrorAnswer) as e:
            return str(e)
        if state is not ClusterState.RUNNING:
            return f"its state is {state.name if state else 'unknown'}"
        running = sum(row[3] is NodeState.RUNNING for row in nodes)
        names = [node.name for node in self.conf.nodes] if SERVER in self.processes else self.processes
        wanted = sum(name.startswith("storage") for name in names)
        if running < wanted:
            return f"{running} of {wanted} storage nodes are running"
        return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _changed(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _listens(node: NodeConf) -> bool:
    try:
        socket.create_connection(node.address, ADMIN_SECONDS).close()
    except OSError:
        return False
    return True
