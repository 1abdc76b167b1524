"""The interface between a storage node and its database (specification 14).

Theory of operation
-------------------
The core of a storage node calls a backend synchronously, from the thread of its event loop. Two
operations take time. They report completion through a callback, which runs on the loop's thread and
never inside the call that passed it:

* ``executed(done)``: all earlier writes are visible to reads that are issued after ``done``.
* ``stored(done)``: all earlier writes are **durable** (on disk, synced). Concurrent calls share one
  sync (group commit). Nothing else makes a write durable.

Writes take effect in the order of the calls. A backend runs them at once (SQLite) or in a thread of
its own (MariaDB); the core therefore keeps its locks until ``executed``.

All writes since the last covered ``stored`` form one database transaction: a crash loses all of
them or (after the commit) none. Oids, tids and ttids are 8 bytes here and integers in the tables.

A failing database (disk full, server lost, corrupted file) raises :class:`BackendFailure`. If it
fails in a thread, the failure is passed to the ``on_failure`` callback. The node then stops serving,
closes the backend, opens it again until that works, and rejoins the cluster. No statement is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import NamedTuple, Protocol

from neo.archive.room import Disk
from neo.protocol.blobs import Content
from neo.protocol.enums import CellState
from neo.protocol.ids import ZERO_TID
from neo.storage.backend.disk_work import DiskWork
from neo.storage.backend.revisions import LookAhead

Done = Callable[[], None]

#: Row of ``config``: ``backup_tid`` at the end of backup mode by Truncate, until the data is cut.
LEFT_BACKUP_TID = "_left_backup_tid"


class BackendFailure(Exception):
    """The database has failed. This process must close it; the message says why and what to do."""


class StatementRefused(BackendFailure):
    """The database works and refused one statement, because its tables may not have such a row. What this
    process believes of the database is wrong, or what a peer sent."""


class DatabaseAway(BackendFailure):
    """The database server does not answer. It may be starting or restarting, so retry."""


#: The last resort that messages name after the preferred one (docs/maintenance.md, *A database is lost*).
FILL_ANEW = (
    "Or start the node with an empty database: it is another node then, with a new id. 'neoctl replace'"
    " the old one by it: replicas fill it"
)


class DatabaseGone(BackendFailure):
    """The database was deleted or replaced. The process must end, lest it create an empty one."""


class WentBack(BackendFailure):
    """The database lacks acknowledged transactions: it is an older copy, or it is damaged."""


class BackendRefused(Exception):
    """One value exceeds a limit of the backend; nothing was written."""


class RecordDamaged(Exception):
    """One value is missing or does not match its checksum. Other values can be read."""


class Record(NamedTuple):
    """One revision of an object as read from the tables."""

    serial: bytes
    next_serial: bytes | None
    compression: int | None  # None: the object does not exist at this revision
    checksum: bytes
    data: bytes
    data_serial: bytes | None


class TransactionMeta(NamedTuple):
    """Metadata from AskStoreTransaction, kept in ``ttrans`` and after the commit in ``trans``."""

    user: bytes
    description: bytes
    extension: bytes
    oids: Sequence[bytes]


class Transaction(NamedTuple):
    """A committed transaction as read from ``trans``.

    ``packed``: it cannot be undone, because a pack may have removed revisions that it wrote.
    """

    tid: bytes
    user: bytes
    description: bytes
    extension: bytes
    packed: bool
    oids: list[bytes]
    ttid: bytes


class Order(Enum):
    """The order of a page; see AskRevisions."""

    SNAPSHOT = 0
    BY_OID = 1
    BY_TID = 2


class PageRequest(NamedTuple):
    """Parameters of a page; AskRevisions documents the fields."""

    partition: int
    order: Order
    min_tid: bytes
    max_tid: bytes
    after: tuple[bytes, bytes] | None
    max_bytes: int
    data: bool


#: (oid, tid) of a revision.
Key = tuple[bytes, bytes]
#: Bytes that a row of a page takes besides its value, in the message and in the reader's memory.
ROW_BYTES = 64
#: A row of AnswerRevisions.
RevisionRow = tuple[bytes, bytes, int | None, bytes, int, bytes | None, bytes | None]


class Stored(NamedTuple):
    """A change of one object inside a transaction that is being committed."""

    oid: bytes
    data_id: int | None  # None: the creation is undone
    value_serial: bytes | None  # of an undo: the serial whose data is current again


class Prepared(NamedTuple):
    """The mark of a prepared transaction. ``since``: seconds since 1970. ``partitions``: all partitions
    of its objects and of its metadata, also those of other nodes."""

    ttid: bytes
    xid: bytes
    since: float
    text: bytes
    partitions: Sequence[int]


class JournalStep(NamedTuple):
    """How far a step of an operation is on this node. ``undo``: what its undo needs. ``context``: what it
    tells the steps that follow."""

    step: int
    state: int
    undo: bytes
    context: bytes


#: How far :meth:`Backend.regroup` is, and where it begins.
Place = tuple[int, int, int, int]
FIRST_PLACE: Place = (0, 0, -1, -1)

#: (oid, serial) of an object that a transaction checks.
Check = tuple[bytes, bytes]


class PreparedRows(NamedTuple):
    """The rows that a node keeps of a prepared transaction. ``metadata``: if it is kept here."""

    metadata: TransactionMeta | None
    stored: list[Stored]
    checks: list[Check]


class Decided(NamedTuple):
    """The outcome of a prepared transaction. ``tid``: None if it was rolled back. ``time``: seconds since
    1970."""

    xid: bytes
    ttid: bytes
    tid: bytes | None
    time: float


class Reference(NamedTuple):
    """A row of ``data`` that refers to a content."""

    data_id: int
    content: Content


class Tail(NamedTuple):
    """The newest rows of a partition: tids, and (tid, oid) of revisions, ascending."""

    transactions: list[bytes]
    revisions: list[tuple[bytes, bytes]]


class Cell(NamedTuple):
    """A row of ``pt``. ``tid``: -state, or the tid up to which an OUT_OF_DATE cell is complete."""

    partition: int
    nid: int
    tid: int


class Durability(Protocol):
    """When writes are visible and durable, and the room that they take."""

    def drain(self) -> None:
        """Block until all earlier writes are visible to reads. For rare operations."""

    def executed(self, done: Done) -> None: ...

    def stored(self, done: Done, alone: bool = False) -> None:
        """Call back when everything written until now is durable. ``alone``: nobody else is about to ask
        for the same, so that a quick sync may be made at once, by the calling thread."""

    def written(self, done: Done) -> None:
        """Call back when everything written until now has its room, which a disk that gets full cannot
        take back, and is what ``Backend.committed`` reads. It is not durable."""

    def attempt(self) -> AbstractContextManager[None]:
        """Undo what the block wrote if the database refuses a statement of it, and raise
        StatementRefused: the database stays in use. Slow: for databases that refused a statement before.
        Attempts nest."""

    def disk(self) -> Disk | None:
        """Return the disk of the database; None if that is not known here."""

    def work(self) -> DiskWork:
        """Return what the engine did so far."""

    def size(self) -> int:
        """Return the bytes of tables and indexes, as the database counts them: exact to the page, or from
        statistics, which may be minutes old (MariaDB)."""


class Tables(Protocol):
    """Configuration and partition table."""

    def get_config(self, name: str) -> str | None: ...

    def set_config(self, name: str, value: str | None) -> None:
        """Set a row of ``config``; None deletes it."""

    def partition_count(self) -> int:
        """Return 1 + max(pt.partition), or 0 before the first partition table."""

    def cells(self) -> list[Cell]: ...

    def change_cells(
        self,
        ptid: int,
        replicas: int,
        changes: Iterable[tuple[int, int, CellState]],
        own_nid: int,
        replace: bool,
    ) -> None:
        """Write (partition, nid, state) changes, ptid and replicas.

        ``replace``: the changes are a whole table. Own cells that become OUT_OF_DATE keep the tid up to
        which they are complete (14.13). DISCARDED removes the row of ``pt``, but no data."""

    def set_complete(self, partition: int, nid: int, tid: bytes) -> None:
        """Note that an own OUT_OF_DATE cell is complete up to ``tid``; never lower its tid."""

    def forget_complete(self, nid: int) -> None:
        """Note that own OUT_OF_DATE cells must be compared from the beginning."""


class Values(Protocol):
    """Data of objects, also of transactions that are not voted yet."""

    def store_data(self, oid: bytes, compression: int, checksum: bytes, data: bytes) -> int:
        """Write the raw data, take a pending reference to it and return its data_id.

        The partition is in the high 16 bits of the id. Raise BackendRefused if the value is too big.
        """

    def load_data(self, data_id: int) -> tuple[int, bytes, bytes]:
        """Return (compression, checksum, data), committed or not."""

    def release_data(self, data_ids: Iterable[int]) -> None:
        """Drop one pending reference to each, and delete data to which nothing refers.

        For changes that were not voted: ``unlock`` and ``abort`` release those of voted transactions.
        """


class Records(Protocol):
    """Reads of one revision or transaction."""

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None:
        """Return the record that AskObject asks for, or None. ``at`` takes precedence over ``before``.
        If the checksum does not match, raise RecordDamaged, which names oid, serial and table."""

    def transaction(self, tid: bytes) -> Transaction | None: ...


class Reads(Records, Protocol):
    """Reads of committed data."""

    def records(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Record | None]:
        """Yield the revisions (tid, oid) of one partition in this order, as ``load`` returns them, but
        ``next_serial`` may be None. They are read lazily."""

    def object_exists(self, oid: bytes) -> bool:
        """Return whether any revision exists: OID_NOT_FOUND or OID_DOES_NOT_EXIST."""

    def last_serial(self, oid: bytes) -> bytes | None: ...

    def serial_at(self, oid: bytes, tid: bytes) -> bytes | None:
        """Return the serial of the last revision up to ``tid``, even if that is a deletion."""

    def value_at(self, oid: bytes, serial: bytes) -> tuple[int | None, bytes | None] | None:
        """Return (data_id, value_serial) of a revision to which an undo goes back, or None.

        See all earlier writes without ``executed``: a revision that a queued pack removes is gone.
        Take a pending reference to the data, as ``store_data`` does, so that a pack keeps it.
        """

    def undo_serial(
        self, oid: bytes, max_tid: bytes, undone_tid: bytes, pending: Stored | None
    ) -> tuple[bytes, bytes | None, bool] | None:
        """Return (current_serial, undo_serial, is_current) as in AnswerObjectUndoSerial (specification
        6.21).

        ``pending``: the change that the same transaction already stored for this oid, if it undoes
        several. Return None if ``undone_tid`` did not change the oid. Raise KeyError if a pack has
        removed the revision to go back to.
        """

    def packed_value(self, oid: bytes, serial: bytes, tid: bytes) -> bytes | None:
        """Return the serial whose data a revision refers to after a pack at ``tid``; None: its own.

        Raise KeyError(serial) if there is no such revision.
        """

    def packed_undo(self, oid: bytes, value_serial: bytes, tid: bytes) -> bytes | None:
        """Return the serial whose data an undo to ``value_serial``, which is not committed yet, refers to
        after a pack at ``tid``; None: its own."""

    def history(
        self, oid: bytes, first: int, last: int, since: bytes = ZERO_TID
    ) -> list[tuple[bytes, int]]:
        """Return (serial, stored size) of the revisions [first, last) since ``since``, newest first."""

    def oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        """Return ascending oids >= ``min_oid`` of the partition whose current revision has data."""

    def distinct_oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        """Return ascending oids >= ``min_oid`` that have any revision in the partition.

        The cost does not depend on the number of revisions per object.
        """

    def greatest_oid(self, partition: int) -> bytes | None:
        """Return the greatest oid of any revision in the partition; None if it is empty."""

    def tids_descending(self, first: int, last: int, partitions: Sequence[int]) -> list[bytes]: ...

    def tids_ascending(
        self, min_tid: bytes, max_tid: bytes, length: int, partition: int
    ) -> list[bytes]:
        """Return tids of the partition, ascending; both bounds are included."""

    def last_ids(self, partitions: Sequence[int]) -> tuple[bytes | None, bytes | None]:
        """Return the greatest oid and the greatest tid in ``obj`` and ``trans`` of these partitions."""

    def tail(self, partition: int, max_tid: bytes, length: int) -> Tail:
        """Return the last ``length`` transactions and revisions up to ``max_tid``; read indexes only."""


class Pages(Protocol):
    """Pages for bulk readers."""

    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], Key | None]:
        """Return a page of revisions for bulk readers, and the key after which the next page begins.

        The key is None after the last page. A page examines a bounded number of rows and may be empty.
        It passes checksums on; the reader verifies them.
        """


class Commits(Protocol):
    """Two-phase commit, and the rows of prepared transactions."""

    def vote(self, ttid: bytes, meta: TransactionMeta | None, stored: Iterable[Stored]) -> None:
        """Insert rows into ``tobj``, and into ``ttrans`` with tid NULL if ``meta`` is given.

        Call at most once per ttid. Raise BackendRefused if metadata is longer than its column.
        """

    def lock(self, ttid: bytes, tid: bytes) -> None:
        """Set ``ttrans.tid``, if this node has the metadata."""

    def unlock(self, ttid: bytes, tid: bytes) -> None:
        """Move rows from ``ttrans`` to ``trans`` and from ``tobj`` to ``obj`` with the final tid.

        Delete the mark and the checks of a prepared transaction, and write its outcome if this node has
        the metadata (specification 24.11).

        The next ``stored`` or ``close`` makes this durable; call one within a second.
        """

    def abort(self, ttid: bytes) -> None:
        """Delete the rows of a voted transaction, its mark and its unreferenced data."""

    def validate(self, ttid: bytes, tid: bytes) -> None:
        """Lock and unlock the rows of a transaction: ValidateTransaction."""

    def drop_unfinished(self, keep: Collection[bytes] = ()) -> None:
        """Abort all voted and prepared transactions but these when operation starts. These lose their
        locks."""

    def final_tid(self, ttid: bytes, partition: int | None = None) -> bytes | None:
        """Return the tid of a committed (``trans``) or locked (``ttrans``) transaction. ``partition``: of
        the tid; None: that of the ttid."""

    def locked_transactions(self) -> dict[bytes, bytes | None]:
        """Return ttids in ``ttrans``, ``tobj`` and ``prepared`` with their tids, if known:
        AskLockedTransactions."""

    def prepared_rows(self, ttid: bytes) -> PreparedRows:
        """Return what is kept of a prepared transaction, by oid."""

    def replace_prepared(
        self,
        mark: Prepared,
        partition: int,
        metadata: TransactionMeta | None,
        checks: Iterable[Check],
    ) -> None:
        """Write the mark, and replace the rows that the transaction has in this partition: delete its
        objects, write ``metadata`` if it is given, and ``checks``. ``add_voted_object`` follows.

        Raise BackendRefused, and write nothing, if a column cannot keep a value.
        """

    def replace_voted(
        self, ttid: bytes, partition: int, metadata: TransactionMeta | None
    ) -> None:
        """Replace the rows that a transaction has in this partition: delete its objects, and write
        ``metadata`` if it is given. ``add_voted_object`` follows. Raise BackendRefused as
        ``replace_prepared``."""

    def add_voted_object(self, ttid: bytes, oid: bytes, record: Record) -> Stored:
        """Write an object of a prepared or voted transaction, and its data; return the change.

        ``record.serial`` is ignored. Share the row of ``data`` with the revision
        ``record.data_serial`` if that exists. Raise BackendRefused as ``store_data`` does.
        """


class Marks(Protocol):
    """Marks of prepared transactions, and their outcomes (specification 24)."""

    def mark_prepared(self, mark: Prepared, checks: Iterable[Check]) -> None:
        """Write the mark of a voted transaction, and what it checks.

        Raise BackendRefused, and write nothing, if a serial is too great for its column.
        """

    def prepared(self) -> list[Prepared]:
        """Return all marks. Never wait for the database."""

    def decide(self, outcomes: Iterable[Decided]) -> None:
        """Remember outcomes; each replaces an earlier one of its xid."""

    def decided(self) -> list[Decided]:
        """Return all outcomes that are remembered, by xid."""

    def forget_decided(self, xid: bytes) -> None:
        """Forget an outcome. Idempotent."""


class References(Protocol):
    """References to contents of blobs (specification 26.8)."""

    def has_content(self, checksum: bytes) -> bool:
        """Return whether a row of ``data`` refers to a content. See all earlier writes."""

    def contents(self, after: bytes, length: int) -> list[Content]:
        """Return contents to which rows of ``data`` refer, each once, with checksums above ``after``,
        ascending."""

    def content_groups(self) -> list[int]:
        """Return the groups of ids of ``data`` with contents, ascending. The group of an id is the
        partition of the first object that had the value, by the number of partitions of that time."""

    def references(self, group: int, after: int, length: int) -> list[Reference]:
        """Return references of rows of ``data`` of a group to which ``obj`` or ``tobj`` refers, with ids
        above ``after``, ascending."""

    def objects_with(self, checksum: bytes, length: int) -> list[Key]:
        """Return (oid, tid) of revisions that have a content, ascending."""

    def freed_contents(self) -> set[bytes] | None:
        """Return the checksums of contents from which a row of ``data`` was deleted since the last call:
        no other may be left. None: too many to remember."""

    def forget_freed(self, min_id: int, length: int) -> int | None:
        """Delete rows of ``content`` without a row of ``data``, which a crash left, among ``length``.
        Return the id where the next step begins."""

    def content_totals(self) -> tuple[int, int]:
        """Return the number of contents, and their bytes."""


class Journal(Protocol):
    """The journal of operations (specification 27.1)."""

    def journal(self) -> dict[int, tuple[bytes, list[JournalStep]]]:
        """Return the operations in which this node has a part: by id, the body and the steps, both
        ascending. See all earlier writes. Never wait for the database."""

    def begin_operation(self, id: int, body: bytes) -> None:
        """Write an operation, without steps; replace its body if it is there."""

    def write_step(self, id: int, step: JournalStep) -> None:
        """Write a step of an operation that is in the journal, or replace it."""

    def forget_operation(self, id: int) -> None:
        """Delete an operation and its steps. Idempotent."""


class Regrouping(Protocol):
    """Another number of partitions (specification 27.90)."""

    def regrouped(self) -> int | None:
        """Return for which other number of partitions this database has all rows, too; None if it has
        them for one number only."""

    def begin_regrouping(self, partitions: int) -> str:
        """Begin to keep all rows for another number of partitions, too. Return why that is not possible,
        and what to do; else ''. There must be no other rows: see :meth:`drop_regrouped`."""

    def regroup(self, after: Place, length: int) -> Place | None:
        """Copy some rows, ``length`` at most. Return where to go on; None at the end: then
        :meth:`regrouped` is set. Begin with FIRST_PLACE."""

    def switch_partitions(self, partitions: int) -> None:
        """Use the rows for the other number of partitions, to which :meth:`regrouped` was set, and keep
        the others up to date. The partition table is made anew with the same cells."""

    def drop_regrouped(self, length: int) -> bool:
        """Delete some rows that are kept for another number of partitions, about ``length``. Return
        whether none is left. Idempotent."""


class Replication(Protocol):
    """Committed rows of cells that are out of date (specification 10)."""

    def objects_ascending(
        self, partition: int, min_tid: bytes, min_oid: bytes, max_tid: bytes, length: int
    ) -> list[tuple[bytes, bytes]]:
        """Return ascending (tid, oid) of revisions from (min_tid, min_oid) to the last of ``max_tid``."""

    def add_transaction(self, transaction: Transaction) -> None:
        """Write a row of ``trans``. Raise BackendRefused as ``vote`` does."""

    def add_object(self, oid: bytes, record: Record) -> None:
        """Write a row of ``obj`` and its data, if any; ignore ``record.next_serial``.

        Share the row of ``data`` with the revision ``record.data_serial`` if that exists. Raise
        BackendRefused as ``store_data`` does.
        """

    def delete_transactions(self, tids: Iterable[bytes]) -> None: ...

    def delete_objects(self, objects: Iterable[tuple[bytes, bytes]], packed: bool = False) -> None:
        """Delete revisions (tid, oid) and their unreferenced data.

        ``packed``: a pack of the source removed them, and this cell has all revisions from before that
        pack. Undos that share their values are pointed to other revisions, as the pack did.
        """

    def unlink_undone(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        """Remove the data from undos that go back to one of these revisions (tid, oid).

        Call it before the revisions are deleted. ``link_undone`` then lists these undos; those of
        prepared transactions when they are committed.
        """

    def link_undone(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Give data to undos that arrived before the revision they go back to.

        Return (tid, oid), ascending, of undos whose revision is still missing.
        """

    def packed_elsewhere(self, tid: bytes) -> None:
        """Raise ``_pack_tid`` to ``tid``: revisions up to it may be gone, or go soon."""


