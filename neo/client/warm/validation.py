"""What became of a database since a kept cache knew it.

Why a kept cache never returns a wrong revision
-----------------------------------------------
A snapshot has the records of the cache as they were when transaction L had taken effect, and none of the
effects of later ones. A history only grows at its end, by tids that are greater than all before. Two
things else change it: a truncation removes all transactions after some tid, and a pack removes old
revisions.

1. If L is in the cluster, with the same oids, no transaction up to L was truncated since. Otherwise L
   would have been removed, and committed again with the same tid. The master gives no tid twice (rule
   15.8); another one only if its clock was set back to the same 14 nanoseconds, or if an import imposed
   it. Imports of the same history bring the same data. Those of changed data under old tids are what the
   sample is for: some records are compared, byte by byte. Another database of the same name does not
   have L either.
2. So each record is right for the views up to L. A current one is right up to now unless a transaction
   after L changed it. All transactions after L are listed, with their oids; storage nodes answer when
   those that are locked have ended (rule 6.7), so the list is complete up to the ``last_tid`` of this
   client. What comes later invalidates, as it does for a load in flight.
3. A pack keeps the metadata of transactions, but other implementations need not: if a pack reached L,
   and anything was committed since, the list may have gaps. Old revisions that a pack removed are
   dropped by the tid of the last pack, which the master tells (rule 12.12); if it does not, all old
   revisions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from neo.client.errors import CorruptedError
from neo.client.history.transactions import (
    BATCH,
    batches,
    tids_ascending,
    transaction_information,
)
from neo.client.read.cache import Record
from neo.client.read.records import data_of
from neo.client.read.replicas import Replicas
from neo.client.warm.snapshot import Anchor, UnusableError
from neo.protocol.ids import add64
from neo.protocol.packets import AnswerObject, AskObject

#: Transactions that are listed, at most: about a second. After more of them the cache is dropped.
CHANGES_MAX = 10_000
#: Records of which one is compared with the database, and how many are, at most.
SAMPLE_EACH = 100
SAMPLE_MAX = 16


class Changes(NamedTuple):
    """``oids``: what transactions after the anchor changed. ``last``, ``last_oids``: the last one, and
    what it changed."""

    oids: set[bytes]
    last: bytes
    last_oids: list[bytes]


def changes_since(replicas: Replicas, anchor: Anchor, last_tid: bytes) -> Changes:
    """Return what changed since a transaction. Raise UnusableError, and the errors of reads."""
    if anchor.tid > last_tid:
        raise UnusableError(
            f"it knows transaction {anchor.tid.hex()}, and the last one of the cluster is"
            f" {last_tid.hex()}: the database was truncated, or is another one"
        )
    tids = list(islice(tids_ascending(replicas, anchor.tid, last_tid), CHANGES_MAX + 2))
    if tids[:1] != [anchor.tid]:
        raise UnusableError(_not_there(anchor))
    if len(tids) > CHANGES_MAX + 1:
        raise UnusableError(f"more than {CHANGES_MAX} transactions were committed since")
    changed: set[bytes] = set()
    for batch in batches(tids, BATCH):
        for tid, answer in zip(batch, transaction_information(replicas, batch), strict=True):
            if answer is None:
                raise UnusableError(f"transaction {tid.hex()} disappears: a truncation or a pack runs")
            if tid != anchor.tid:
                changed.update(answer.oid_list)
            elif Anchor.of(tid, answer.oid_list) != anchor:
                raise UnusableError(_not_there(anchor))
            elif answer.packed and tid != last_tid:
                raise UnusableError(f"the database was packed after transaction {tid.hex()}")
            last = answer
    return Changes(changed, last.tid, last.oid_list)


def _not_there(anchor: Anchor) -> str:
    return (
        f"its last transaction {anchor.tid.hex()} is not in the cluster: the database was truncated, or"
        " is another one"
    )


def check_sample(replicas: Replicas, records: Sequence[Record], last_tid: bytes) -> None:
    """Compare some of the records that seem to be current with the database. Raise UnusableError, and the
    errors of reads."""
    count = min(SAMPLE_MAX, -(-len(records) // SAMPLE_EACH))
    sample = [records[len(records) * i // count] for i in range(count)]
    before = add64(last_tid, 1)
    answers = replicas.read_each((r.oid, AskObject(r.oid, None, before)) for r in sample)
    for record, answer in zip(sample, answers, strict=True):
        if not isinstance(answer, AnswerObject) or not _same(record, answer):
            raise UnusableError(
                f"it has other data of object {record.oid.hex()} at {record.tid.hex()} than the cluster"
            )


def _same(record: Record, answer: AnswerObject) -> bool:
    try:
        return answer.serial == record.tid and data_of(answer) == record.data
    except CorruptedError:
        return False
