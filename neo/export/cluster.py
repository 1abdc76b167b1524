"""Read a NEO cluster for an export: its storage nodes sort, and are read in parallel."""

from __future__ import annotations

from collections.abc import Iterator

from neo.client.scan import Order, Range, Revision, Scanner
from neo.export.errors import PackedError
from neo.export.plan import Plan
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64
from neo.protocol.packets import AnswerTransactionInformation


def revisions(scanner: Scanner, plan: Plan, group: int) -> Iterator[tuple[int, list[Revision]]]:
    """Yield (partition, revisions) by oid and tid. Raise PackedError if a pack removed some of them."""
    everything = Range(Order.HISTORY, p64(plan.last), p64(plan.first))
    try:
        for partition in plan.partitions_of(group):
            for page in scanner.revisions(partition, everything):
                yield partition, page
    except ErrorAnswer as e:
        if e.code is not ErrorCode.TID_NOT_FOUND:
            raise
        raise PackedError(
            f"the source was packed since the last export, or during this one ({e}): start anew "
            "with --full"
        ) from None


def transactions(
    scanner: Scanner, plan: Plan, group: int
) -> Iterator[tuple[int, list[AnswerTransactionInformation]]]:
    """Yield (partition, transactions) by tid."""
    for partition in plan.partitions_of(group):
        for page in scanner.transactions(partition, p64(plan.first), p64(plan.last)):
            yield partition, page