class Maintenance(Protocol):
    """Maintenance: each call does a bounded piece of work."""

    def truncate(self, tid: bytes, partitions: Sequence[int]) -> None:
        """Delete all rows later than ``tid`` in these partitions (AskLastIDs with truncate_tid), and
        forget that prepared transactions were committed later."""

    def pack(
        self, tid: bytes, partition: int, min_oid: bytes, length: int, ahead: LookAhead | None = None
    ) -> bytes | None:
        """Pack from ``min_oid`` on at most ``length`` objects that have something to remove, among a
        bounded number of rows; return the oid where the next step begins. ``ahead``: the same for all
        steps of a pack of a partition.

        Keep the greatest tid of all packs in the configuration row ``_pack_tid``.
        """

    def prune_orphans(self, dry_run: bool, min_id: int, length: int) -> tuple[int, int, int | None]:
        """Delete rows of ``data`` to which neither ``obj`` nor ``tobj`` refers, among ``length`` rows.

        Return their number, their bytes with those of contents to which nothing else refers, and the id
        where the next step begins.
        """

    def drop_partition(self, partition: int, length: int) -> bool:
        """Delete ``length`` rows of a partition without a cell here; False: nothing is left.

        Rows of prepared transactions are deleted at once, outcomes at the end; a transaction that only
        voted keeps its rows.
        """


