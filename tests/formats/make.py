"""Makes the databases of a released format: run once at each release, never again for the same format.

    python -m tests.formats.make          # writes tests/formats/format-N.sqlite, .mariadb.sql, .json

The files are what that release wrote. Later releases must open them, and find what the JSON file says.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from neo.protocol.enums import CellState
from neo.storage.backend.schema import VERSION
from tests.support.mariadb import running_server
from tests.unit.backend.harness import Harness, p64

HERE = Path(__file__).parent
TABLES = ("config", "pt", "trans", "obj", "data", "ttrans", "tobj")
#: More than SQLite has in a page, so that values span several.
BIG = bytes(range(256)) * 40


def fill(harness: Harness) -> Any:
    """Something of everything that a database may have."""
    backend = harness.open(reset=True)
    for name, value in ("name", "releases"), ("nid", "1"), ("truncate_tid", p64(999).hex()):
        backend.set_config(name, value)
    up, out, feeding = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING
    cells = [(0, 1, up), (1, 1, feeding), (2, 1, up), (1, 2, out), (2, 2, CellState.CORRUPTED)]
    backend.change_cells(7, 1, cells, 1, True)
    harness.commit(backend, 30, {0: b"first", 1: b"one", 2: BIG})
    harness.commit(backend, 33, {0: b"second", 3: b""})
    harness.commit(backend, 36, {0: 30})  # an undo
    harness.commit(backend, 39, {3: None})  # an object that exists no more
    backend.pack(p64(33), 0, p64(0), 100)
    harness.vote(backend, 42, {1: b"voted"})
    harness.vote(backend, 45, {2: b"locked"})
    backend.lock(p64(45), p64(48))
    backend.change_cells(8, 1, [(2, 1, out)], 1, False)
    harness.wait(backend.stored)
    return backend


def rows(backend: Any) -> dict[str, list[list[Any]]]:
    """All tables, as JSON has them: bytes in hexadecimal."""

    def plain(value: Any) -> Any:
        return value.hex() if isinstance(value, bytes) else value

    found = {}
    for table in TABLES:
        if table == "config":
            read = [[name, value] for name, value in backend._config.items()]
        else:
            read = [[plain(v) for v in row] for row in backend._read(f"SELECT * FROM {table}")]
        found[table] = sorted(read, key=repr)
    return found


def main() -> None:
    harness = Harness("SQLite", str(HERE / f"format-{VERSION}.sqlite"))
    expected = rows(fill(harness))
    harness.close()
    with sqlite3.connect(harness.database) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    for suffix in "-lock", "-wal", "-shm":
        Path(harness.database + suffix).unlink(missing_ok=True)
    (HERE / f"format-{VERSION}.json").write_text(json.dumps(expected, indent=1) + "\n")
    with running_server() as server:
        harness = Harness("MySQL", server.create_database())
        fill(harness)
        harness.close()
        name, _, socket = harness.database.partition("@")[2].partition("/")
        dump = subprocess.run(
            ["mariadb-dump", "--hex-blob", "--skip-comments", "--compact", "--skip-opt"]
            + ["--create-options", "-uroot", f"--socket=/{socket}", name, *TABLES, "bigdata"],
            capture_output=True,
            check=True,
        )
        (HERE / f"format-{VERSION}.mariadb.sql").write_bytes(dump.stdout)


if __name__ == "__main__":
    main()
