"""Which partition tables another master could still begin with, PURE (decision 6).

Theory of operation
-------------------
A master that was restarted knows nothing. It takes the newest table that any storage node gives it,
waits for *all* nodes that are readable in it, and takes a newer one if one of these has it. So a
table is *replaced* when a node that is readable in it has a later one on its disk: who begins with
the former comes to the latter, and by induction to the last.

While a table that was told is not replaced, what is committed with a later one could be forgotten: S2
has all data, and S1 becomes readable, too. If S2 is lost before this is on its disk, and S1 goes on
alone, then S2 still has the table that says that it needs nobody. Therefore:

* nothing is acknowledged before all tables but the last are replaced;
* the cluster does not operate when, for one of them, no node that could replace it is here.

Rule: nothing here talks to anybody. With a log of several masters that remembers the last table, all
others are replaced as soon as it is there: :meth:`PublishedTables.logged`.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple


class PublishedTable(NamedTuple):
    ptid: int
    readable: frozenset[int]  # nodes with a readable cell


class PublishedTables:
    """``ptid``: the greatest that was told to anybody; no other table may have this number.

    Bound: the last table, one for each node that remembered an older one, and one for each change that
    is not confirmed yet; changes follow losses of nodes, complete cells and commands of the operator.
    """

    def __init__(self) -> None:
        self.ptid = 0
        self._tables: list[PublishedTable] = []

    def publish(self, ptid: int, readable: Set[int]) -> None:
        """Call before any node can have this table."""
        if not self._tables or ptid > self._tables[-1].ptid:
            self._tables.append(PublishedTable(ptid, frozenset(readable)))
        self.ptid = max(self.ptid, ptid)

    def remembered(self, nid: int, ptid: int) -> None:
        """A node has a table that an earlier master told. What it says, and to whom else it was told, is
        not known: only this node is sure to replace it."""
        self._tables.append(PublishedTable(ptid, frozenset({nid})))

    def confirmed(self, nid: int, ptid: int) -> None:
        """A node has this table, or a later one, on its disk."""
        self._tables = [t for t in self._tables if ptid <= t.ptid or nid not in t.readable]

    def logged(self, ptid: int) -> None:
        """No master will ever begin with an older table than this one."""
        self._tables = [t for t in self._tables if ptid <= t.ptid]

    @property
    def complete(self) -> bool:
        """Every master would come to the last table."""
        return len(self._tables) <= 1

    def awaited(self) -> set[int]:
        """Nodes that can replace a table."""
        return set().union(*(t.readable for t in self._tables[:-1]))

    def missing(self, present: Set[int]) -> PublishedTable | None:
        """A table that none of these nodes can replace."""
        return next((t for t in self._tables if not present & t.readable), None)

    def give_up(self, present: Set[int]) -> None:
        """Somebody decided that the nodes that are not here will never come back alone."""
        self._tables = [t for t in self._tables if present & t.readable]
