"""Filters of a query that the reader applies itself, to read less.

A tid is never pushed into a snapshot, because it would change which revision of an object is current.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from neo.client.history.scan import ALL

#: The greatest tid or oid.
_MAX = ALL[1]
#: The column with the oid that determines the partition.
_OID = {"objects": "oid", "history": "oid", "changes": "oid", "references": "src"}
#: Tables whose rows can be filtered by tid.
_BY_TID = ("history", "transactions", "changes")


@dataclass(frozen=True)
class Wanted:
    """The pushed filters.

    A set is None if it does not restrict; a range is [least, greatest], perhaps empty.

    ``oids`` only has valid oids.
    """

    partitions: frozenset[int] | None = None
    oids: frozenset[int] | None = None
    oid_range: tuple[int, int] = ALL
    tids: tuple[int, int] = ALL

    def has(self, partition: int, partitions: int) -> bool:
        """Return whether one of ``partitions`` partitions may have wanted rows."""
        if self.partitions is not None and partition not in self.partitions:
            return False
        least, greatest = self.oid_range
        if self.oids is not None:
            mine = (oid for oid in self.oids if oid % partitions == partition)
            return any(least <= oid <= greatest for oid in mine)
        return least + (partition - least) % partitions <= greatest


def push(table: str, filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Return the pushed filters as ranges, and the filters that Spark must apply."""
    wanted = Wanted()
    left = []
    for condition in filters:
        narrowed = _narrow(table, wanted, condition)
        if narrowed is None:
            left.append(condition)
        else:
            wanted = narrowed
    return wanted, left


def _narrow(table: str, wanted: Wanted, condition: Filter) -> Wanted | None:
    column: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(column) != 1:
        return None
    values = _values(condition)
    if values is not None and column[0] == "partition":
        return replace(wanted, partitions=_both(wanted.partitions, values))
    if values is not None and column[0] == _OID.get(table):
        possible = frozenset(oid for oid in values if 0 <= oid <= _MAX)
        return replace(wanted, oids=_both(wanted.oids, possible))
    bounds = _bounds(condition)
    if bounds is None:
        return None
    if column[0] == _OID.get(table):
        return replace(wanted, oid_range=_narrower(wanted.oid_range, bounds))
    if column[0] == "tid" and table in _BY_TID:
        return replace(wanted, tids=_narrower(wanted.tids, bounds))
    return None


def _narrower(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _both(one: frozenset[int] | None, other: frozenset[int]) -> frozenset[int]:
    return other if one is None else one & other


def _values(condition: Filter) -> frozenset[int] | None:
    match condition:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            values = (value,)
        case In(_, values):
            pass
        case _:
            return None
    # NULL equals no value.
    return frozenset(value for value in values if isinstance(value, int))


def _bounds(condition: Filter) -> tuple[int, int] | None:
    match condition:
        case EqualTo(_, int(value)) | EqualNullSafe(_, int(value)):
            return value, value
        case GreaterThan(_, int(value)):
            return value + 1, _MAX
        case GreaterThanOrEqual(_, int(value)):
            return value, _MAX
        case LessThan(_, int(value)):
            return 0, value - 1
        case LessThanOrEqual(_, int(value)):
            return 0, value
    return None
