"""What proves that a database ended a transaction, and that it is the database that had prepared it.

A database that answers under the right name may be another one: a wrong DSN, or a new database. "Nothing
is prepared here" proves nothing then. PostgreSQL is known by its *proof*, which the coordinator's
transaction keeps: the identifier of the server, the oid of the database, and the number of the
transaction, whose state the server remembers. A NEO database is known by the xid itself: no other one
remembers its outcome, or has it in its history. The coordinator may not know the xid: it is known by the
transaction that was its last one when the xid was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from ZODB.Connection import TransactionMetaData

from neo.client.history.transactions import BATCH, tids_ascending, transaction_information
from neo.client.read.replicas import Replicas
from neo.protocol.ids import MAX_TID, format_xid, tid_from_time

#: Keys in the extension of transactions: the xid; the names of all databases that take part; and, by
#: name, the proofs of the databases that give one.
XID_KEY, BRANCHES_KEY, PROOFS_KEY = "xid", "xid_branches", "xid_databases"
#: The beginning of the note with proofs in the text of a prepared transaction, and the bound of its
#: bytes.
_NOTE, _NOTE_BYTES = f" {PROOFS_KEY}=", 900
#: Seconds by which the clocks of two databases may differ when a history is searched.
CLOCKS = 600.0


class Fate(Enum):
    """What a database knows of a transaction that is not prepared in it any more."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    FOREIGN = "unknown: it is another database than the one that prepared it"
    FORGOTTEN = "unknown: the database does not remember it"
    #: An earlier version prepared the transaction and stored no proof: it must suffice that the
    #: transaction is not prepared any more.
    UNPROVEN = "not prepared"


@runtime_checkable
class Proving(Protocol):
    """A branch that can tell what became of a transaction."""

    def fate(self, xid: bytes, proof: str | None, decided: float) -> Fate:
        """Return what became of an xid that is not prepared. ``decided``: when the coordinator committed
        it, in seconds since 1970. Raise any exception if the database cannot be asked."""


def in_history(replicas: Replicas, xid: bytes, since: float) -> bool:
    """Return whether a NEO database has committed an xid since a moment, in seconds since 1970, also if
    the outcome is forgotten."""
    text = format_xid(xid)
    replicas.barrier()
    first = tid_from_time(max(0.0, since - CLOCKS))
    tids = tids_ascending(replicas, first, MAX_TID)
    return any(text == found for found in _xids(replicas, tids))


def has_transaction(replicas: Replicas, tid: bytes) -> bool:
    """Return whether a NEO database has a transaction whose metadata is not packed away."""
    replicas.barrier()
    return transaction_information(replicas, [tid]) != [None]


def _xids(replicas: Replicas, tids: Iterator[bytes]) -> Iterator[object]:
    while batch := list(islice(tids, BATCH)):
        for answer in transaction_information(replicas, batch):
            if answer is not None:
                yield read_extension(answer.extension).get(XID_KEY)


def read_extension(extension: bytes) -> dict[str, Any]:
    """Return an extension; nothing if this process cannot read it."""
    try:
        return dict(TransactionMetaData("", "", extension).extension)
    except Exception:  # noqa: BLE001 - it may hold objects of any class of the application
        return {}


def note(proofs: Mapping[str, str]) -> bytes:
    """Return the note with proofs for the text of a prepared transaction, whose extension cannot be read
    before the decision. Return an empty note if it would be too long."""
    words = f"{_NOTE}{json.dumps(proofs, sort_keys=True)}".encode() if proofs else b""
    return words if len(words) <= _NOTE_BYTES else b""


def noted(text: str) -> dict[str, str]:
    """Return the proofs in the text of a prepared transaction."""
    try:
        found = json.loads(text.rpartition(_NOTE)[2])
    except ValueError:
        return {}
    return {n: p for n, p in found.items() if isinstance(p, str)} if isinstance(found, dict) else {}


def postgres_row(connection: Any, question: str) -> list[Any]:
    """Return the values of one row, whatever the application's connections make of rows. The columns have
    different names."""
    cursor = connection.cursor()
    if hasattr(cursor, "row_factory"):  # psycopg 3
        cursor.row_factory = import_module("psycopg.rows").tuple_row
    cursor.execute(question)
    row = cursor.fetchone()
    return list(row.values() if isinstance(row, Mapping) else row)


#: The setting of PostgreSQL that is valid until the end of the transaction in which it was made.
_SETTING = "neo.xid"


class PostgresTransaction:
    """The transaction of a connection to PostgreSQL, which the application's own COMMIT would end."""

    def __init__(self, connection: Any, xid: bytes) -> None:
        self._connection = connection
        self._xid = xid.decode()
        # A SELECT would fix the snapshot, and so the isolation level. xids are letters, digits and "-".
        self._connection.cursor().execute(f"SET LOCAL {_SETTING} = '{self._xid}'")

    def lasts(self) -> bool:
        """Return whether the connection is in the transaction that began. Raise the driver's error if a
        statement failed."""
        (xid,) = postgres_row(
            self._connection, f"SELECT current_setting('{_SETTING}', true) AS xid"
        )
        return bool(xid == self._xid)

    def proof(self) -> str:
        question = f"SELECT {_IDENTITY}, txid_current() AS number"
        server, database, number = postgres_row(self._connection, question)
        return f"postgresql {server} {database} {number}"


_IDENTITY = (
    "(SELECT system_identifier FROM pg_control_system()) AS server,"
    " (SELECT oid FROM pg_database WHERE datname = current_database()) AS database"
)


def postgres_fate(connection: Any, proof: str | None) -> Fate:
    """Return what became of a transaction of PostgreSQL that is not prepared."""
    if proof is None:
        return Fate.UNPROVEN
    _, server, database, number = proof.split(" ")
    found = [str(each) for each in postgres_row(connection, f"SELECT {_IDENTITY}")]
    if found != [server, database]:
        return Fate.FOREIGN
    (status,) = postgres_row(connection, f"SELECT txid_status({int(number)}) AS status")
    return {"committed": Fate.COMMITTED, "aborted": Fate.ROLLED_BACK}.get(status, Fate.FORGOTTEN)
