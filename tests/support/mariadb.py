"""A MariaDB server for tests and benchmarks, in a temporary folder, on a socket; never the system's.

In a test, import the fixture into a ``conftest.py``::

    from tests.support.mariadb import mariadb_server  # noqa: F401

and in a script::

    with running_server() as server:
        database = server.create_database()   # "root@neo1/tmp/.../mysqld.sock"
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS, Deadline
from tests.support.ports import free_range
from tests.support.standstill import stand_still

_OPTIONS = (
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=32M",
    "--innodb-log-buffer-size=16M",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=1M",
    "--max-connections=50",
    "--performance-schema=OFF",
    "--skip-log-bin",
    "--skip-name-resolve",
)


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if found:
            return found
    raise RuntimeError(f"{names[0]} is not installed: apt-get install mariadb-server")


def schema(database: str) -> str:
    """Return the name of the database in a setting ``database``."""
    return database.partition("@")[2].partition("/")[0]


class Server:
    """A server with its own data directory. ``options`` are added to the command line."""

    def __init__(self, directory: str | Path, *options: str, tcp: bool = False) -> None:
        self.directory = Path(directory)
        self.data = self.directory / "data"
        self.socket = str(self.directory / "mysqld.sock")
        self.port = free_range(1) if tcp else None
        self.options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def install(self) -> None:
        """Create the system tables, which takes some seconds."""
        done = subprocess.run(
            [
                _program("mariadb-install-db", "mysql_install_db"),
                "--no-defaults",
                f"--datadir={self.data}",
                f"--user={pwd.getpwuid(os.getuid()).pw_name}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--tmpdir={self.directory}",  # servers delete each other's temporary tables at start
                "--innodb-log-file-size=32M",
            ],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_SECONDS,
        )
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            raise RuntimeError(f"MariaDB could not be installed:\n{output[-4000:]}")

    def start(self, *options: str) -> None:
        """Start and wait until it accepts connections. ``options`` are for this run only."""
        assert not self.running, "already running"
        network = (
            ["--skip-networking"]
            if self.port is None
            else [f"--port={self.port}", "--bind-address=127.0.0.1"]
        )
        with open(self.directory / "error.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    _program("mariadbd", "mysqld"),
                    "--no-defaults",
                    f"--user={pwd.getpwuid(os.getuid()).pw_name}",
                    f"--datadir={self.data}",
                    f"--socket={self.socket}",
                    f"--pid-file={self.directory / 'pid'}",
                    f"--tmpdir={self.directory}",
                    *network,
                    *_OPTIONS,
                    *self.options,
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = Deadline()
        while not self._accepts():
            if not self.running or deadline.passed():
                self.stop()
                raise RuntimeError(
                    "MariaDB did not start:\n" + (self.directory / "error.log").read_text()[-4000:]
                )
            deadline.pause()

    def _accepts(self) -> bool:
        if not self.running:
            return False
        # The server listens before it can be stopped, and sends its greeting when it is ready.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(self.socket)
                return bool(probe.recv(1))
            except OSError:
                return False

    def stop(self) -> None:
        """Shut down cleanly. Send SIGKILL after the deadline."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        stand_still(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def query(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements as root. Return the rows of the last one."""
        import MySQLdb

        connection = MySQLdb.connect(user="root", unix_socket=self.socket, autocommit=True)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def create_user(self, name: str, password: str) -> None:
        """Create a user with all rights in databases, and none to administer the server."""
        self.query(
            f"CREATE OR REPLACE USER {name} IDENTIFIED BY '{password}'",
            f"GRANT ALL ON `neo%`.* TO {name}",
        )

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database. Return its setting ``database``."""
        if name is None:
            name = f"neo{next(self._numbers)}"
        self.query(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        return f"root@{name}{self.socket}"

    def copy_database(self, database: str) -> str:
        """Copy a database. Return the setting ``database`` of the copy."""
        source, copy = schema(database), self.create_database()
        query = f"SELECT table_name FROM information_schema.tables WHERE table_schema='{source}'"
        for (table,) in self.query(f"{query} AND table_type='BASE TABLE'"):
            name = f"`{schema(copy)}`.`{table}`"
            self.query(
                f"CREATE TABLE {name} LIKE `{source}`.`{table}`",
                f"INSERT INTO {name} SELECT * FROM `{source}`.`{table}`",
            )
        return copy


@contextmanager
def running_server(*options: str, tcp: bool = False) -> Iterator[Server]:
    """Yield a server in a temporary folder; stop and remove it at the end."""
    # Not below a long temporary path, because the path of a socket has at most 107 bytes.
    directory = tempfile.mkdtemp(prefix="neo-mariadb-", dir="/tmp")
    server = Server(directory, *options, tcp=tcp)
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    """Yield one server for the whole run. Each test creates its own databases in it."""
    with running_server() as server:
        yield server
