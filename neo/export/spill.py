"""Sort revisions on disk, from the order of transactions to group of partitions, oid, tid.

A *run* is a file of sorted rows, group after group, with the positions where groups begin. Runs are
merged as they are read. Too many runs to open together are first merged into one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from struct import Struct

from neo.client.history.scan import VALUE_BYTES, Revision
from neo.export.folder import finished

#: Bytes of rows in memory and in a run. A thousandth of it is read ahead of each run.
RUN_BYTES = 64 << 20
#: Runs that are read together: 4 GB are sorted in one pass, 256 GB in two.
RUNS_MAX = 64
#: Bytes of a row in memory, without its data.
ROW_BYTES = 250
PAGE_BYTES = 1 << 20
READ_BYTES = 64 << 10

#: Partition, oid, tid, size of the record or one of the marks; then data of ``length`` bytes.
_ROW = Struct(">IQQqq")
_DELETED = -1

Row = tuple[int, int, int, int, bytes | None]
"""(partition, oid, tid, size, data): size -1 for a deleted object; no data if it was too large."""
_key = itemgetter(0, 1, 2)


@dataclass(frozen=True)
class Run:
    """``places``: the beginning of each group, and the end of the file."""

    name: str
    places: tuple[int, ...]


class Buffer:
    """Rows that are not in a run yet."""

    def __init__(self, partitions: int, groups: int) -> None:
        self._partitions = partitions
        self._groups = groups
        self._rows: list[Row] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._bytes >= RUN_BYTES

    def add(self, oid: int, tid: int, data: bytes | None) -> None:
        """Add a row. ``data``: None for a deletion. Too large a value is only counted."""
        size = _DELETED if data is None else len(data)
        if size > VALUE_BYTES:
            data = None
        self._rows.append((oid % self._partitions, oid, tid, size, data))
        self._bytes += ROW_BYTES + len(data or b"")

    def count(self, size: int) -> None:
        """Count bytes that are kept beside the rows and written with them."""
        self._bytes += size

    def write(self, path: Path) -> Run:
        """Write the rows to a run and clear the buffer."""
        self._rows.sort(key=_key)
        parts: list[list[Row]] = [[] for _ in range(self._groups)]
        for row in self._rows:
            parts[row[0] % self._groups].append(row)
        self._rows, self._bytes = [], 0
        return write_run(path, parts)


def write_run(path: Path, groups: Iterable[Iterable[Row]]) -> Run:
    """Write a run. ``groups``: the sorted rows of each."""
    places = [0]
    with finished(path) as temporary, open(temporary, "wb") as file:
        for rows in groups:
            for partition, oid, tid, size, data in rows:
                length = -1 if data is None else len(data)
                file.write(_ROW.pack(partition, oid, tid, size, length))
                if data is not None:
                    file.write(data)
            places.append(file.tell())
    return Run(path.name, tuple(places))


def merge_runs(folder: Path, runs: list[Run], path: Path) -> Run:
    """Merge runs into one."""
    groups = len(runs[0].places) - 1
    return write_run(path, (read_runs(folder, runs, group) for group in range(groups)))


def read_runs(folder: Path, runs: Iterable[Run], group: int) -> Iterator[Row]:
    """Yield the sorted rows of a group; of rows with equal oid and tid, the last one that was added."""
    waiting: Row | None = None
    for row in heapq.merge(*(_read(folder / run.name, run, group) for run in runs), key=_key):
        if waiting is not None and _key(waiting) != _key(row):
            yield waiting
        waiting = row
    if waiting is not None:
        yield waiting


def _read(path: Path, run: Run, group: int) -> Iterator[Row]:
    with open(path, "rb", READ_BYTES) as file:
        place, end = run.places[group : group + 2]
        file.seek(place)
        while place < end:
            partition, oid, tid, size, length = _ROW.unpack(file.read(_ROW.size))
            data = None if length < 0 else file.read(length)
            place += _ROW.size + max(0, length)
            yield partition, oid, tid, size, data


def pages(rows: Iterable[Row]) -> Iterator[tuple[int, list[Revision]]]:
    """Yield (partition, next revisions), as a Scanner does."""
    page: list[Revision] = []
    size = current = 0
    for partition, oid, tid, length, data in rows:
        if page and (partition != current or size >= PAGE_BYTES):
            yield current, page
            page, size = [], 0
        current = partition
        size += ROW_BYTES + len(data or b"")
        page.append(revision(oid, tid, length, data))
    if page:
        yield current, page


def revision(oid: int, tid: int, size: int, data: bytes | None) -> Revision:
    if size == _DELETED:
        return Revision(oid, tid, True, 0, None, None)
    error = None
    if data is None:
        error = f"the record of {size} bytes is larger than {VALUE_BYTES}"
    return Revision(oid, tid, False, size, data, error)
