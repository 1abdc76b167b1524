"""Check that a MariaDB server makes commits durable, and translate its errors into messages."""

from __future__ import annotations

import re

from neo.storage.backend.api import BackendFailure, DatabaseAway, StatementRefused
from neo.storage.backend.mariadb.link import Error, Link

ENGINE = "InnoDB"

VERSION_MIN = (10, 6)

#: A value of just under 16 MiB is kept in one row. The default of MariaDB is 16 MiB.
PACKET_MIN = 16 << 20

#: Errors of a server that does not answer or is not ready yet: retry.
AWAY = {1040, 1053, 1077, 1203, 1927, 2002, 2003, 2006, 2012, 2013}

#: Errors of one statement: the server undoes it, and nothing else. A column may not be NULL, two rows
#: have the same key, a value does not fit.
REFUSED = {1048, 1062, 1264, 1292, 1366, 1406, 1690, 1761}

_ADVICE = {
    "the server is away. Start it, and check the path of its socket": AWAY,
    "the server refuses this user. Check user and password, and GRANT ALL on the database": {
        1044,
        1045,
        1142,
        1143,
        1227,
        1370,
        1698,
    },
    "the database does not exist. Create it: CREATE DATABASE": {1049},
    "the server has no space left. Free space on its disk: the node goes on by itself": {
        3,
        28,
        1021,
        1030,
        1114,
    },
    "the server is read-only. SET GLOBAL read_only=0, and check that its disk is mounted"
    " writable": {1290, 1792, 1836, 1036},
    "a table is damaged or missing. Restore the database, or empty it and let the replicas of this"
    " node fill it": {126, 127, 144, 145, 1034, 1146, 1194, 1195, 1712, 1877, 1932},
    "another program holds locks in this database. Only this node may write to it": {1205, 1213},
    "a statement is longer than the server accepts. Set max_allowed_packet=64M for the server": {
        1153,
        2020,
    },
}


def explain(error: Exception, name: str) -> BackendFailure:
    """Return the failure for an error of the database ``name``, the position file, or the writer."""
    if isinstance(error, OSError):
        return BackendFailure(
            f"{name}: cannot use {error.filename}, the file of the setting 'mark': {error.strerror}. It"
            " must be a file that the user of this process may read and write, on a disk with free space"
        )
    if not isinstance(error, Error):
        return BackendFailure(f"{name}: writing failed: {error!r}")
    code = error.args[0] if error.args else None
    advice = next(
        (advice for advice, codes in _ADVICE.items() if code in codes),
        "the server refused a statement",
    )
    kind = BackendFailure
    if code in AWAY:
        kind = DatabaseAway
    elif code in REFUSED:
        kind = StatementRefused
    return kind(f"{name}: {advice} ({error})")


def check(link: Link, name: str) -> None:
    """Raise BackendFailure if the server is unsuitable for a storage node."""
    version = link.execute("SELECT VERSION()")[0][0].decode()
    numbers = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", version)
    if "mariadb" not in version.lower() or numbers is None:
        raise BackendFailure(f"{name}: the server is {version}, not MariaDB. Use a MariaDB server")
    if (int(numbers[1]), int(numbers[2])) < VERSION_MIN:
        raise BackendFailure(
            f"{name}: the server is MariaDB {version}. At least {VERSION_MIN[0]}.{VERSION_MIN[1]}"
            " is needed: upgrade it"
        )
    engines = {row[0].decode().lower(): row[1].decode() for row in link.execute("SHOW ENGINES")}
    if engines.get(ENGINE.lower()) not in ("YES", "DEFAULT"):
        raise BackendFailure(
            f"{name}: the server does not have the engine {ENGINE}. Start it without skip-innodb"
        )
    _check_variables(link, name)


def _check_variables(link: Link, name: str) -> None:
    if link.packet_max < PACKET_MIN:
        raise BackendFailure(
            f"{name}: max_allowed_packet={link.packet_max} is too small for big objects. Set"
            " max_allowed_packet=16M or more in the server's configuration"
        )
    if (value := link.variable("read_only")) not in ("OFF", "0", None):
        raise BackendFailure(
            f"{name}: the server is read-only (read_only={value}). SET GLOBAL read_only=0"
        )
    # 3 syncs as well, once more per group commit.
    if (value := link.variable("innodb_flush_log_at_trx_commit")) not in ("1", "3"):
        raise BackendFailure(
            f"{name}: innodb_flush_log_at_trx_commit={value} loses acknowledged transactions when"
            " the machine crashes. SET GLOBAL innodb_flush_log_at_trx_commit=1, and in the server's"
            " configuration"
        )
    if (value := link.variable("innodb_flush_method")) in ("nosync", "littlesync"):
        raise BackendFailure(
            f"{name}: innodb_flush_method={value} loses acknowledged transactions when the machine"
            " crashes. Remove that setting"
        )
    if (value := link.variable("innodb_force_recovery")) not in ("0", None):
        raise BackendFailure(
            f"{name}: the server is in recovery mode (innodb_force_recovery={value}) and accepts no"
            " writes. Restart it without that setting"
        )


def check_engines(link: Link, name: str, tables: tuple[str, ...]) -> None:
    """Raise BackendFailure if a table has another engine, because it would not commit atomically."""
    rows = link.execute(
        "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA=DATABASE() AND TABLE_TYPE='BASE TABLE'"
    )
    for table, engine in rows:
        if table.decode() in tables and engine.decode().lower() != ENGINE.lower():
            raise BackendFailure(
                f"{name}: table {table.decode()} is of engine {engine.decode()}; NEO needs"
                f" {ENGINE}. ALTER TABLE {table.decode()} ENGINE={ENGINE}, or use an empty"
                " database"
            )
