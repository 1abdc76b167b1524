"""Metadata of transactions, the log for undo, the history of an object, tids in order."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError

from neo.client.connect.master import Partition
from neo.client.errors import RegroupedError, refused
from neo.client.read.replicas import Replicas
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, add64, time_from_tid
from neo.protocol.packets import (
    A,
    AnswerTIDs,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskObject,
    AskObjectHistory,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    AskTransactionLog,
    LoggedTransaction,
    Request,
)

logger = logging.getLogger("neo.client")

#: Tids per request and partition.
PAGE = 1000
#: Transactions whose metadata are requested together.
BATCH = 50

Description = dict[str, Any]
Item = TypeVar("Item")


def transaction_information(
    replicas: Replicas, tids: list[bytes]
) -> list[AnswerTransactionInformation | None]:
    """Return the metadata of transactions; None for each that does not exist, or was packed away."""
    answers = replicas.read_many([(tid, AskTransactionInformation(tid)) for tid in tids])
    found: list[AnswerTransactionInformation | None] = []
    for answer in answers:
        if isinstance(answer, ErrorAnswer):
            if answer.code is not ErrorCode.TID_NOT_FOUND:
                raise refused("metadata of transactions", answer)
            found.append(None)
        else:
            found.append(answer)
    return found


def describe(tid: bytes, user: bytes, description: bytes, extension: bytes) -> Description:
    """Return an item of undoLog() or history(). Items of the extension never replace the standard items.
    If this process cannot read the extension, its items are left out."""
    metadata = TransactionMetaData(user, description, extension)
    try:
        items = dict(metadata.extension)
    except Exception as e:  # noqa: BLE001 - it may hold objects of any class of the application
        logger.warning(
            "the extension of transaction %s cannot be read, and is left out: %r", tid.hex(), e
        )
        items = {}
    return {
        **items,
        "time": time_from_tid(tid),
        "user_name": user,
        "description": description,
    }


def undo_log(
    replicas: Replicas,
    first: int,
    last: int,
    accept: Callable[[Description], object] | None,
) -> list[Description]:
    """Implement IStorageUndoable.undoLog: newest first, without packed transactions."""
    if last < 0:
        last = first - last
    if last <= first:
        return []
    replicas.barrier()  # other clients may know of later transactions
    return list(islice(_undoable(replicas, accept, last), first, last))


def _undoable(
    replicas: Replicas, accept: Callable[[Description], object] | None, wanted: int
) -> Iterator[Description]:
    for tid, user, description, extension, packed in _log(replicas, wanted):
        if packed:
            return  # and so are all older ones
        described = describe(tid, user, description, extension) | {"id": tid}
        if accept is None or accept(described):
            yield described


def _log(replicas: Replicas, wanted: int) -> Iterator[LoggedTransaction]:
    """Yield the transactions, newest first. The first ones are asked for together with their metadata."""
    last_tid = replicas.last_tid
    answers = replicas.ask_all(
        lambda count, partitions: AskTransactionLog(min(wanted, PAGE), count, partitions)
    )
    if answers is not None:
        # Below the last row of a node that has more, its next ones may come first.
        ends = [a.row_list[-1][0] if a.row_list else last_tid for a in answers if a.more]
        complete = max(ends, default=ZERO_TID)
        rows = sorted((row for answer in answers for row in answer.row_list), reverse=True)
        yield from (row for row in rows if complete <= row[0] <= last_tid)
        if not ends:
            return
        last_tid = min(last_tid, add64(complete, -1))
    tids = tids_descending(replicas, last_tid, min(wanted + 1, PAGE))
    while batch := list(islice(tids, min(wanted, BATCH))):
        for found in transaction_information(replicas, batch):
            if found is not None:
                yield found.tid, found.user, found.description, found.extension, found.packed


def tids_descending(replicas: Replicas, max_tid: bytes, page: int) -> Iterator[bytes]:
    """Yield all tids up to ``max_tid``, newest first.

    Each partition is read on its own, although a node could answer for all of its partitions at once,
    because cells may move between two requests.
    """
    previous = add64(max_tid, 1)
    while True:
        with suppress(RegroupedError):
            for tid in _descending(replicas, page):
                # New transactions shift the pages, so a tid may come twice; and all that were yielded
                # come again when the partitions were regrouped.
                if tid < previous:
                    previous = tid
                    yield tid
            return


def _descending(replicas: Replicas, page: int) -> Iterator[bytes]:
    partitions = replicas.view().all_partitions()
    pages = _pages(
        replicas,
        [(partition, AskTIDs(0, page, partition.number)) for partition in partitions],
    )
    tids = (
        _descending_from(replicas, partition, first, page)
        for partition, first in zip(partitions, pages, strict=True)
    )
    return heapq.merge(*tids, reverse=True)


def _descending_from(
    replicas: Replicas, partition: Partition, tids: list[bytes], page: int
) -> Iterator[bytes]:
    """Yield the tids of a partition whose first page is ``tids``."""
    first = 0
    while True:
        yield from tids
        if len(tids) < page:
            return
        first += page
        page = PAGE
        (tids,) = _pages(replicas, [(partition, AskTIDs(first, first + page, partition.number))])


def tids_ascending(replicas: Replicas, min_tid: bytes, max_tid: bytes) -> Iterator[bytes]:
    """Yield all tids from ``min_tid`` to ``max_tid``, both included, oldest first."""
    while True:
        with suppress(RegroupedError):
            for tid in tids_of(replicas, min_tid, max_tid, replicas.view().all_partitions()):
                min_tid = add64(tid, 1)
                yield tid
            return


def tids_of(
    replicas: Replicas, min_tid: bytes, max_tid: bytes, partitions: Sequence[Partition]
) -> Iterator[bytes]:
    """Yield the tids of some partitions. Raise RegroupedError."""
    pages = _pages(
        replicas,
        [
            (partition, AskTIDsFrom(min_tid, max_tid, PAGE, partition.number))
            for partition in partitions
        ],
    )
    return heapq.merge(
        *(
            _ascending_from(replicas, partition, page, max_tid)
            for partition, page in zip(partitions, pages, strict=True)
        )
    )


def _ascending_from(
    replicas: Replicas, partition: Partition, page: list[bytes], max_tid: bytes
) -> Iterator[bytes]:
    while True:
        yield from page
        if len(page) < PAGE:
            return
        question = AskTIDsFrom(add64(page[-1], 1), max_tid, PAGE, partition.number)
        (page,) = _pages(replicas, [(partition, question)])


def _pages(
    replicas: Replicas, requests: Sequence[tuple[Partition, Request[AnswerTIDs | AnswerTIDsFrom]]]
) -> list[list[bytes]]:
    """Return the tids in the answers to (partition, request)."""
    pages = []
    for answer in replicas.read_many(requests):
        if isinstance(answer, ErrorAnswer):
            raise refused("list of transactions", answer)
        pages.append(answer.tid_list)
    return pages


def object_history(replicas: Replicas, oid: bytes, size: int) -> list[Description]:
    """Implement IStorage.history. Raise POSKeyError.

    Storage nodes list the revisions since the last pack. The revision that was current at the pack is
    loaded.
    """
    if size < 1:
        return []
    replicas.barrier()  # other clients may know of later revisions
    answer = _ask_object(replicas, oid, AskObjectHistory(oid, 0, size))
    listed = [] if answer is None else answer.history_list
    last_tid = replicas.last_tid
    revisions = [(tid, length) for tid, length in listed if tid <= last_tid]
    if len(revisions) < size:
        before = revisions[-1][0] if revisions else add64(last_tid, 1)
        kept = _ask_object(replicas, oid, AskObject(oid, None, before))
        if kept is not None:
            revisions.append((kept.serial, len(kept.data)))
    if not revisions:
        raise POSKeyError(oid)
    metadata = transaction_information(replicas, [tid for tid, _ in revisions])
    return [
        (_packed_away(tid) if known is None else _described(known))
        | {"tid": tid, "serial": tid, "size": length}
        for (tid, length), known in zip(revisions, metadata, strict=True)
    ]


def _ask_object(replicas: Replicas, oid: bytes, question: Request[A]) -> A | None:
    """Return the answer; None if the object or revision does not exist."""
    try:
        return replicas.read(oid, question)
    except ErrorAnswer as e:
        if e.code in (ErrorCode.OID_NOT_FOUND, ErrorCode.OID_DOES_NOT_EXIST):
            return None
        raise refused(f"history of object {oid.hex()}", e) from None


def _described(known: AnswerTransactionInformation) -> Description:
    return describe(known.tid, known.user, known.description, known.extension)


def _packed_away(tid: bytes) -> Description:
    return {"time": time_from_tid(tid), "user_name": b"", "description": b""}


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
