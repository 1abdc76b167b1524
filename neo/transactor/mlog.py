"""The journal: the promises of this node for undecided transactions, and the ids of its peers' journals.

One file of frames. The first frame identifies the node and says how the journal was begun; each other
one is a record. A journal that has grown is compacted into a new file. Before that the transaction log
is synced, and the new head stores its length: a transaction log that is shorter has lost transactions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from neo.transactor.codec import pack, records, typed, unpack
from neo.transactor.disk import LogFile, StoreError, failing, read_file, sync_folder
from neo.transactor.durable import Begun, Durable, JournalState, LogEnd
from neo.transactor.frames import Damage, frame, scan
from neo.transactor.messages import Known, Record
from neo.transactor.tlog import RECOVER

MAGIC = "transactor mlog"
VERSION = 1
#: A journal is compacted when it exceeds this, and twice its size after the last compaction.
SHRINK_BYTES = 1024 * 1024


class Head(NamedTuple):
    name: str
    log: int
    begun: Begun
    #: Upper bound of the numbers that may have been used in own sids.
    number: int
    #: Transactions below this one were in the synced transaction log.
    tid: int


class Journal:
    def __init__(self, path: str, name: str, warn: Callable[[str], None]) -> None:
        """Open a journal that exists and is not empty. Raises StoreError."""
        self.path = path
        data = read_file(path)
        try:
            frames, end = scan(data)
            magic, version, *rest = unpack(frames[0])
            if (magic, version) != (MAGIC, VERSION):
                raise ValueError(f"it begins with {magic} {version}, not {MAGIC} {VERSION}")
            self.head = typed(Head, rest)
            content = [records.decode(each) for each in frames[1:]]
        except (Damage, ValueError, TypeError, LookupError) as e:
            raise StoreError(f"journal {path} is damaged ({e}); {RECOVER}") from None
        if self.head.name != name:
            raise StoreError(
                f"journal {path} is that of node {self.head.name}, not {name}: correct 'mlog'"
            )
        if end < len(data):
            warn(f"{path} was cut off by a crash: removed {len(data) - end} bytes, never acknowledged")
        self._file = LogFile(path, end)
        self._live = JournalState(self.head.log, self.head.number, content)
        self._shrink_at = max(SHRINK_BYTES, 2 * end)

    def durable(self, end: LogEnd, alone: bool) -> Durable:
        """Return the state of the node. ``alone``: the configuration names no other node."""
        return self._live.durable(self.head.begun, end, alone)

    def append(self, added: list[Record]) -> None:
        """Append records, without a sync. Raises StoreError."""
        for record in added:
            self._live.add(record)
        self._file.append(b"".join(frame(records.encode(record)) for record in added))

    @property
    def should_shrink(self) -> bool:
        return self._file.size > self._shrink_at

    def decided(self, tid: int) -> None:
        """Forget promises for transactions up to this one."""
        self._live.decided(tid)

    def shrink(self, tid: int) -> None:
        """Compact the journal. Transactions below ``tid`` must be synced. Raises StoreError."""
        head = self.head._replace(number=self._live.number, tid=tid)
        write_journal(self.path, head, self._live.records())
        self._file.close()
        self._file = LogFile(self.path, os.path.getsize(self.path))
        self._shrink_at = max(SHRINK_BYTES, 2 * self._file.size)

    def sync(self) -> None:
        """Make the appended records durable. Raises StoreError."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def new_journal_id() -> int:
    """Return a random number of 32 bits, other than 0."""
    return int.from_bytes(os.urandom(4), "big") or 1


def begin_journal(path: str, name: str, begun: Begun, log: int, known: Iterable[Known] = ()) -> None:
    """Write the first journal with the id ``log``. Raises StoreError."""
    write_journal(path, Head(name, log, begun, log << 32, 1), known)


def write_journal(path: str, head: Head, content: Iterable[Record]) -> None:
    """Replace a journal atomically. Raises StoreError."""
    temporary = f"{path}.new"
    file = LogFile(temporary, 0)
    try:
        file.append(frame(pack([MAGIC, VERSION, *head])))
        file.append(b"".join(frame(records.encode(record)) for record in content))
        file.sync()
    finally:
        file.close()
    with failing(f"replace {path}"):
        os.replace(temporary, path)
    sync_folder(os.path.dirname(path) or ".")
