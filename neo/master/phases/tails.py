"""Comparison of the last rows of replicas, PURE.

Theory of operation
-------------------
A database that went back in time has a prefix of its history, because an old copy of a disk was mounted
or the end of a write-ahead log was lost. If the node served with it, later transactions follow after a
gap. So the last rows of each readable cell of a partition are compared, not only the last tid:

* The *tail* of a cell is its last transactions and revisions. Tails begin at different rows. They are
  compared from the latest of these beginnings on, from where all of them are complete.
* A cell *lacks* a row that another cell has. Revisions up to the last pack that its node knows do not
  count, because that pack may have removed them. Rows that a database lost when it went back in time are
  later than any pack that it knows.
* A *reference* is a cell that lacks nothing, and whose node has had the whole partition. If there is one,
  the cells that lack something are *behind*: they are copied from it.
* Without a reference no cell can be trusted. Each copy has rows that another one lacks, and clients may
  have been told that they are committed. The operator decides which copy is given up.

Rows before the tails are not compared here. ``neoctl check`` compares all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from neo.protocol.ids import ZERO_OID, ZERO_TID
from neo.protocol.packets import TailRow

#: (tid, oid) of a revision.
Key = tuple[bytes, bytes]


class Tail(NamedTuple):
    """The last rows of a cell. ``proven``: see AnswerTails. ``packed``: the tid of the last pack that its
    node knows. ``begin``: the tid, and the key of a revision, from which on the lists are complete; zeros
    if they have all rows of the cell."""

    proven: bool
    packed: bytes
    transactions: frozenset[bytes]
    revisions: frozenset[Key]
    begin: tuple[bytes, Key]

    @property
    def last(self) -> bytes:
        """The tid of the last row; zero if there is none."""
        return max((*self.transactions, *(tid for tid, _ in self.revisions)), default=ZERO_TID)


def make_tail(length: int, packed: bytes, row: TailRow) -> Tail:
    """Return the tail in a row of an answer. ``length``: the number of rows that were asked of each
    kind."""
    _, proven, transactions, revisions = row
    begin = (
        min(transactions) if len(transactions) >= length else ZERO_TID,
        min(revisions) if len(revisions) >= length else (ZERO_TID, ZERO_OID),
    )
    return Tail(proven, packed, frozenset(transactions), frozenset(revisions), begin)


class Lack(NamedTuple):
    """The rows that a cell lacks: at least ``transactions`` of them, or revisions of so many, from the
    tid ``since`` on. If both are zero the cell lacks nothing, but its node never had the whole
    partition."""

    since: bytes
    transactions: int


class Verdict(NamedTuple):
    """Result for one partition, by node. ``references``: cells to trust. If there are none, the cells in
    ``lacks`` differ, and it is unknown which one is right; otherwise these cells are behind."""

    references: frozenset[int]
    lacks: dict[int, Lack]

    @property
    def equal(self) -> bool:
        return not self.lacks

    @property
    def undecided(self) -> bool:
        return bool(self.lacks) and not self.references


def judge(tails: Mapping[int, Tail]) -> Verdict:
    """Compare the cells of a partition, which are given by node."""
    first_tid = max((tail.begin[0] for tail in tails.values()), default=ZERO_TID)
    first_key = max((tail.begin[1] for tail in tails.values()), default=(ZERO_TID, ZERO_OID))
    transactions = frozenset().union(*(tail.transactions for tail in tails.values()))
    revisions = frozenset().union(*(tail.revisions for tail in tails.values()))
    lacks = {}
    for nid, tail in tails.items():
        missing = {tid for tid in transactions - tail.transactions if tid >= first_tid}
        missing.update(
            key[0]
            for key in revisions - tail.revisions
            if key >= first_key and key[0] > tail.packed
        )
        if missing or not tail.proven:
            lacks[nid] = Lack(min(missing, default=ZERO_TID), len(missing))
    return Verdict(frozenset(tails.keys() - lacks.keys()), lacks)
