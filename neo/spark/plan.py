"""What a load reads: one transaction is pinned, and the partitions are dealt out to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neo.client.scan import Scanner
from neo.protocol.ids import u64
from neo.spark.options import OptionError, Options


@dataclass(frozen=True)
class Pinned:
    """The state of a cluster when it was asked: every scan of a DataFrame sees the same."""

    partitions: int
    tid: int


def pin(options: Options) -> Pinned:
    """Ask the cluster. Raises OptionError for a tid of the future, and what NEOStorage does."""
    storage = options.connection.open()
    try:
        scanner = Scanner(storage)
        last = u64(scanner.last_tid())
        if options.tid is None:
            return Pinned(scanner.partitions, last)
        tid = min(options.tid, last) if options.by_time else options.tid
        if tid > last:
            raise OptionError(
                f"option 'tid': {tid:#018x} is later than the last transaction, {last:#018x}"
            )
        return Pinned(scanner.partitions, tid)
    finally:
        storage.close()


def deal(partitions: Sequence[int], tasks: int) -> list[tuple[int, ...]]:
    """Partitions for each task, at most ``tasks`` of them, as even as possible."""
    return [tuple(partitions[i::tasks]) for i in range(min(tasks, len(partitions)))]
