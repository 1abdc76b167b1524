"""The journal: what this node promised for transactions that are not decided, and what it knows of peers.

One file of frames. The first says whose it is and how it was begun; each other is a record. It is
written anew, shorter, when it has grown; then the transaction log is synced first, and the new head says
how far that was: a log that ends earlier has lost decided transactions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import msgpack

from neo.transactor.codec import CodecError, records
from neo.transactor.disk import LogFile, StoreError, read_file, sync_folder
from neo.transactor.durable import Begun
from neo.transactor.frames import Damage, frame, scan
from neo.transactor.messages import Held, Known, Record, Sid, Vote, Voter
from neo.transactor.tlog import RECOVER

MAGIC = "transactor mlog"
VERSION = 1
#: A journal that grew to this, and to twice its last size, is written anew.
SHRINK_BYTES = 1024 * 1024


class Head(NamedTuple):
    name: str
    log: int
    begun: Begun
    #: Numbers of own specifications up to this one may have been used.
    number: int
    #: Transactions below this one were in the synced transaction log.
    tid: int


class Journal:
    def __init__(self, path: str, name: str, tell: Callable[[str], None]) -> None:
        """Open one that exists and has content. Raises StoreError."""
        self.path = path
        data = read_file(path)
        try:
            frames, end = scan(data)
            magic, version, *rest = msgpack.unpackb(frames[0])
            if (magic, version) != (MAGIC, VERSION):
                raise ValueError(f"{magic} {version}")
            node, log, begun, number, tid = rest
            self.head = Head(node, log, Begun(begun), number, tid)
            self.records: list[Record] = [records.decode(each) for each in frames[1:]]
        except (
            Damage,
            CodecError,
            ValueError,
            TypeError,
            LookupError,
            msgpack.UnpackException,
        ) as e:
            raise StoreError(f"journal {path} is damaged ({e}); {RECOVER}") from None
        if self.head.name != name:
            raise StoreError(f"journal {path} is that of node {self.head.name}, not {name}")
        if end < len(data):
            tell(f"{path} was cut off by a crash: {len(data) - end} bytes that were not promised")
        self._file = LogFile(path, end)
        self._live = Live(self.head)
        for record in self.records:
            self._live.add(record)
        self._shrink_at = max(SHRINK_BYTES, 2 * end)

    def append(self, added: list[Record]) -> None:
        """Raises StoreError."""
        for record in added:
            self._live.add(record)
        self._file.append(b"".join(frame(records.encode(record)) for record in added))

    @property
    def should_shrink(self) -> bool:
        return self._file.size > self._shrink_at

    def decided(self, tid: int) -> None:
        """Promises for transactions up to this one are of no use any more."""
        self._live.decided(tid)

    def shrink(self, tid: int) -> None:
        """Write it anew. The transaction log is synced up to ``tid``, exclusively. Raises StoreError."""
        head = self.head._replace(number=self._live.number, tid=tid)
        write_journal(self.path, head, self._live.records())
        self._file.close()
        self._file = LogFile(self.path, os.path.getsize(self.path))
        self._shrink_at = max(SHRINK_BYTES, 2 * self._file.size)

    def sync(self) -> None:
        """Raises StoreError."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class Live:
    """The records that still matter."""

    def __init__(self, head: Head) -> None:
        self.number = head.number
        #: Numbers begin with the name of the journal, so that they are those of this node.
        self._mine = head.log
        self._votes: dict[int, Vote] = {}
        self._held: dict[Sid, Held] = {}
        self._known: dict[int, Known] = {}
        self._voter: Voter | None = None

    def add(self, record: Record) -> None:
        if isinstance(record, Vote):
            self._votes[record.tid] = record
        elif isinstance(record, Held):
            sid = record.spec.sid
            self._held[sid] = record
            if sid.number >> 32 == self._mine:
                self.number = max(self.number, sid.number)
        elif isinstance(record, Known):
            self._known[record.node] = record
        elif isinstance(record, Voter):
            self._voter = record

    def decided(self, tid: int) -> None:
        self._votes = {t: vote for t, vote in self._votes.items() if t > tid}

    def records(self) -> list[Record]:
        needed = {vote.sid for vote in self._votes.values()}
        held = [record for sid, record in self._held.items() if sid in needed]
        self._held = {record.spec.sid: record for record in held}
        voter = [self._voter] if self._voter is not None else []
        return [*voter, *self._known.values(), *held, *self._votes.values()]


def write_journal(path: str, head: Head, content: list[Record]) -> None:
    """Replace a journal in one step. Raises StoreError."""
    temporary = f"{path}.new"
    file = LogFile(temporary, 0)
    try:
        file.append(frame(msgpack.packb([MAGIC, VERSION, *head])))
        file.append(b"".join(frame(records.encode(record)) for record in content))
        file.sync()
    finally:
        file.close()
    try:
        os.replace(temporary, path)
    except OSError as e:
        raise StoreError(f"cannot replace {path}: {e.strerror}") from None
    sync_folder(os.path.dirname(path) or ".")
