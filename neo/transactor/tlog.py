"""The transaction log: all decided transactions, from 1 on, in segments of 100 transactions.

``tlog/00000000/000000000001.seg`` has transactions 1 to 100; a thousand segments share a folder. The
first frame of a segment is the state of the log before it, so that the last segment alone is enough to
continue; each other frame is one transaction. Segments are append-only and contiguous.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from neo.transactor.codec import pack, records, unpack
from neo.transactor.disk import LogFile, StoreError, failing, read_file, set_aside, sync_folder
from neo.transactor.durable import LogEnd, empty_log
from neo.transactor.frames import Damage, frame, scan
from neo.transactor.members import Members
from neo.transactor.messages import Entry, Sid, Spec

SEGMENT = 100
FOLDER = 1000 * SEGMENT
#: Segments in memory, for peers and subscribers that lag a little.
CACHED = 5
VERSION = 1
NAME = re.compile(r"(\d{12})\.seg")

RECOVER = "start the node with --recover: it keeps what is whole and learns the rest from its peers"


def segment_path(folder: str, first: int) -> str:
    return os.path.join(folder, f"{(first - 1) // FOLDER:08d}", f"{first:012d}.seg")


def _pack_head(end: LogEnd) -> bytes:
    return pack(
        [VERSION, end.tid, end.last, end.genesis.encode(), end.members.encode(), end.former]
    )


def _unpack_head(data: bytes) -> LogEnd:
    version, tid, last, genesis, members, former = unpack(data)
    if version != VERSION:
        raise ValueError(f"it has version {version}, not {VERSION}")
    return LogEnd(tid, Sid(*last), Members.decode(genesis), Members.decode(members), tuple(former))


class Segment(NamedTuple):
    #: None if the first write did not survive a crash.
    head: LogEnd | None
    specs: list[Spec]
    #: Offset after the last transaction; what follows was cut off by a crash.
    end: int
    size: int

    def log_end(self, before: LogEnd) -> LogEnd:
        """Return the end of a log whose last segment this is; ``before`` if the segment has no head."""
        end = self.head or before
        for spec in self.specs:
            end = end.after(spec)
        return end


def parse(first: int, data: bytes, last: bool) -> Segment:
    """Parse a segment. Only the last one may be cut off or not full. Raises Damage."""
    frames, end = scan(data)
    if not last and (end < len(data) or len(frames) != 1 + SEGMENT):
        raise Damage(f"{max(len(frames) - 1, 0)} of its {SEGMENT} transactions are whole")
    if not frames:
        return Segment(None, [], 0, len(data))
    try:
        head = _unpack_head(frames[0])
        decoded = [records.decode(each) for each in frames[1:]]
    except (ValueError, TypeError) as e:
        raise Damage(str(e)) from None
    entries = [each for each in decoded if isinstance(each, Entry)]
    if head.tid != first or [e.tid for e in entries] != list(range(first, first + len(decoded))):
        raise Damage("it has other transactions")
    return Segment(head, [entry.spec for entry in entries], end, len(data))


class TransactionLog:
    """A folder of segments. Not thread-safe, except that :meth:`sync` may run on another thread while no
    segment begins."""

    def __init__(self, folder: str, genesis: Members, warn: Callable[[str], None]) -> None:
        """Open the log, and remove what a crash cut off at its end. Raises StoreError."""
        self.folder = folder
        self._warn = warn
        #: The segment that is appended to, and its transactions.
        self._file: LogFile | None = None
        self._first = 0
        self._specs: list[Spec] = []
        #: The transactions of other segments.
        self._cache: OrderedDict[int, list[Spec]] = OrderedDict()
        firsts = segments(folder)
        for expected, first in zip(range(1, 1 << 62, SEGMENT), firsts, strict=False):
            if first != expected:
                path = segment_path(folder, expected)
                raise StoreError(
                    f"segment {path} of the log is missing, later ones exist; {RECOVER}"
                )
        self.end = empty_log(genesis)
        if firsts:
            self._open_last(firsts)

    def _open_last(self, firsts: list[int]) -> None:
        path = segment_path(self.folder, firsts[-1])
        segment = self._load(firsts[-1], last=True)
        if segment.head is None:
            if len(firsts) > 1:
                self.end = self._load(firsts[-2]).log_end(self.end)
            self._warn(f"{path} was cut off by a crash before its first transaction: begun again")
            os.unlink(path)
            return
        self.end = segment.log_end(self.end)
        if segment.end < segment.size:
            self._warn(
                f"{path} was cut off by a crash in transaction {self.end.tid}:"
                f" removed {segment.size - segment.end} bytes, which were never acknowledged"
            )
        self._file = LogFile(path, segment.end)
        self._first, self._specs = firsts[-1], segment.specs

    def _load(self, first: int, last: bool = False) -> Segment:
        """Read and parse a segment. Raises StoreError."""
        path = segment_path(self.folder, first)
        try:
            return parse(first, read_file(path), last)
        except Damage as e:
            raise StoreError(f"segment {path} of the log is damaged ({e}); {RECOVER}") from None

    def begin_with(self, genesis: Members) -> None:
        """Set the first members if the log is empty: those of the configuration may be newer."""
        if self.end.tid == 1:
            self.end = empty_log(genesis)

    def append(self, entry: Entry) -> None:
        """Append a transaction, without a sync. Raises StoreError."""
        assert entry.tid == self.end.tid
        first = (entry.tid - 1) // SEGMENT * SEGMENT + 1
        if entry.tid == first or self._file is None:
            self._begin(first)
        assert self._file is not None
        self._file.append(frame(records.encode(entry)))
        self.end = self.end.after(entry.spec)
        self._specs.append(entry.spec)

    @property
    def segment_ends(self) -> bool:
        """Whether the next transaction begins a new segment."""
        return (self.end.tid - 1) % SEGMENT == 0 or self._file is None

    def _begin(self, first: int) -> None:
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._remember(self._first, self._specs)
        path = segment_path(self.folder, first)
        folder = os.path.dirname(path)
        with failing(f"create {folder}"):
            os.makedirs(folder, exist_ok=True)
        self._file = LogFile(path, 0)
        self._file.append(frame(_pack_head(self.end)))
        self._file.sync()
        sync_folder(folder)
        sync_folder(self.folder)
        self._first, self._specs = first, []

    def sync(self) -> None:
        """Make the appended transactions durable. Raises StoreError."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- LogReader ---------------------------------------------------------------------------------

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        """See :class:`neo.transactor.catchup.LogReader`. Return nothing of a damaged segment."""
        found: list[Spec] = []
        while 0 < tid < self.end.tid and len(found) < count and size > 0:
            first = (tid - 1) // SEGMENT * SEGMENT + 1
            for spec in self._segment(first)[tid - first :]:
                if len(found) == count or size <= 0:
                    break
                found.append(spec)
                size -= len(spec.data) + 32
                tid += 1
            if tid - first < SEGMENT:
                break
        return found

    def _segment(self, first: int) -> list[Spec]:
        if first == self._first:
            return self._specs
        if first not in self._cache:
            try:
                self._remember(first, self._load(first).specs)
            except StoreError as e:
                self._warn(str(e))
                self._remember(first, [])
        self._cache.move_to_end(first)
        return self._cache[first]

    def _remember(self, first: int, specs: list[Spec]) -> None:
        self._cache[first] = specs
        while len(self._cache) > CACHED:
            self._cache.popitem(last=False)


