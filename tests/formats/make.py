"""Makes the databases of a released format: run once at each release, never again for the same format.

    python -m tests.formats.make          # writes format-N.sqlite, .mariadb.sql, and a .json for each

The files are what that release wrote. Later releases must open them, and find what the JSON files say.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from neo.protocol.enums import CellState
from neo.storage.backend.acknowledged import ROW
from neo.storage.backend.schema import VERSION
from tests.support.mariadb import running_server
from tests.unit.backend.harness import Harness, p64

HERE = Path(__file__).parent
TABLES = ("config", "pt", "trans", "obj", "data", "ttrans", "tobj")
#: More than SQLite has in a page, so that values span several.
BIG = bytes(range(256)) * 40
#: More than MariaDB has in a row of ``data``: pieces, of which the last one is shorter.
HUGE = bytes((16 << 20) + 5)
#: Rows that the node keeps for itself: of a backup, of a pack and a repair that were cut short, of votes
#: that were dropped.
CONFIG = {
    "truncate_tid": p64(999).hex(),
    "backup_tid": p64(39).hex(),
    "_pack_wanted": "33",
    "_packed.0": "33",
    "_packing": f"1:33:{p64(1).hex()}",
    "_erase": "1 2",
    "_dropped_ttid": p64(41).hex(),
}


def huge(adapter: str) -> bytes:
    """The value of oid 4: a file would grow by so much with SQLite, which has nothing to cut."""
    return HUGE if adapter == "MySQL" else b"a value as others"


def fill(harness: Harness) -> Any:
    """Something of everything that a database may have."""
    backend = harness.open(reset=True)
    for name, value in {"name": "releases", "nid": "1", **CONFIG}.items():
        backend.tables.set_config(name, value)
    up, out, feeding = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING
    cells = [(0, 1, up), (1, 1, feeding), (2, 1, up), (1, 2, out), (2, 2, CellState.CORRUPTED)]
    backend.tables.change_cells(7, 1, cells, 1, True)
    harness.commit(backend, 30, {0: b"first", 1: b"one", 2: BIG, 4: huge(harness.adapter)})
    harness.commit(backend, 33, {0: b"second", 3: b""})
    harness.commit(backend, 36, {0: 30})  # an undo
    harness.commit(backend, 39, {3: None})  # an object that exists no more
    backend.maintenance.pack(p64(33), 0, p64(0), 100)
    harness.vote(backend, 42, {1: b"voted"})
    harness.vote(backend, 45, {2: b"locked"})
    backend.commits.lock(p64(45), p64(48))
    backend.tables.change_cells(8, 1, [(2, 1, out)], 1, False)
    harness.wait(backend.engine.stored)
    return backend


def rows(backend: Any) -> dict[str, list[list[Any]]]:
    """All tables, as JSON has them: bytes in hexadecimal. Without the row that is random."""

    def plain(value: Any) -> Any:
        return value.hex() if isinstance(value, bytes) else value

    found = {}
    for table in TABLES:
        if table == "config":
            read = [[name, value] for name, value in backend.tables._config.items() if name != ROW]
        else:
            read = [[plain(v) for v in row] for row in backend.engine.read(f"SELECT * FROM {table}")]
        found[table] = sorted(read, key=repr)
    return found


def write(harness: Harness, name: str) -> None:
    """Make the database, and the JSON file that tells what it has."""
    expected = rows(fill(harness))
    harness.close()
    path = HERE / f"format-{VERSION}.{name}.json"
    path.write_text(json.dumps(expected, indent=1) + "\n")


def dumped(database: str) -> bytes:
    """As SQL, in which long runs of zeros are short."""
    name, _, socket = database.partition("@")[2].partition("/")
    dump = subprocess.run(
        ["mariadb-dump", "--hex-blob", "--skip-comments", "--compact", "--skip-opt"]
        + ["--create-options", "-uroot", f"--socket=/{socket}", name, *TABLES, "bigdata"],
        capture_output=True,
        check=True,
    )
    return re.sub(
        rb"0x((?:00){1000,})\b", lambda m: b"REPEAT(0x00,%d)" % (len(m[1]) // 2), dump.stdout
    )


def main() -> None:
    harness = Harness("SQLite", str(HERE / f"format-{VERSION}.sqlite"))
    write(harness, "sqlite")
    with sqlite3.connect(harness.database) as database:
        database.execute("PRAGMA journal_mode=DELETE")
    for suffix in "-lock", "-wal", "-shm", ".acknowledged":
        Path(harness.database + suffix).unlink(missing_ok=True)
    # The dump has a piece in hexadecimal.
    with running_server("--max-allowed-packet=64M") as server:
        harness = Harness("MySQL", server.create_database())
        write(harness, "mariadb")
        (HERE / f"format-{VERSION}.mariadb.sql").write_bytes(dumped(harness.database))


if __name__ == "__main__":
    main()
