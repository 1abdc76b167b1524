"""The last transactions of some partitions with their metadata, in one answer (specification 7.61)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from neo.protocol.packets import AnswerTransactionLog, LoggedTransaction
from neo.storage.backend.api import ROW_BYTES, Transaction

#: Transactions of an answer at most. Clients ask for dozens.
LENGTH_MAX = 100
#: Bytes of metadata after which an answer ends: some milliseconds of work.
BYTES_MAX = 1 << 20


class Reads(Protocol):
    """The reads of the backend."""

    def transaction(self, tid: bytes) -> Transaction | None: ...

    def tids_descending(self, first: int, last: int, partitions: Sequence[int]) -> list[bytes]: ...


def last_transactions(reads: Reads, length: int, partitions: Sequence[int]) -> AnswerTransactionLog:
    """Return the last ``length`` transactions of these partitions, or fewer if they are many or large."""
    most = min(length, LENGTH_MAX)
    tids = reads.tids_descending(0, most, partitions)
    rows: list[LoggedTransaction] = []
    size = 0
    for tid in tids:
        found = reads.transaction(tid)
        if found is not None:
            people = found.user, found.description, found.extension
            rows.append((tid, *people, found.packed))
            size += ROW_BYTES + sum(map(len, people))
        if size >= BYTES_MAX:
            break
    return AnswerTransactionLog(rows, len(tids) >= most or size >= BYTES_MAX)
