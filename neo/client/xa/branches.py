"""The databases of a transaction with one outcome, by xid: NEO, DB-API 2.0, and the protocol for others.

The same xid is used in all databases. :func:`new_xid` says what is in it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol

from ZODB.POSException import StorageTransactionError

from neo.client.commit.prepared import COMMITTED, ROLLED_BACK, Outcome
from neo.client.errors import ConfigurationError
from neo.client.history.transactions import transaction_information
from neo.client.storage import NEOStorage
from neo.client.xa.evidence import (
    BRANCHES_KEY,
    PROOFS_KEY,
    Fate,
    PostgresTransaction,
    has_transaction,
    in_history,
    noted,
    postgres_fate,
    postgres_row,
    read_extension,
)
from neo.protocol.ids import ZERO_TID

logger = logging.getLogger("neo.client")

#: The beginning of the xids of this package, by which it recognises its own transactions.
PREFIX = b"neo-xa-"
#: Hexadecimal digits of an xid that stand for the name of the coordinator.
TAG_DIGITS = 8
#: Connections of a DBAPIBranch that are kept open between transactions: the threads of a usual server.
IDLE_CONNECTIONS = 16
#: Outcomes that a master remembers at most (specification 24.15).
OUTCOMES_MAX = 100_000
#: Names of databases, which XA limits to ASCII, and ``neoresolve`` to what is no DSN.
_NAME = re.compile("[A-Za-z0-9._-]{1,64}")
_WITNESS = re.compile(b"-[0-9a-f]{16}-([0-9a-f]{16})$")
#: The format of the xids of DB-API 2.0: the letters NEO.
XID_FORMAT = 0x4E454F


def xid_prefix(coordinator: str) -> bytes:
    """Return how the xids of transactions begin for which this database decides. Only its outcomes count:
    for another one they are unknown, which means rolled back."""
    return PREFIX + hashlib.sha256(coordinator.encode()).hexdigest()[:TAG_DIGITS].encode() + b"-"


def new_xid(coordinator: str, last: bytes, random: bytes) -> bytes:
    """Return an xid: the prefix, ``random`` and ``last`` in hexadecimal digits. ``last``: the tid of the
    last transaction of the coordinator's database, by which :func:`witness` recognises that."""
    return xid_prefix(coordinator) + f"{random.hex()}-{last.hex()}".encode()


def witness(xid: bytes) -> bytes | None:
    """Return the tid of a transaction that the coordinator's database has; None if it was empty, or if
    an earlier version gave the xid."""
    found = _WITNESS.search(xid)
    tid = bytes.fromhex(found[1].decode()) if found else ZERO_TID
    return None if tid == ZERO_TID else tid


class Session(Protocol):
    """The work of one transaction in a database that is not ZODB's.

    A session may have two more methods. ``proof()`` returns a text by which the branch's ``fate()``
    recognises the transaction. ``savepoint()`` returns a function that goes back to the savepoint.
    """

    def prepare(self) -> None:
        """Make the work outlive this process. Raise any exception: then nothing is prepared."""

    def commit(self) -> None:
        """Commit the work, which may be prepared."""

    def rollback(self) -> None:
        """Undo the work, which may be prepared."""

    def leave(self) -> None:
        """Let go of the work, which stays prepared. Raise nothing."""


class Branch(Protocol):
    """A database whose transactions are prepared, and then decided by xid from any process.

    Methods may raise any exception if the database cannot be reached. It may be :class:`Proving`.
    """

    @property
    def name(self) -> str:
        """A name for people that no other database of the application has, and that never changes."""

    def recover(self) -> dict[bytes, float | None]:
        """Return the xids of this package that are prepared: since when (seconds since 1970), if that is
        known."""

    def commit(self, xid: bytes) -> None: ...

    def rollback(self, xid: bytes) -> None: ...

    def forget(self, xid: bytes) -> None:
        """Forget the outcome, which nobody will ask for again."""


