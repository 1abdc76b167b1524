"""zodb-pgjsonb on PostgreSQL: a storage that needs another Python than the driver may have.

    python -m tests.bench.pgjsonb REQUEST     # by the driver: one workload, its figures as lines of JSON

The driver starts the server, and for each workload a program in the environment of zodb-pgjsonb, which
forks the clients as the driver does for other systems. So all do the same work, in one interleaved run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.clients import ClientFailed, NotApplicable
from tests.bench.figures import Figure, Memory
from tests.bench.sizes import Sizes
from tests.bench.systems import System, Work
from tests.bench.workloads import WORKLOADS

_ROOT = Path(__file__).parents[2]
#: The variable with the interpreter. Default: of the environment that ``make bench`` creates.
VARIABLE = "NEO_BENCH_PGJSONB"
#: Defaults of PostgreSQL, which its server for tests changes, and connections for the pools of eight
#: clients.
_SETTINGS = ("fsync=on", "synchronous_commit=on", "shared_buffers=128MB", "max_connections=200")
_VERSIONS = (
    "import sys; from importlib.metadata import version;"
    "print(version('zodb-pgjsonb') + ', Python ' + sys.version.split()[0])"
)


class _Client(System):
    """What clients need of a server that runs."""

    title = "zodb-pgjsonb"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def start(self, folder: Path) -> None:
        """Do nothing: the driver has started the server."""

    def stop(self) -> None:
        """Do nothing: the driver stops the server."""

    def storage(self) -> Any:
        from zodb_pgjsonb.storage import PGJsonbStorage

        return PGJsonbStorage(self._dsn, history_preserving=True)

    def pids(self) -> dict[str, int]:
        """Return nothing: the server has a process for each connection, and these come and go."""
        return {}


class PGJsonb(_Client):
    """A server of its own, on the loopback, that syncs each commit."""

    note = "over TCP, with history; the memory of its processes, one for a connection, is not measured"

    def __init__(self) -> None:
        super().__init__("")
        default = Path(f"{sys.prefix}-pgjsonb", "bin", "python")
        self._python = os.environ.get(VARIABLE, str(default))
        self._stack = contextlib.ExitStack()

    def start(self, folder: Path) -> None:
        from tests.support.postgres import running_server

        if not Path(self._python).exists():
            raise NotApplicable(
                "not available: make bench installs it if there is a Python 3.12 (python3.12)"
            )
        found = subprocess.run([self._python, "-c", _VERSIONS], capture_output=True, text=True)
        if found.returncode:
            raise NotApplicable(f"not available: {found.stderr.strip().splitlines()[-1]}")
        server = self._stack.enter_context(running_server(*_SETTINGS, tcp=True))
        self._dsn = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
        version = server.query("SHOW server_version")[0][0]
        self.note = f"{found.stdout.strip()}, PostgreSQL {version.split()[0]}; {type(self).note}"

    def stop(self) -> None:
        self._stack.close()

    def elsewhere(self, workload: str) -> Work:
        def work(system: System, sizes: Sizes, source: Path) -> Iterator[Figure | Memory]:
            return self._ask(workload, sizes, source)

        return work

    def _ask(self, workload: str, sizes: Sizes, source: Path) -> Iterator[Figure | Memory]:
        """Yield what the program in the other environment finds. Its clients are bounded in time."""
        request = {
            "dsn": self._dsn,
            "workload": workload,
            "sizes": dataclasses.asdict(sizes),
            "source": str(source),
        }
        words = [self._python, "-m", __name__, json.dumps(request)]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_ROOT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield _parsed(json.loads(line))
            _, errors = process.communicate()
        if process.returncode:
            raise ClientFailed((errors.strip().splitlines() or ["it said nothing"])[-1])


def _parsed(line: dict[str, Any]) -> Figure | Memory:
    """Return what a line has. Raise what the other program caught."""
    kind, value = next(iter(line.items()))
    if kind == "not_applicable":
        raise NotApplicable(value)
    if kind == "failed":
        raise ClientFailed(value)
    return Figure(*value) if kind == "figure" else Memory(*value)


def main() -> int:
    """Do one workload, in the environment of zodb-pgjsonb."""
    logging.disable()
    request = json.loads(sys.argv[1])
    system, sizes = _Client(request["dsn"]), Sizes(**request["sizes"])
    try:
        for figure in WORKLOADS[request["workload"]](system, sizes, Path(request["source"])):
            _say("figure" if isinstance(figure, Figure) else "memory", figure)
    except NotApplicable as reason:
        _say("not_applicable", str(reason))
    except ClientFailed as error:
        _say("failed", str(error))
    return 0


def _say(kind: str, value: object) -> None:
    print(json.dumps({kind: value}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