class Backend(Protocol):
    """A database of a storage node; the module's docstring has the rules. Users take the part that they
    need."""

    @property
    def engine(self) -> Durability: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def values(self) -> Values: ...

    @property
    def reads(self) -> Reads: ...

    @property
    def committed(self) -> Records | None:
        """Reads of any thread, without the open transaction; None if the database has none."""

    @property
    def pages(self) -> Pages: ...

    @property
    def commits(self) -> Commits: ...

    @property
    def marks(self) -> Marks: ...

    @property
    def blobs(self) -> References: ...

    @property
    def operations(self) -> Journal: ...

    @property
    def regrouping(self) -> Regrouping: ...

    @property
    def replication(self) -> Replication: ...

    @property
    def maintenance(self) -> Maintenance: ...

    def open(self, reset: bool = False) -> None:
        """Lock the database, create missing tables (``schema/*.sql``), check ``version``.

        ``reset``: erase every table first. Raise BackendFailure if this is not a database, cannot be
        written, has a newer format, is used by another process, or the server's settings are unsafe.
        """

    def close(self) -> None:
        """Make all writes durable and release the lock. Idempotent."""


class Schedule(Protocol):
    """Run a callback on the loop's thread soon, from any thread (``loop.call_soon_threadsafe``)."""

    def __call__(self, callback: Callable[..., None], *args: object) -> object: ...
