"""One value in the root of a database."""

from __future__ import annotations

from ZODB.DB import DB


def commit(db: DB, value: int) -> None:
    with db.transaction() as connection:
        connection.root()["value"] = value


def read(db: DB) -> int:
    db.storage.sync()
    with db.transaction() as connection:
        value: int = connection.root()["value"]
    return value
