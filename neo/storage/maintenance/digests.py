"""Digests of what a cell has, by which replicas are compared (FACTS 6.8).

A digest covers the first ``length`` rows of a range of tids: how many there are, the SHA-1 of their
tids (and of their oids) as decimal integers with commas between, and the last ones. Rows are read in
steps, between which everybody else is served.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, add64, u64
from neo.protocol.packets import (
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AskCheckSerialRange,
    AskCheckTIDRange,
)

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

#: Rows that are read before others are served.
STEP_LENGTH = 1000


class _Digest:
    def __init__(self) -> None:
        self.count = 0
        self._hash = sha1()

    def update(self, ids: list[bytes]) -> None:
        if ids:
            text = ",".join(str(u64(id_)) for id_ in ids)
            self._hash.update(f",{text}".encode() if self.count else text.encode())
            self.count += len(ids)

    def value(self) -> bytes:
        return self._hash.digest() if self.count else ZERO_HASH


def check_readable(
    core: StorageNode, partition: int, code: ErrorCode = ErrorCode.CHECKING_ERROR
) -> None:
    """Raises ErrorAnswer unless there is a cell here that can be read."""
    readable = 0 <= partition < len(core.partitions)
    if readable:
        state = core.partitions.state(partition, core.nid)
        readable = state is not None and state.readable
    if not readable:
        raise ErrorAnswer(code, f"partition {partition} cannot be read here")


def check_comparable(core: StorageNode, partition: int) -> None:
    """Raises ErrorAnswer unless the rows of a cell are those that its replicas should have."""
    check_readable(core, partition)
    if core.packer.pending(partition):
        raise ErrorAnswer(ErrorCode.CHECKING_ERROR, f"partition {partition} is being packed")


async def tid_digest(core: StorageNode, m: AskCheckTIDRange) -> AnswerCheckTIDRange:
    """Of the transactions of a range. Raises ErrorAnswer."""
    digest, first, last = _Digest(), m.min_tid, ZERO_TID
    while True:
        check_comparable(core, m.partition)
        wanted = min(STEP_LENGTH, m.length - digest.count)
        tids = core.backend.tids_ascending(first, m.max_tid, wanted, m.partition)
        digest.update(tids)
        last = tids[-1] if tids else last
        if len(tids) < wanted or digest.count == m.length:
            return AnswerCheckTIDRange(digest.count, digest.value(), last)
        first = add64(last, 1)
        await core.sleep(0)


async def serial_digest(core: StorageNode, m: AskCheckSerialRange) -> AnswerCheckSerialRange:
    """Of the revisions of objects from (min_tid, min_oid) on, by tid and oid. Raises ErrorAnswer."""
    tids, oids, last = _Digest(), _Digest(), (ZERO_TID, ZERO_OID)
    first = m.min_tid, m.min_oid
    while True:
        check_comparable(core, m.partition)
        wanted = min(STEP_LENGTH, m.length - tids.count)
        rows = core.backend.objects_ascending(m.partition, *first, m.max_tid, wanted)
        tids.update([tid for tid, _ in rows])
        oids.update([oid for _, oid in rows])
        last = rows[-1] if rows else last
        if len(rows) < wanted or tids.count == m.length:
            return AnswerCheckSerialRange(tids.count, tids.value(), last[0], oids.value(), last[1])
        first = last[0], add64(last[1], 1)
        await core.sleep(0)
