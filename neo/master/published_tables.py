"""The partition tables that another master could still start with, PURE (decision 6).

Theory of operation
-------------------
A master that was restarted knows nothing. It takes the newest table that any storage node has, waits for
*all* nodes that are readable in it, and takes a newer one if one of these has it. So a table is
*replaced* when a node that is readable in it has a later one on its disk: a master that starts with the
former table comes to the latter, and by induction to the last one.

While a published table is not replaced, transactions that were committed with a later one could be
lost. Example: S2 has all data, and S1 becomes readable, too. If S2 is lost before it has this table on
its disk, and S1 goes on alone, then S2 still has the table in which S2 alone is enough. Therefore:

* nothing is acknowledged before all tables but the last are replaced;
* the cluster does not operate if, for one of them, no node that could replace it is connected.

This module does no IO. If several masters have a log that remembers the last table, all others are
replaced as soon as it is in the log: :meth:`PublishedTables.logged`.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple


class PublishedTable(NamedTuple):
    ptid: int
    readable: frozenset[int]  # nodes with a readable cell


class PublishedTables:
    """``ptid``: the greatest that was published; no other table may have this number.

    Bound: the last table, one for each node that remembered an older one, and one for each change that
    is not confirmed yet. Changes follow losses of nodes, complete cells and commands of the operator.
    """

    def __init__(self) -> None:
        self.ptid = 0
        self._tables: list[PublishedTable] = []

    def publish(self, ptid: int, readable: Set[int]) -> None:
        """Add a table. Call before any node can have it."""
        if not self._tables or ptid > self._tables[-1].ptid:
            self._tables.append(PublishedTable(ptid, frozenset(readable)))
        self.ptid = max(self.ptid, ptid)

    def remembered(self, nid: int, ptid: int) -> None:
        """Add a table that an earlier master published and that a node has. Its rows are not known, nor
        the other nodes that have it: only this node is sure to replace it."""
        self._tables.append(PublishedTable(ptid, frozenset({nid})))

    def confirmed(self, nid: int, ptid: int) -> None:
        """Note that a node has this table, or a later one, on its disk."""
        self._tables = [t for t in self._tables if ptid <= t.ptid or nid not in t.readable]

    def logged(self, ptid: int) -> None:
        """Drop older tables: the log remembers this one, so that no master will start with them."""
        self._tables = [t for t in self._tables if ptid <= t.ptid]

    @property
    def complete(self) -> bool:
        """Whether every master would come to the last table."""
        return len(self._tables) <= 1

    def awaited(self) -> set[int]:
        """Return the nodes that can replace a table."""
        return set().union(*(t.readable for t in self._tables[:-1]))

    def missing(self, present: Set[int]) -> PublishedTable | None:
        """Return a table that none of these nodes can replace; None if there is none."""
        return next((t for t in self._tables if not present & t.readable), None)

    def give_up(self, present: Set[int]) -> None:
        """Drop the tables that no present node can replace, since the operator gave up the absent
        nodes."""
        self._tables = [t for t in self._tables if present & t.readable]
