"""Digests of the rows of a cell, by which replicas are compared (specification 11.4 to 11.6).

A digest covers the first ``length`` rows of a range of tids: their number, the SHA-1 of their tids (and
of their oids) as decimal integers with commas between, and the last ids. Rows are read in steps, between
which other requests are served.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, add64, u64
from neo.protocol.packets import (
    A,
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AnswerPackState,
    AskCheckSerialRange,
    AskCheckTIDRange,
    AskPackState,
    Message,
    Request,
)
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.database import Database
from neo.storage.maintenance.pack import Packer

#: Rows of a step.
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


@dataclass(eq=False, repr=False)
class Digests:
    """Computes the answers of this node when its cells are compared."""

    database: Database
    cells: Cells
    background: Background
    packer: Packer

    def check_readable(self, partition: int, code: ErrorCode = ErrorCode.CHECKING_ERROR) -> None:
        """Raise ErrorAnswer unless this node has a readable cell of the partition."""
        exists = 0 <= partition < len(self.cells.partitions)
        if not exists or not self.cells.is_readable(partition):
            raise ErrorAnswer(code, f"partition {partition} cannot be read here")

    def check_comparable(self, partition: int) -> None:
        """Raise ErrorAnswer unless the own cell must have the same rows as its replicas."""
        self.check_readable(partition)
        if self.packer.pending(partition):
            raise ErrorAnswer(ErrorCode.CHECKING_ERROR, f"partition {partition} is being packed")

    async def answer(self, request: Request[A]) -> A:
        """Return the answer to a request. Raises ErrorAnswer."""
        found: Message
        if isinstance(request, AskPackState):
            found = self.pack_state(request.partition)
        elif isinstance(request, AskCheckTIDRange):
            found = await self._tid_digest(request)
        else:
            assert isinstance(request, AskCheckSerialRange)
            found = await self._serial_digest(request)
        return found  # type: ignore[return-value]  # by the type of the request

    def pack_state(
        self, partition: int, code: ErrorCode = ErrorCode.CHECKING_ERROR
    ) -> AnswerPackState:
        """Return the answer to AskPackState. Raises ErrorAnswer."""
        self.check_readable(partition, code)
        return AnswerPackState(self.packer.state(partition))

    async def _tid_digest(self, m: AskCheckTIDRange) -> AnswerCheckTIDRange:
        """Return the digest of the transactions of a range. Raises ErrorAnswer."""
        digest, first, last = _Digest(), m.min_tid, ZERO_TID
        while True:
            self.check_comparable(m.partition)
            wanted = min(STEP_LENGTH, m.length - digest.count)
            tids = self.database.backend.reads.tids_ascending(first, m.max_tid, wanted, m.partition)
            digest.update(tids)
            last = tids[-1] if tids else last
            if len(tids) < wanted or digest.count == m.length:
                return AnswerCheckTIDRange(digest.count, digest.value(), last)
            first = add64(last, 1)
            await self.background.sleep(0)

    async def _serial_digest(self, m: AskCheckSerialRange) -> AnswerCheckSerialRange:
        """Return the digest of revisions from (min_tid, min_oid) on, in order. Raises ErrorAnswer."""
        tids, oids, last = _Digest(), _Digest(), (ZERO_TID, ZERO_OID)
        first = m.min_tid, m.min_oid
        while True:
            self.check_comparable(m.partition)
            wanted = min(STEP_LENGTH, m.length - tids.count)
            rows = self.database.backend.replication.objects_ascending(
                m.partition, *first, m.max_tid, wanted
            )
            tids.update([tid for tid, _ in rows])
            oids.update([oid for _, oid in rows])
            last = rows[-1] if rows else last
            if len(rows) < wanted or tids.count == m.length:
                return AnswerCheckSerialRange(
                    tids.count, tids.value(), last[0], oids.value(), last[1]
                )
            first = last[0], add64(last[1], 1)
            await self.background.sleep(0)
