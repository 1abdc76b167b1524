"""The port through which a storage node keeps its data (specification, *Storage Backends*).

Theory of operation
-------------------
The core of a storage node calls a backend from the thread of its event loop, synchronously, as
one calls a dictionary. Two things may take time and are therefore answered by a callback, which
always runs on the loop's thread, never inside the call that was given it:

* ``executed(done)``: every write asked before is visible to reads asked after ``done``.
* ``stored(done)``: every write asked before is **durable** (on disk, synced). Calls that come
  together share one sync (group commit). There is no other way to become durable.

Writes take effect in the order of the calls. A backend may run them at once (SQLite) or in a
thread of its own (MariaDB); the core therefore keeps its locks until ``executed``.

All writes since the last covered ``stored`` form one database transaction: a crash loses all of
them or (after the commit) none. Oids, tids and ttids are 8 bytes here and integers in the tables.

A failing database (disk full, server lost, corrupted file) raises :class:`BackendFailure`, or hands
it to the ``on_failure`` callback when it happens in a thread. The node then stops serving, closes,
opens the backend anew until that works, and joins the cluster again: no statement is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from neo.protocol.enums import CellState
from neo.protocol.ids import ZERO_TID

Done = Callable[[], None]

#: Row of ``config``: ``backup_tid`` as it was when Truncate ended backup mode, until the data is cut.
LEFT_BACKUP_TID = "_left_backup_tid"


class BackendFailure(Exception):
    """This process cannot use the database any longer; the message says why and what to do."""


class DatabaseAway(BackendFailure):
    """The server of the database does not answer: it may come, or come back."""


#: For messages, after the better way (docs/operating.md, *A database is lost*).
FILL_ANEW = (
    "Or start the node with an empty database: it is another node then, with a new id. 'neoctl add' it,"
    " 'neoctl drop' the old one, and 'neoctl tweak': replicas fill it"
)


class DatabaseGone(BackendFailure):
    """It is not there any more, and opening it again would make an empty one: the process must end."""


class WentBack(BackendFailure):
    """The database lacks what was acknowledged: it is an older copy, or it is damaged."""


class BackendRefused(Exception):
    """A single value cannot be kept (too big for the backend); nothing was written."""


class RecordDamaged(Exception):
    """One value is missing or does not match its checksum; the others can be read."""


class Record(NamedTuple):
    """One revision of an object as read from the tables."""

    serial: bytes
    next_serial: bytes | None
    compression: int | None  # None: the creation of the object was undone
    checksum: bytes
    data: bytes
    data_serial: bytes | None


class TransactionMeta(NamedTuple):
    """What AskStoreTransaction brings; kept in ``ttrans`` then ``trans``."""

    user: bytes
    description: bytes
    extension: bytes
    oids: Sequence[bytes]


class Transaction(NamedTuple):
    """A committed transaction as read from ``trans``. ``packed``: revisions that it made may be gone,
    so it cannot be undone."""

    tid: bytes
    user: bytes
    description: bytes
    extension: bytes
    packed: bool
    oids: list[bytes]
    ttid: bytes


class Order(Enum):
    """See AskRevisions."""

    SNAPSHOT = 0
    BY_OID = 1
    BY_TID = 2


class PageRequest(NamedTuple):
    """As AskRevisions, in whose docstring the fields are explained."""

    partition: int
    order: Order
    min_tid: bytes
    max_tid: bytes
    after: tuple[bytes, bytes] | None
    max_bytes: int
    data: bool


#: (oid, tid) of a revision.
Key = tuple[bytes, bytes]
#: What a row of a page costs beside its value, on the way and in the reader.
ROW_BYTES = 64
#: As in AnswerRevisions.
RevisionRow = tuple[bytes, bytes, int | None, bytes, int, bytes | None, bytes | None]


class Stored(NamedTuple):
    """A change of one object inside a transaction that is being committed."""

    oid: bytes
    data_id: int | None  # None: undo of a creation
    value_serial: bytes | None  # undo: the serial whose data is current again


class Tail(NamedTuple):
    """What a partition has last: tids, and (tid, oid) of revisions, ascending."""

    transactions: list[bytes]
    revisions: list[tuple[bytes, bytes]]


class Cell(NamedTuple):
    """A row of ``pt``; ``tid``: see the specification, -state or the tid it is complete up to."""

    partition: int
    nid: int
    tid: int


class Backend(Protocol):
    """See the module's docstring. Implementations: ``sqlite.SQLite`` and ``mariadb.MariaDB``."""

    # -- life -----------------------------------------------------------------------------------

    def open(self, reset: bool = False) -> None:
        """Take the database's lock, create missing tables (``schema/*.sql``), check ``version``.

        ``reset`` erases every table first. Raises BackendFailure: not a database, not writable,
        of a newer format, used by another process, wrong server settings...
        """

    def close(self) -> None:
        """Make everything durable, release the lock. May be called twice."""

    # -- durability -----------------------------------------------------------------------------

    def executed(self, done: Done) -> None: ...

    def stored(self, done: Done) -> None: ...

    def drain(self) -> None:
        """Block until every write asked before is visible to reads. Only outside service."""

    # -- configuration and partition table --------------------------------------------------------

    def get_config(self, name: str) -> str | None: ...

    def set_config(self, name: str, value: str | None) -> None:
        """``None`` deletes the row."""

    def partition_count(self) -> int:
        """1 + max(pt.partition); 0 before the first table."""

    def cells(self) -> list[Cell]: ...

    def change_cells(
        self,
        ptid: int,
        replicas: int,
        changes: Iterable[tuple[int, int, CellState]],
        own_nid: int,
        replace: bool,
    ) -> None:
        """Write (partition, nid, state) changes, ptid, replicas. ``replace``: it is a whole table.

        Own cells that become OUT_OF_DATE keep the tid up to which they are complete (TABLES.md,
        *Loss of readability*); DISCARDED removes the row; ``drop_partition`` is for the data.
        """

    # -- reads: committed data only ---------------------------------------------------------------

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None:
        """The record of AskObject (at wins over before); None if there is none so. The checksum is
        verified: a mismatch raises RecordDamaged naming oid, serial and table."""

    def records(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Record | None]:
        """The revisions (tid, oid), which are of one partition, in this order, read when they are asked
        for: ``load`` of each, but ``next_serial`` may be None."""

    def object_exists(self, oid: bytes) -> bool:
        """Whether any revision exists: tells OID_NOT_FOUND from OID_DOES_NOT_EXIST."""

    def last_serial(self, oid: bytes) -> bytes | None: ...

    def serial_at(self, oid: bytes, tid: bytes) -> bytes | None:
        """Of the last revision up to ``tid``, also if that is a deletion."""

    def value_at(self, oid: bytes, serial: bytes) -> tuple[int | None, bytes | None] | None:
        """(data_id, value_serial) of the revision, None if there is none: to store an undo.

        Takes a pending reference to the data, as ``store_data`` does, so that a pack leaves it.
        """

    def undo_serial(
        self, oid: bytes, max_tid: bytes, undone_tid: bytes, pending: Stored | None
    ) -> tuple[bytes, bytes | None, bool] | None:
        """(current_serial, undo_serial, is_current) as AskObjectUndoSerial answers (FACTS 7.8).

        ``pending``: what the same transaction already stored for this oid (several undos in one).
        None: undone_tid did not touch the oid. Raises KeyError if the revision to go back to
        is packed away.
        """

    def packed_value(self, oid: bytes, serial: bytes, tid: bytes) -> bytes | None:
        """The revision whose data this one has when a pack at ``tid`` is done; None: its own.

        Raises KeyError(serial) if there is no such revision.
        """

    def history(
        self, oid: bytes, first: int, last: int, since: bytes = ZERO_TID
    ) -> list[tuple[bytes, int]]:
        """Return [(serial, size)] newest first, [first, last) of the revisions that are not older than
        ``since``; size as stored."""

    def transaction(self, tid: bytes) -> Transaction | None: ...

    def tids_descending(self, first: int, last: int, partitions: Sequence[int]) -> list[bytes]: ...

    def tids_ascending(
        self, min_tid: bytes, max_tid: bytes, length: int, partition: int
    ) -> list[bytes]:
        """Both bounds included."""

    def oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        """Ascending oids >= min_oid that have a current revision in the partition."""

    def distinct_oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        """The next oids >= min_oid of any revision in the partition, ascending. Objects with many
        revisions cost no more than others."""

    def greatest_oid(self, partition: int) -> bytes | None:
        """The greatest oid of any revision in the partition; None if it is empty."""

    def size(self) -> int:
        """Bytes that the tables and their indexes take, as the database counts them: exact to the page on
        SQLite; from the server's statistics, which may be minutes old, on MariaDB."""

    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], Key | None]:
        """(rows, after): a page of revisions for bulk readers, and the key to ask for the next one
        after; None if there is none. It looks at a bounded number of revisions, of which none needs
        to be a row of the page. Checksums are passed on, not verified: the reader does that."""

    def last_ids(self, partitions: Sequence[int]) -> tuple[bytes | None, bytes | None]:
        """(greatest oid, greatest tid) over obj and trans of these partitions."""

    def tail(self, partition: int, max_tid: bytes, length: int) -> Tail:
        """The last ``length`` transactions and revisions up to ``max_tid``, from indexes alone."""

    def final_tid(self, ttid: bytes) -> bytes | None:
        """tid of a committed (``trans``) or locked (``ttrans``) transaction."""

    def locked_transactions(self) -> dict[bytes, bytes | None]:
        """ttids in ttrans (with tid or None) and tobj: the answer of AskLockedTransactions."""

    # -- two-phase commit -------------------------------------------------------------------------

    def store_data(self, oid: bytes, compression: int, checksum: bytes, data: bytes) -> int:
        """Write the raw data at once and return its data_id (partition in the high 16 bits).

        Raises BackendRefused when the backend cannot keep a value of this size.
        """

    def load_data(self, data_id: int) -> tuple[int, bytes, bytes]:
        """(compression, checksum, data), also of data that is not committed yet."""

    def release_data(self, data_ids: Iterable[int]) -> None:
        """Drop one pending reference each: data that nothing refers to is deleted.

        For changes that were not voted; ``unlock`` and ``abort`` take care of those that were.
        """

    def vote(self, ttid: bytes, meta: TransactionMeta | None, stored: Iterable[Stored]) -> None:
        """Rows of ``tobj``, and of ``ttrans`` with tid NULL if meta is given.

        Once for a ttid. Raises BackendRefused when metadata is longer than its column.
        """

    def lock(self, ttid: bytes, tid: bytes) -> None:
        """Set ttrans.tid (nodes that have the metadata)."""

    def unlock(self, ttid: bytes, tid: bytes) -> None:
        """Move ttrans to trans and tobj to obj with the final tid.

        It becomes durable with the next ``stored`` or ``close``: ask for one within a second.
        """

    def abort(self, ttid: bytes) -> None:
        """Delete the rows of a voted transaction and its unreferenced data."""

    def validate(self, ttid: bytes, tid: bytes) -> None:
        """ValidateTransaction: lock and unlock whatever rows there are."""

    def drop_unfinished(self) -> None:
        """Start of operation: delete what is left in ttrans and tobj, and its unreferenced data."""

    # -- replication (specification, *Replication*): committed rows of cells that are out of date ---

    def objects_ascending(
        self, partition: int, min_tid: bytes, min_oid: bytes, max_tid: bytes, length: int
    ) -> list[tuple[bytes, bytes]]:
        """(tid, oid) of revisions from (min_tid, min_oid) to the last one of max_tid, in order."""

    def add_transaction(self, transaction: Transaction) -> None:
        """A row of ``trans``. Raises BackendRefused as ``vote`` does."""

    def add_object(self, oid: bytes, record: Record) -> None:
        """A row of ``obj`` and its data, if any; ``record.next_serial`` is ignored.

        The row of ``data`` is that of ``record.data_serial`` where there is such a revision. Raises
        BackendRefused as ``store_data`` does.
        """

    def delete_transactions(self, tids: Iterable[bytes]) -> None: ...

    def delete_objects(self, objects: Iterable[tuple[bytes, bytes]], packed: bool = False) -> None:
        """Delete revisions (tid, oid) and their unreferenced data.

        ``packed``: a pack of the source removed them, and all revisions that were there before are
        here: undos that had their values are pointed to others as that pack did.
        """

    def unlink_undone(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        """Take their data from undos that go back to one of these revisions (tid, oid), which are about
        to be deleted: ``link_undone`` lists them, as those that were accepted blindly."""

    def packed_elsewhere(self, tid: bytes) -> None:
        """Revisions up to tid may be gone, or are about to go: raises ``_pack_tid``."""

    def link_undone(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Give each undo that was accepted before the revision it goes back to was here its data.

        Returns, in order, (tid, oid) of those whose revision is still not here.
        """

    def set_complete(self, partition: int, nid: int, tid: bytes) -> None:
        """The own OUT_OF_DATE cell is complete up to tid; nothing if it is not one, or more."""

    def forget_complete(self, nid: int) -> None:
        """Own OUT_OF_DATE cells are to be compared from the beginning."""

    # -- maintenance: each call does a bounded piece of work ---------------------------------------

    def truncate(self, tid: bytes, partitions: Sequence[int]) -> None:
        """Delete everything later than tid in these partitions (AskLastIDs with truncate_tid)."""

    def pack(self, tid: bytes, partition: int, min_oid: bytes, length: int) -> bytes | None:
        """One step of a pack: ``length`` oids from min_oid; returns the oid to go on with.

        Keeps the greatest tid of all packs in the configuration row ``_pack_tid``.
        """

    def prune_orphans(self, dry_run: bool, min_id: int, length: int) -> tuple[int, int, int | None]:
        """One step: (rows, bytes, next id): data rows that neither obj nor tobj refers to."""

    def drop_partition(self, partition: int, length: int) -> bool:
        """Delete ``length`` rows of a partition this node no longer has; False: nothing left."""


class Schedule(Protocol):
    """How a backend gives a callback to the loop's thread (``loop.call_soon_threadsafe``)."""

    def __call__(self, callback: Callable[..., None], *args: object) -> object: ...
