"""RelStorage on SQLite and on MariaDB.

RelStorage 4.3 supports MySQL; MariaDB 10.11 refuses two of its statements:

- Its schema declares foreign keys inside two columns of object_state. MySQL parses and ignores
  such a clause; MariaDB honours it, and finds that the types of the two columns differ.
- It takes MariaDB's version 10.11 for a MySQL newer than 8.0.19 and writes
  `INSERT … AS excluded ON DUPLICATE KEY UPDATE`, which MariaDB does not have.

So each start tries RelStorage as it is. Where that fails, the reason goes into the report and
RelStorage is measured with the table as MySQL would have made it, and as on MySQL 5.7.
"""

import contextlib
import logging
from pathlib import Path
from typing import Any

from relstorage.adapters.mysql import MySQLAdapter
from relstorage.adapters.mysql.schema import MySQLVersionDetector
from relstorage.adapters.sqlite.adapter import Sqlite3Adapter
from relstorage.options import Options
from relstorage.storage import RelStorage

from tests.bench import clients
from tests.bench.systems import START_SECONDS_MAX, System

# One statement of RelStorage holds a whole object; the default limit of 16 MB would refuse it.
_OPTIONS = ("--max-allowed-packet=1G",)

_OBJECT_STATE = (
    """CREATE TABLE object_state (
        zoid BIGINT NOT NULL,
        tid BIGINT NOT NULL,
        prev_tid BIGINT NOT NULL,
        md5 CHAR(32) CHARACTER SET ascii,
        state_size BIGINT NOT NULL,
        state LONGBLOB,
        CONSTRAINT object_state_pk PRIMARY KEY (zoid, tid),
        CHECK (tid > 0),
        CHECK (state_size >= 0)
    ) ENGINE = InnoDB""",
    "CREATE INDEX object_state_tid ON object_state (tid)",
    "CREATE INDEX object_state_prev_tid ON object_state (prev_tid)",
)


class RelStorageSQLite(System):
    title = "RelStorage SQLite"
    note = "inside the client's process, no server; does not sync its commits by default"

    def start(self, folder: Path) -> None:
        self._folder = folder

    def storage(self) -> Any:
        options = Options()
        return RelStorage(
            Sqlite3Adapter(str(self._folder), pragmas={}, options=options), options=options
        )

    def pids(self) -> dict[str, int]:
        return {}

    def stop(self) -> None:
        pass


class RelStorageMariaDB(System):
    """RelStorage on a MariaDB server of its own, in the database `stock` or, if refused, `adapted`."""

    title = "RelStorage MariaDB"
    note = "driver MySQLdb, over TCP as all servers here"

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def start(self, folder: Path) -> None:
        from tests.support.mariadb import running_server

        self._server = self._stack.enter_context(running_server(*_OPTIONS, tcp=True))
        self._server.query("CREATE DATABASE stock", "CREATE DATABASE adapted")
        self._database, self._adapted = "stock", False
        refusal = self._refusal()
        if refusal:
            self._database, self._adapted = "adapted", True
            self._server.query("USE adapted", *_OBJECT_STATE)
            self.note = (
                f"{type(self).note}; MariaDB refuses RelStorage as it is ({refusal}), so it is "
                "measured with object_state created without foreign keys and as on MySQL 5.7"
            )

    def _refusal(self) -> str | None:
        """Return why RelStorage cannot create and use its own schema here, or None if it can."""

        def attempt() -> None:
            logging.disable()  # RelStorage logs the statement; the report has the reason
            self.storage().close()

        try:
            clients.run(attempt, START_SECONDS_MAX)
        except clients.ClientFailed as error:
            return str(error)
        return None

    def storage(self) -> Any:
        options = Options(driver="MySQLdb", **self.options())
        adapter = MySQLAdapter(
            options=options,
            version_detector=_AsMySQL57() if self._adapted else None,
            user="root",
            host="127.0.0.1",
            port=self._server.port,
            db=self._database,
        )
        return RelStorage(adapter, options=options)

    def options(self) -> dict[str, Any]:
        """Return further options of a client storage."""
        return {}

    def pids(self) -> dict[str, int]:
        return {"mariadbd": self._server.pid}

    def stop(self) -> None:
        self._stack.close()


class _AsMySQL57(MySQLVersionDetector):
    """The newest version of MySQL whose SQL MariaDB 10.11 understands as RelStorage uses it."""

    def _fetch_version_from_server(self, cursor: Any) -> str:
        return "5.7.19"
