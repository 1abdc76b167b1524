"""The range of an export: decided once, written down, and followed by each process."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from msgspec import Struct, json

from neo.client import NEOStorage
from neo.client.history.scan import Scanner
from neo.migrate.listing import last_tid, transactions
from neo.protocol.ids import p64, u64
from neo.spark.tables import TABLES, columns_of

#: Files per table and steps per export. Spark reads files in parallel; a kill loses one step of each
#: process. An increment adds as many files to ``changes``.
GROUPS = 16
#: Partitions of a storage that has none, for queries that prune by the column.
PARTITIONS = 16
#: Bound of values in a signed column (docs/spark.md, *Tables*).
LIMIT = 1 << 63

#: Columns of revisions that each export has.
KEYS = ("partition", "oid", "tid", "timestamp")
#: ``data`` is left out, because three tables would repeat it.
DEFAULT_COLUMNS = tuple(c.name for c in TABLES["objects"] if c.name != "data")
#: Tables whose rows never change: an increment adds files.
APPENDED = ("changes", "transactions")
#: Tables whose rows depend on all transactions: rewritten from the last export and the changes.
DERIVED = ("history", "objects", "references")


class ExportError(Exception):
    """The export cannot be made; the message says why and what to do."""


class PackedError(ExportError):
    """A pack removed revisions that the export had not read yet, so it cannot continue."""


class Boundary(Struct, frozen=True, forbid_unknown_fields=True):
    """An exported transaction, which identifies the source later.

    ``packed``: whether a pack had passed it.
    """

    tid: int
    packed: bool


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of one snapshot.

    ``number``: of the snapshot. ``first``, ``last``: tids to read, both included. ``since``: the tid
    after which the whole folder begins. ``previous``: the name of the snapshot that this one
    continues; None for the first one. ``boundary``: of ``last``; None if the storage does not list it.
    """

    number: int
    first: int
    last: int
    since: int
    partitions: int
    columns: tuple[str, ...]
    boundary: Boundary | None
    previous: str | None

    @property
    def name(self) -> str:
        """Return the name of this snapshot's folder."""
        return f"{self.number:06}-{self.last:016x}"

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables; without the beginning it is unknown which objects exist."""
        return APPENDED if self.since else (*APPENDED, *DERIVED)

    @property
    def groups(self) -> int:
        return min(self.partitions, GROUPS)

    def partitions_of(self, group: int) -> range:
        return range(group, self.partitions, self.groups)

    def columns_of(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table, in the order of Spark."""
        left_out = {c.name for c in TABLES["objects"]}.difference(self.columns, KEYS)
        if table in ("transactions", "references"):
            left_out = set()
        return tuple(c.name for c in TABLES[table] if c.name not in left_out)

    def file(self, group: int) -> str:
        """Return the name of the file that a group adds to a table. It is never reused."""
        return f"{self.name}-{group:03}.parquet"

    def to_json(self) -> bytes:
        return json.format(json.encode(self), indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Plan:
        """Raise DecodeError for another text."""
        return json.decode(text, type=cls)


def checked_columns(text: str) -> tuple[str, ...]:
    """Parse names of columns of revisions, separated by commas. Raise ExportError."""
    names = [name.strip() for name in text.split(",")]
    try:
        return tuple(column.name for column in columns_of("objects", names))
    except ValueError as e:
        raise ExportError(f"--columns: {e}") from None


def make_plan(
    source: Any,
    before: Plan | None,
    since: int | None = None,
    columns: tuple[str, ...] | None = None,
    full: bool = False,
) -> Plan | None:
    """Return the plan of the next export; None if the folder has all transactions. Raise ExportError.

    ``before``: of the last export, which is continued, or replaced (``full``).
    """
    last = u64(_last(source))
    if last >= LIMIT:
        raise ExportError(
            f"the last transaction, {last:#018x}, cannot be exported: its tid does not fit into a signed "
            "column of 64 bits"
        )
    if before is None or full:
        number = 1 if before is None else before.number + 1
        partitions = Scanner(source).partitions if isinstance(source, NEOStorage) else PARTITIONS
        if since is not None and since > last:
            raise ExportError(
                f"--since {since:#018x} is later than the last transaction, {last:#018x}"
            )
        first = 0 if not since else since + 1
        boundary = boundary_of(source, last)
        chosen = columns or DEFAULT_COLUMNS
        return Plan(number, first, last, since or 0, partitions, chosen, boundary, None)
    _check_continued(source, before, since, columns, last)
    if last == before.last:
        return None
    return Plan(
        before.number + 1,
        before.last + 1,
        last,
        before.since,
        before.partitions,
        before.columns,
        boundary_of(source, last),
        before.name,
    )


def _check_continued(
    source: Any, before: Plan, since: int | None, columns: tuple[str, ...] | None, last: int
) -> None:
    if since is not None and since > before.last:
        raise ExportError(
            f"--since {since:#018x} would leave out what is after {before.last:#018x}, where the "
            "export ends: omit --since, or choose an empty folder"
        )
    if columns is not None and not _same_columns(columns, before):
        raise ExportError(
            f"the export has the columns {', '.join(before.columns)}, and an increment has the "
            "same: omit --columns, or start anew with --full"
        )
    if isinstance(source, NEOStorage) and Scanner(source).partitions != before.partitions:
        raise ExportError(
            f"the export has {before.partitions} partitions, the source another number: it is "
            "another database; choose an empty folder"
        )
    if last < before.last:
        raise ExportError(
            f"the source ends with {last:#018x}, the export with {before.last:#018x}: it was "
            "truncated, or is another database; start anew with --full"
        )
    if before.boundary is not None:
        check_boundary(source, before.boundary)


def check_resumed(source: Any, plan: Plan, columns: tuple[str, ...] | None) -> None:
    """Raise ExportError if an interrupted export cannot continue with this source."""
    if columns is not None and not _same_columns(columns, plan):
        raise ExportError(
            f"an export with the columns {', '.join(plan.columns)} was interrupted: leave --columns "
            "out to go on with it, or start anew with --full"
        )
    if plan.boundary is not None:
        check_boundary(source, plan.boundary)


def _same_columns(columns: tuple[str, ...], plan: Plan) -> bool:
    return set(columns).union(KEYS) == set(plan.columns).union(KEYS)


def check_boundary(source: Any, boundary: Boundary) -> None:
    """Raise ExportError if the source is not the exported one, or was packed since."""
    found = boundary_of(source, boundary.tid)
    if found is None:
        raise ExportError(
            f"transaction {boundary.tid:#018x}, which was exported, is not in the source: it was "
            "packed or truncated, or is another database; start anew with --full"
        )
    if found != boundary:
        raise packed()


def packed() -> PackedError:
    return PackedError(
        "the source was packed since the last export, and may have lost what was not exported yet: "
        "start anew with --full"
    )


def boundary_of(source: Any, tid: int) -> Boundary | None:
    """Return the boundary at ``tid``, or None without such a transaction.

    NEO refuses to list what a pack removed; other storages mark packed transactions.
    """
    with closing(transactions(source, p64(tid), p64(tid))) as found:
        transaction = next(found, None)
    if transaction is None or transaction.tid != p64(tid):
        return None
    neo = isinstance(source, NEOStorage)
    return Boundary(tid, not neo and is_packed(transaction))


def is_packed(transaction: Any) -> bool:
    return bool(transaction.status == "p")


def first_tid(source: Any, plan: Plan) -> int:
    """Return the first transaction to read; the last one if there is none."""
    with closing(transactions(source, p64(plan.first), p64(plan.last))) as found:
        return next((u64(transaction.tid) for transaction in found), plan.last)


def _last(source: Any) -> bytes:
    if isinstance(source, NEOStorage):
        return Scanner(source).last_tid()
    return last_tid(source)
