"""The engine below the SQL backends: statements, durability, and the differences between databases.

SQL text is written once, with ``?`` for parameters, wherever the dialects agree.

Writes take effect in the order of the calls. Reads see executed writes only, so code that must see its
own writes drains first (free on SQLite).

Oids and tids above MAX_TID are refused in writes, find nothing in reads, and mean "no bound" as upper
bounds, because SQLite's integers are signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol

from neo.archive.room import Disk
from neo.protocol.codec import LIMIT_PEER
from neo.storage.backend.api import BackendRefused, Done
from neo.storage.backend.disk_work import DiskWork

MAX_TID = (1 << 63) - 1

#: Bits of the counter in a data id, below the bits of the partition.
COUNTER_BITS = 48
#: Ids per ``IN (...)``: few enough for any parser, enough to amortize the cost of a statement.
IDS_PER_STATEMENT = 500

#: Bytes of an oid in a message.
PACKED_OID_BYTES = 10
#: Bytes of the metadata of a transaction in a message. The rest of the longest one, AddPrepared, has the
#: numbers of all partitions.
METADATA_MAX = LIMIT_PEER - (256 << 10)

_SIGNED = Struct(">q")
to_bytes = Struct(">Q").pack

Row = Sequence[Any]

SET_VALUE_TID = "UPDATE obj SET value_tid=? WHERE `partition`=? AND oid=? AND tid=?"


def to_int(value: bytes) -> int:
    """Return the integer of an oid or tid; above MAX_TID it is negative, hence in no table."""
    number: int = _SIGNED.unpack(value)[0]
    return number


def bound(tid: bytes) -> int:
    """Return the integer of an upper bound, MAX_TID at most."""
    number: int = _SIGNED.unpack(tid)[0]
    return number if number >= 0 else MAX_TID


def storable(value: bytes, what: str) -> int:
    """Return the integer of an oid or tid to be written. Raise BackendRefused above MAX_TID."""
    number: int = _SIGNED.unpack(value)[0]
    if number < 0:
        raise BackendRefused(f"{what} {value.hex()} is greater than the greatest, {MAX_TID:016x}")
    return number


def optional_bytes(number: int | None) -> bytes | None:
    return None if number is None else to_bytes(number)


@dataclass(frozen=True)
class Dialect:
    """Limits of a database, and SQL that differs between databases."""

    #: The name of the file ``schema/<name>.sql`` with the tables.
    name: str
    #: Partitions that data ids can number, in their high 16 bits.
    partitions_max: int
    #: Bytes of user, description or extension of a transaction; bytes of its list of oids.
    text_max: int
    oids_max: int
    #: Hint for statements by oid: MariaDB takes the index of tids for some of them.
    primary_key: str = ""
    #: SQL for the stored bytes of a value, and for the value, of the table named ``d``.
    value_length: str = "LENGTH(d.value)"
    value: str = "d.value"
    #: Records that one query reads, and the greatest value in it. 1: a query takes no round trip.
    records_together: int = 1
    small_bytes: int = 0
    #: Whether dropping a table takes no time, however long the table is.
    drops_at_once: bool = False
    #: Bit in ``data.compression``: the value is in another table. 0: no value is.
    big: int = 0

    def check_metadata(
        self, user: bytes, description: bytes, extension: bytes, oids: Sequence[bytes]
    ) -> None:
        """Raise BackendRefused if metadata of a transaction is longer than its column, or could not be
        sent to another node."""
        for what, value in ("user", user), ("description", description), ("extension", extension):
            if len(value) > self.text_max:
                raise BackendRefused(
                    f"the {what} of the transaction has {len(value)} bytes; this backend keeps at"
                    f" most {self.text_max}"
                )
        if len(oids) * 8 > self.oids_max:
            raise BackendRefused(
                f"the transaction has {len(oids)} objects; this backend lists at most"
                f" {self.oids_max // 8} for one"
            )
        total = len(user) + len(description) + len(extension) + len(oids) * PACKED_OID_BYTES
        if total > METADATA_MAX:
            raise BackendRefused(
                f"the metadata of the transaction has {total} bytes, more than {METADATA_MAX}, the most"
                " that travels between two nodes: shorten its description or extension"
            )


class Querying(Protocol):
    """Runs queries. The methods are those of :class:`Engine`."""

    @property
    def dialect(self) -> Dialect: ...

    def read(self, sql: str, *args: Any) -> Sequence[Row]: ...

    def big_value(self, data_id: int, compression: int, value: bytes | None) -> tuple[int, bytes]: ...

    def drain(self) -> None: ...


class Engine(Protocol):
    """A database that runs statements on the loop's thread and makes them durable.

    ``open``, ``close``, ``attempt``, ``drain``, ``executed``, ``stored``, ``written``, ``room`` and
    ``size``: see :class:`~neo.storage.backend.api.Backend`. All methods raise BackendFailure.
    """

    #: Name of the database in messages.
    name: str
    #: Whether equal values are kept once.
    dedup: bool
    #: Greatest length of a value. Known when the database is open.
    value_max: int

    @property
    def dialect(self) -> Dialect: ...

    @property
    def reader(self) -> Querying | None:
        """What runs queries of other threads on committed rows, while the database is open; None if there
        is none."""

    def open(self, reset: bool) -> None: ...

    def close(self) -> None: ...

    def read(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run a query and return all rows."""

    def write(self, sql: str, *args: Any) -> object:
        """Run a statement without rows."""

    def write_row(self, sql: str, *args: Any) -> object:
        """Insert or replace one row of many; ``sql`` ends with ``VALUES (?, ...)``.

        The engine may batch such rows, up to the next write of another kind.
        """

    def write_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run the same INSERT for many rows."""

    def insert_value(self, data_id: int, checksum: bytes, compression: int, data: bytes) -> None:
        """Insert a row of ``data``. The value has ``value_max`` bytes at most."""

    def delete_values(self, ids: Sequence[int]) -> None:
        """Delete these rows of ``data``, except those to which a row of ``obj`` refers."""

    def big_value(self, data_id: int, compression: int, value: bytes | None) -> tuple[int, bytes]:
        """Return (compression, data) of a row that was read without its value or whole value. Raise
        RecordDamaged if a part of it is missing."""

    def trigger_obstacle(self) -> str:
        """Return why the user of the database may not create triggers, and what to do; '' if that is
        possible."""

    def attempt(self) -> AbstractContextManager[None]: ...

    def drain(self) -> None: ...

    def executed(self, done: Done) -> None: ...

    def stored(self, done: Done, alone: bool = False) -> None: ...

    def written(self, done: Done) -> None: ...

    def disk(self) -> Disk | None: ...

    def size(self) -> int: ...

    def work(self) -> DiskWork: ...
