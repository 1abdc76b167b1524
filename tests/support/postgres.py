"""A PostgreSQL server for tests, in a temporary folder, on a socket; never the system's.

It refuses to run as root. Then it runs as ``postgres`` or ``nobody``, and the folder is theirs.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_SECONDS, Deadline
from tests.support.ports import free_range

USERS = ("postgres", "nobody")

_OPTIONS = (
    "max_prepared_transactions=50",
    "max_connections=50",
    "shared_buffers=16MB",
    "fsync=off",
    "listen_addresses=",
)


def _program(name: str) -> str:
    # Debian keeps the programs of each version in a folder of its own.
    folders = [os.environ.get("PATH", ""), *sorted(glob("/usr/lib/postgresql/*/bin"))]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise RuntimeError(f"{name} is not installed: apt-get install postgresql")
    return found


def _user() -> str | None:
    """Return the user to run as; None for the own one."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in USERS if user in names)


class Server:
    """A server with its own data directory. ``options``: further settings; a later one counts. ``tcp``:
    listen on a port of the loopback, too."""

    def __init__(self, directory: Path, *options: str, tcp: bool = False) -> None:
        self.directory = directory
        self.port = free_range(1) if tcp else 5432
        listening = (f"port={self.port}", "listen_addresses=127.0.0.1") if tcp else ()
        self._options = (*_OPTIONS, *listening, *options)
        self._user = _user()
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Create the databases of the system, which takes some seconds."""
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        command = [_program("initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust"]
        done = subprocess.run(
            [*command, "-N", "-E", "UTF8", "--locale=C"],
            capture_output=True,
            user=self._user,
            cwd=self.directory,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        settings = [word for option in self._options for word in ("-c", option)]
        command = [_program("postgres"), "-D", str(self._data), "-k", str(self.directory)]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.directory,
            )
        deadline = Deadline()
        while not self._accepts():
            if self._process.poll() is not None or deadline.passed():
                self.stop()
                raise RuntimeError(
                    f"PostgreSQL did not start:\n{(self.directory / 'log').read_text()[-4000:]}"
                )
            deadline.pause()

    def _accepts(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def dsn(self, database: str = "postgres") -> str:
        return f"host={self.directory} port={self.port} user=postgres dbname={database}"

    def connect(self, database: str = "postgres") -> Any:
        import psycopg

        return psycopg.connect(self.dsn(database))

    def query(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements. Return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return [] if cursor.description is None else cursor.fetchall()

    def kill(self) -> None:
        """Kill the server and all its processes, as in a crash: they end with the first one."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGQUIT)
        self._process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """End at once, without waiting for connections."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE_SECONDS)


@contextmanager
def running_server(*options: str, tcp: bool = False) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="neo-pg-"))
    server = Server(folder, *options, tcp=tcp)
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