class NEOBranch:
    """A NEO cluster, by a storage that is connected to it."""

    def __init__(self, storage: NEOStorage) -> None:
        self._storage = storage

    @property
    def name(self) -> str:
        return self._storage.getName()

    def recover(self) -> dict[bytes, float | None]:
        return {p.xid: p.since for p in self._storage.recover() if p.xid.startswith(PREFIX)}

    def commit(self, xid: bytes) -> None:
        self._storage.commit_prepared(xid)

    def rollback(self, xid: bytes) -> None:
        """Roll back. An unknown xid cannot be prepared any more. Raise RefusedError if it is
        committed."""
        self._storage.rollback_prepared(xid)

    def forget(self, xid: bytes) -> None:
        self._storage.forget_prepared(xid)

    def fate(self, xid: bytes, proof: str | None, decided: float) -> Fate:
        outcome = self.outcome(xid)
        if outcome is not None and outcome.state in (COMMITTED, ROLLED_BACK):
            return Fate(outcome.state)
        return Fate.COMMITTED if self.has_committed(xid, decided) else Fate.FOREIGN

    def has_committed(self, xid: bytes, since: float) -> bool:
        """Return whether the history has the xid since a moment."""
        return in_history(self._storage.replicas, xid, since)

    def has_transaction(self, tid: bytes) -> bool:
        """Return whether the history has a transaction. Its metadata may have been packed away."""
        return has_transaction(self._storage.replicas, tid)

    def rolled_back(self) -> set[bytes]:
        """Return the xids for which this database decides, and which it rolled back."""
        return {x for x in self._ended(ROLLED_BACK) if x.startswith(xid_prefix(self.name))}

    def known(self, since: float) -> list[bytes]:
        """Return the xids that this database prepared or ended since a moment."""
        return [o.xid for o in self._storage.outcomes(OUTCOMES_MAX) if o.since >= since]

    def committed(self) -> list[bytes]:
        """Return the xids that this database remembers as committed."""
        return self._ended(COMMITTED)

    def _ended(self, state: str) -> list[bytes]:
        return [o.xid for o in self._storage.outcomes(OUTCOMES_MAX) if o.state == state]

    # -- of a coordinator --------------------------------------------------------------------------

    def outcome(self, xid: bytes) -> Outcome | None:
        """Return the decision; None if the xid is unknown."""
        return self._storage.outcome(xid)

    def undecided(self) -> dict[bytes, tuple[float, dict[str, str]]]:
        """Return the prepared transactions by xid: since when, and the proofs of the other databases, by
        name."""
        listed = self._storage.recover()
        return {p.xid: (p.since, noted(p.text)) for p in listed if p.xid.startswith(PREFIX)}

    def commits(self, length: int) -> dict[bytes, bytes]:
        """Return the tids of the last ``length`` decisions of this database to commit, by xid."""
        prefix = xid_prefix(self.name)
        commits = (
            (outcome.xid, outcome.tid)
            for outcome in self._storage.outcomes(OUTCOMES_MAX)
            if outcome.state == COMMITTED and outcome.tid and outcome.xid.startswith(prefix)
        )
        return dict(islice(commits, length))

    def participants(self, tids: Iterable[bytes]) -> list[dict[str, str | None] | None]:
        """Return the names of all databases that take part in committed transactions, with their proofs;
        None for each whose metadata was packed away, or cannot be read in this process."""
        answers = transaction_information(self._storage.replicas, list(tids))
        return [None if answer is None else _participants(answer.extension) for answer in answers]


def _participants(extension: bytes) -> dict[str, str | None] | None:
    found = read_extension(extension)
    if BRANCHES_KEY not in found:
        logger.info("the extension of a transaction does not name its databases, or cannot be read")
        return None
    proofs = found.get(PROOFS_KEY, {})
    return {name: proofs.get(name) for name in found[BRANCHES_KEY]}