def segments(folder: str) -> list[int]:
    """Return the first transaction of each segment, in order. Raises StoreError."""
    firsts: list[int] = []
    with failing(f"read the transaction log {folder}"):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not (len(name) == 8 and name.isdigit() and os.path.isdir(path)):
                raise StoreError(f"{path} is not part of a transaction log: move it elsewhere")
            for file in os.listdir(path):
                match = NAME.fullmatch(file)
                if not match:
                    raise StoreError(
                        f"{os.path.join(path, file)} is not part of a transaction log: move it elsewhere"
                    )
                firsts.append(int(match[1]))
    return sorted(firsts)


def keep_whole(folder: str, warn: Callable[[str], None]) -> None:
    """Set aside the first segment that is missing or damaged, and all after it. Raises StoreError."""
    firsts = segments(folder)
    whole = True
    for expected, first in zip(range(1, 1 << 62, SEGMENT), firsts, strict=False):
        path = segment_path(folder, first)
        try:
            whole = whole and first == expected
            if whole:
                parse(first, read_file(path), last=first == firsts[-1])
        except Damage:
            whole = False
        if not whole:
            # Out of the folder, which may contain nothing but the log.
            lost = set_aside(path, f"{folder.rstrip('/')}.{os.path.basename(path)}")
            warn(f"{path} is set aside as {lost}")
    sync_folder(folder)
