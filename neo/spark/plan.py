"""Plan a load: pin one transaction and distribute partitions to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from neo.client.history.scan import Scanner
from neo.protocol.ids import p64, time_from_tid, u64
from neo.spark.options import OptionError, Options


@dataclass(frozen=True)
class Pinned:
    """The state of the cluster at planning time, shared by all scans of a DataFrame."""

    partitions: int
    tid: int
    #: The tid of the last pack, 0 if there was none.
    packed: int = 0


def pin(options: Options) -> Pinned:
    """Read the state of the cluster.

    Raise OptionError for a tid in the future, and errors of NEOStorage.
    """
    storage = options.connection.open()
    try:
        scanner = Scanner(storage)
        # A later pack is detected while reading.
        packed = scanner.packed()
        last = u64(scanner.last_tid())
        tid = last if options.tid is None else options.tid
        if options.by_time:
            tid = past(tid, last, datetime.now(UTC))
        if tid > last:
            raise OptionError(
                f"option 'tid': {tid:#018x} is later than the last transaction, {last:#018x}"
            )
        return Pinned(scanner.partitions, min(tid, options.query.last), packed)
    finally:
        storage.close()


def past(tid: int, last: int, now: datetime) -> int:
    """Return the transaction as of which a time is read.

    ``last``: the last one; ``now``: the local clock.

    Raise OptionError for a time in the future, because later commits could still belong before it.
    """
    if tid > last and time_from_tid(p64(tid)) > now.timestamp():
        moment = datetime.fromtimestamp(time_from_tid(p64(tid)), UTC)
        raise OptionError(
            f"option 'timestamp': {moment:%Y-%m-%d %H:%M:%S} UTC is in the future, it is "
            f"{now:%Y-%m-%d %H:%M:%S} UTC; without the option a load is as of now"
        )
    return min(tid, last)


def check_packed(options: Options, pinned: Pinned) -> None:
    """Raise OptionError if a pack may have removed revisions that the options ask for."""
    query = options.query
    if query.table == "transactions" or not pinned.packed:
        return
    if pinned.tid < pinned.packed:
        name, tid = "the end", pinned.tid
    elif query.table in ("changes", "history") and 0 < query.first <= pinned.packed:
        name, tid = "option 'startingTid'", query.first
    else:
        return
    raise OptionError(
        f"the database was packed up to {pinned.packed:#018x}, and {name}, {tid:#018x}, is not later:"
        " the pack may have removed revisions that were current then, or were written then; begin later,"
        " or leave 'startingTid' out to begin with what is left, and read as of a later transaction"
    )


def deal(partitions: Sequence[int], tasks: int) -> list[tuple[int, ...]]:
    """Distribute partitions evenly to at most ``tasks`` tasks."""
    return [tuple(partitions[i::tasks]) for i in range(min(tasks, len(partitions)))]