class DBAPISession:
    """The work of one transaction on one connection. ``connection``: for the application's statements."""

    def __init__(self, connection: Any, idle: deque[Any], began: PostgresTransaction) -> None:
        self.connection = connection
        self.began = began
        self._idle = idle
        self._prepared = False
        self._savepoints = 0

    def prepare(self) -> None:
        self._check()
        self._prepared = True
        self.connection.tpc_prepare()

    def commit(self) -> None:
        if not self._prepared:
            self._check()
        self._end(self.connection.tpc_commit)

    def _check(self) -> None:
        """Raise the driver's error if a statement failed, and the application went on. PostgreSQL does
        not: it rolls back such a transaction at PREPARE TRANSACTION or COMMIT, and reports success. Raise
        StorageTransactionError if the application ended the transaction."""
        if not self.began.lasts():
            raise StorageTransactionError(
                "a COMMIT or ROLLBACK was executed in the session: what came before it is not part of"
                " this transaction; abort it, and leave COMMIT and ROLLBACK to the transaction manager"
            )

    def proof(self) -> str:
        """Return by what the database recognises this transaction later; prepare() checks the rest."""
        return self.began.proof()

    def savepoint(self) -> Callable[[], None]:
        """Return a function that undoes all statements after this call. The function may be called
        several times."""
        self._check()
        self._savepoints += 1
        name = f"neo_{self._savepoints}"
        self.connection.cursor().execute(f"SAVEPOINT {name}")

        def rollback() -> None:
            self.connection.cursor().execute(f"ROLLBACK TO SAVEPOINT {name}")

        return rollback

    def rollback(self) -> None:
        self._end(self.connection.tpc_rollback)

    def leave(self) -> None:
        self.connection.close()

    def _end(self, end: Callable[[], object]) -> None:
        """End the transaction. Keep the connection for another one, unless it failed."""
        try:
            end()
        except BaseException:
            self.connection.close()
            raise
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(self.connection)
        else:
            self.connection.close()


class DBAPIBranch:
    """A database with a driver that has the two-phase extension of DB-API 2.0, such as psycopg.

    ``name``: becomes part of each xid (``bqual``), and is given to ``neoresolve``. ``connect``: returns a
    new connection, not in autocommit mode. The server must allow prepared transactions: for PostgreSQL,
    ``max_prepared_transactions``. Raise ConfigurationError.
    """

    def __init__(self, name: str, connect: Callable[[], Any]) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"the name of a database has 1 to 64 letters, digits, '-', '_' or '.': {name!r}"
            )
        self._name = name
        self._connect = connect
        self._idle: deque[Any] = deque()
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        return self._name

    def begin(self, xid: bytes) -> DBAPISession:
        """Begin a transaction, which takes a connection until its end."""
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()  # the connections are the parent's
        while True:
            try:
                idle = self._idle.pop()
            except IndexError:
                return self._begin(self._connect(), xid)
            try:
                return self._begin(idle, xid)
            except Exception as e:  # noqa: BLE001 - of any driver
                logger.info(
                    "a connection to %r was lost while it was not in use: %s", self._name, e
                )

    def _begin(self, connection: Any, xid: bytes) -> DBAPISession:
        try:
            connection.tpc_begin(connection.xid(XID_FORMAT, xid.decode(), self._name))
            began = PostgresTransaction(connection, xid)
        except BaseException:
            connection.close()
            raise
        return DBAPISession(connection, self._idle, began)

    def recover(self) -> dict[bytes, float | None]:
        connection = self._connect()
        try:
            return {xid.gtrid.encode(): _since(xid) for xid in self._ours(connection)}
        finally:
            connection.close()

    def _ours(self, connection: Any) -> list[Any]:
        found = [
            xid
            for xid in connection.tpc_recover()
            if (xid.format_id, xid.bqual) == (XID_FORMAT, self._name)
            and xid.gtrid.startswith(PREFIX.decode())
        ]
        if not any(getattr(xid, "database", None) for xid in found):
            return found
        # PostgreSQL lists the prepared transactions of all databases of the server. The server is asked
        # for the name of the database, because the connection may go through a pool that uses another
        # name.
        (here,) = postgres_row(connection, "SELECT current_database() AS here")
        return [xid for xid in found if xid.database == here]

    def commit(self, xid: bytes) -> None:
        self._decide(xid, "tpc_commit")

    def rollback(self, xid: bytes) -> None:
        self._decide(xid, "tpc_rollback")

    def _decide(self, xid: bytes, method: str) -> None:
        connection = self._connect()
        try:
            getattr(connection, method)(connection.xid(XID_FORMAT, xid.decode(), self._name))
        finally:
            connection.close()

    def forget(self, xid: bytes) -> None:
        """Do nothing: the database remembers no outcomes."""

    def fate(self, xid: bytes, proof: str | None, decided: float) -> Fate:
        connection = self._connect()
        try:
            return postgres_fate(connection, proof)
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()


def _since(xid: Any) -> float | None:
    """Return when a transaction was prepared, which drivers for PostgreSQL tell."""
    prepared = getattr(xid, "prepared", None)
    return None if prepared is None else float(prepared.timestamp())
