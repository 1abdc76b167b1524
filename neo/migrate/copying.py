"""Copy transactions with their ids, metadata, records and backpointers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import Any, NamedTuple

from ZODB.interfaces import IStorageIteration, IStorageRestoreable

from neo.client.storage import NEOStorage
from neo.migrate.blobs import Blobs, Policy
from neo.migrate.comparing import Sides, differences
from neo.migrate.errors import MigrateError
from neo.migrate.listing import last_tid, metadata, records, storage_name, tids, transactions, whole
from neo.protocol.ids import ZERO_TID, add64
from neo.protocol.words import counted


class Copied(NamedTuple):
    """A copied transaction. ``size``: bytes of its records."""

    tid: bytes
    records: int
    size: int


def starting_point(
    source: Any, destination: Any | None, policy: Policy = Policy.REFUSE
) -> bytes | None:
    """Return the first tid to copy; None if the destination has all. Raise MigrateError.

    The last transaction of the destination must equal that of the source, with its contents of blobs if
    the policy copies them. The destination must also have all earlier transactions of the source, because
    a later copy cannot insert them.
    """
    if not IStorageIteration.providedBy(source):
        raise MigrateError(
            f"{storage_name(source)} cannot be read: it does not list its transactions"
        )
    if destination is None:
        return ZERO_TID
    if not IStorageRestoreable.providedBy(destination):
        raise MigrateError(
            f"{storage_name(destination)} cannot be written with the ids of the source"
        )
    last = last_tid(destination)
    if last == ZERO_TID:
        return ZERO_TID
    if not IStorageIteration.providedBy(destination):
        raise MigrateError(
            f"{storage_name(destination)} has transactions already and does not list them: "
            "choose an empty destination"
        )
    _check_boundary(source, destination, last, policy)
    _check_gaps(source, destination, last)
    return None if last_tid(source) == last else add64(last, 1)


def _check_boundary(source: Any, destination: Any, last: bytes, policy: Policy) -> None:
    with (
        closing(transactions(source, last, last)) as ours,
        closing(transactions(destination, last, last)) as theirs,
    ):
        mine, copied = next(ours, None), next(theirs, None)
        if mine is None or copied is None:
            raise MigrateError(
                f"the destination ends with transaction 0x{last.hex()}, which the source lacks: "
                "it is another database, or was changed since; choose an empty destination"
            )
        for difference in differences(mine, copied, Sides(source, destination, Blobs(policy))):
            raise MigrateError(
                f"the destination holds another database: {difference}; choose an empty destination"
            )


def _check_gaps(source: Any, destination: Any, last: bytes) -> None:
    """Raise MigrateError if the destination lacks a transaction before ``last``.

    A transaction that only the destination has is no gap: the source was packed, or lost it.
    Transactions that a pack of the destination removed are no gap either. A pack marks the
    transactions that it passes, which are not marked in the source.
    """
    count, first, end = 0, ZERO_TID, ZERO_TID
    with closing(tids(source, last)) as ours, closing(tids(destination, last)) as theirs:
        there, packed = next(theirs, (None, False))
        for tid, packed_here in ours:
            while there is not None and there < tid:
                there, packed = next(theirs, (None, False))
            if there != tid:
                count, first, end = count + 1, first if count else tid, tid
            elif packed and not packed_here:
                count = 0
    if count:
        raise MigrateError(
            f"the destination lacks {counted(count, 'transaction')} of the source, from 0x{first.hex()}"
            f" to 0x{end.hex()}: an earlier copy could not read them, and they cannot be added before"
            " what is there already; choose an empty destination"
        )


def copy_from(
    start: bytes, source: Any, destination: Any, blobs: Blobs | None = None
) -> Generator[Copied, None, None]:
    """Copy each transaction from ``start`` on, one per step. Raise MigrateError and ZODB's errors.

    An error leaves the destination between two transactions. Close the generator when it is left early.
    ``blobs``: counts contents, and says what to do without them.
    """
    blobs = Blobs() if blobs is None else blobs
    found = whole(source, start)
    first = next(found, None)
    if first is None:
        return
    copied = _copy_first(first, source, destination, blobs)
    if copied is not None:
        yield copied
    if isinstance(destination, NEOStorage):
        yield from _copy_together(found, source, destination, blobs)
    else:
        for transaction in found:
            yield _copy(transaction, source, destination, blobs)


def _copy_first(transaction: Any, source: Any, destination: Any, blobs: Blobs) -> Copied | None:
    """Copy a transaction. Return None if the destination has it: an earlier copy sent it before it was
    killed, and it has arrived meanwhile. Storages refuse it with different errors."""
    try:
        return _copy(transaction, source, destination, blobs)
    except Exception:
        if last_tid(destination) != transaction.tid:
            raise
    _check_boundary(source, destination, transaction.tid, blobs.policy)
    return None


def _copy(transaction: Any, source: Any, destination: Any, blobs: Blobs) -> Copied:
    written = metadata(transaction)
    destination.tpc_begin(written, transaction.tid, transaction.status)
    try:
        copied = _restore(transaction, source, destination, destination, written, blobs)
        destination.tpc_vote(written)
    except BaseException:
        destination.tpc_abort(written)
        raise
    destination.tpc_finish(written)
    return copied


def _copy_together(
    found: Iterable[Any], source: Any, destination: NEOStorage, blobs: Blobs
) -> Generator[Copied, None, None]:
    """Copy transactions, several at the same time. Give each when it is committed."""
    writer, ended = destination.importing(), deque[Copied]()
    try:
        for transaction in found:
            written = metadata(transaction)
            writer.tpc_begin(written, transaction.tid, transaction.status)
            copied = _restore(transaction, source, destination, writer, written, blobs)
            writer.tpc_vote(written)
            writer.tpc_finish(written)
            ended.append(copied)
            while writer.finished is not None and ended[0].tid <= writer.finished:
                yield ended.popleft()
        writer.flush()
    except BaseException as e:
        writer.abort(e)
        raise
    yield from ended


def _restore(
    transaction: Any, source: Any, destination: Any, writer: Any, written: Any, blobs: Blobs
) -> Copied:
    """Write the records of a transaction. ``writer``: the destination, or its Import."""
    count = size = 0
    for record in records(transaction):
        blob = blobs.find(source, record)
        if blob is None or not blobs.restore(blob, record, source, destination, writer, written):
            # With a backpointer the destination shares the data, if it has the revision.
            writer.restore(record.oid, record.tid, record.data, "", record.data_txn, written)
        count += 1
        size += len(record.data or b"")
    return Copied(transaction.tid, count, size)


def foresee(transaction: Any, source: Any, refused_by: str | None, blobs: Blobs) -> Copied:
    """Count what a copy of a transaction would copy. Raise MigrateError as the copy would.

    ``refused_by``: the name of the destination if it takes no blobs.
    """
    count = size = 0
    for record in records(transaction):
        blob = blobs.find(source, record)
        if blob is not None:
            blobs.foresee(blob, source, refused_by)
        count += 1
        size += len(record.data or b"")
    return Copied(transaction.tid, count, size)
