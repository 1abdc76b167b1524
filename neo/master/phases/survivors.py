"""Which transactions stay prepared when the cluster starts (specification 24.17 to 24.23, 24.40).

Theory of operation
-------------------
A transaction was acknowledged as prepared only if all readable cells of its partitions had its mark, and
each mark names these partitions. So a mark that no readable cell of a partition has proves that the
transaction was not acknowledged, or that its end was.

A mark that only some of these cells have proves nothing: the others never got it, or their disks lost it.
The transaction stays, and the cells without the mark are copied from the others, with the rows of the
transaction. If it was not acknowledged, its coordinator does not know it, and rolls it back.

Cells of a backup get and drop marks one by one, while later transactions arrive. There, and when a backup
takes over, all readable cells must have a mark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from neo.master.cluster import Cluster, left_behind
from neo.master.commit.outcomes import Outcome
from neo.master.commit.prepared import Survivor
from neo.master.commit.transactions import PreparedMark
from neo.master.phases.memory import Memory
from neo.protocol.ids import format_nid, format_nids, format_xid
from neo.protocol.packets import AnswerPreparedTransactions

logger = logging.getLogger("neo.master")


class Found(NamedTuple):
    """What VERIFYING found. ``answers``: marks and outcomes by node id. ``tids``: of the transactions
    that were finished, by ttid. ``truncate_tid``: everything later was deleted. ``memory``: what nodes
    remember of the backup now; None if the database is none."""

    answers: dict[int, AnswerPreparedTransactions]
    tids: dict[bytes, bytes]
    truncate_tid: bytes | None
    memory: Memory | None


class Settled(NamedTuple):
    """``outcomes``: by xid, the oldest first. ``partial``: xids of rollbacks that some nodes lack which
    must remember them. ``nids``: the nodes that were asked and still run."""

    survivors: list[Survivor]
    outcomes: dict[bytes, Outcome]
    partial: set[bytes]
    nids: set[int]


def settle(cluster: Cluster, found: Found) -> Settled:
    """Return the transactions that stay prepared, and the outcomes that are remembered. Log which
    transactions are dropped, and why. Make cells OUT_OF_DATE that lack a transaction that stays. Call
    after the comparison of copies: a cell that was found to be behind proves nothing."""
    copies = Copies(cluster)
    answers = {nid: answer for nid, answer in found.answers.items() if nid in copies.running}
    outcomes = _outcomes(cluster, found, answers)
    survivors: dict[bytes, Survivor] = {}
    # The latest first. Of two transactions with one xid, the later one was prepared after the abort of
    # the earlier one. Nodes are asked to store marks in the order of their times: a node that has the
    # later mark and lacks the earlier one had ended the earlier transaction. So if no copy has both
    # marks, the later transaction stays.
    for survivor in sorted(_marked(answers), key=lambda s: s.mark.since, reverse=True):
        xid = survivor.mark.xid
        outcome = outcomes.get(xid)
        if survivor.ttid in found.tids or _committed(survivor.ttid, outcome):
            continue
        if xid in survivors:
            reason: str | None = "its xid was used again"
        elif outcome is not None and outcome.ttid >= survivor.ttid:
            reason = f"the transaction of this xid was {outcome}"
        elif found.memory is not None or found.truncate_tid is not None:
            reason = copies.missing(survivor)
        else:
            reason = copies.keep(survivor)
        if reason is None:
            survivors[xid] = survivor
            outcomes.pop(xid, None)  # of an earlier transaction; its node was away when it was forgotten
        else:
            name, ttid = format_xid(xid), survivor.ttid.hex()
            logger.warning("prepared transaction %s (%s) is dropped: %s", name, ttid, reason)
    kept = sorted(survivors.values(), key=lambda s: s.mark.since)
    for survivor in kept:
        name = format_xid(survivor.mark.xid)
        logger.info("transaction %s (%s) stays prepared", name, survivor.ttid.hex())
    copies.leave_behind()
    return Settled(kept, outcomes, _partial(cluster, outcomes, answers), set(answers))


def complete(cluster: Cluster, answers: dict[int, AnswerPreparedTransactions]) -> set[bytes]:
    """Return the ttids of the prepared transactions that all running nodes with a readable cell of their
    partitions have."""
    copies = Copies(cluster)
    return {s.ttid for s in _marked(answers) if copies.missing(s) is None}


def _committed(ttid: bytes, outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.ttid == ttid and outcome.tid is not None


def _outcomes(
    cluster: Cluster, found: Found, answers: dict[int, AnswerPreparedTransactions]
) -> dict[bytes, Outcome]:
    """Return the outcomes that nodes with a readable cell of the metadata's partition remember, and those
    of the transactions that were finished just now on such nodes. An outcome that a node remembers takes
    precedence: another node may have been away with a lock that was given up, or whose outcome was
    forgotten since."""
    table, now = cluster.partitions, cluster.stamp()
    known: dict[bytes, Outcome] = {}
    for nid, answer in answers.items():
        for xid, ttid, tid, time in answer.decided_list:
            if nid not in table.readable(table.partition(ttid)):
                continue
            if found.truncate_tid is not None and tid is not None and tid > found.truncate_tid:
                continue
            if xid not in known or known[xid].ttid < ttid:
                known[xid] = Outcome(ttid, tid, time)
    for nid, answer in answers.items():
        for ttid, xid, *_ in answer.mark_list:
            final = found.tids.get(ttid)
            if final is None or nid not in table.readable(table.partition(ttid)):
                continue
            if xid not in known or known[xid].ttid < ttid:
                known[xid] = Outcome(ttid, final, now)
    return dict(sorted(known.items(), key=lambda item: item[1].time))


def _partial(
    cluster: Cluster,
    outcomes: dict[bytes, Outcome],
    answers: dict[int, AnswerPreparedTransactions],
) -> set[bytes]:
    """Return the xids of rollbacks that a node with a readable cell of the metadata's partition lacks:
    the master was lost before it had acknowledged them."""
    table = cluster.partitions
    remembered = {
        nid: {(xid, ttid) for xid, ttid, *_ in answer.decided_list}
        for nid, answer in answers.items()
    }
    return {
        xid
        for xid, outcome in outcomes.items()
        if outcome.tid is None
        and any(
            (xid, outcome.ttid) not in remembered[nid]
            for nid in table.readable(table.partition(outcome.ttid))
            if nid in remembered
        )
    }


def _marked(answers: dict[int, AnswerPreparedTransactions]) -> Iterator[Survivor]:
    """Yield the transactions with marks: those that may survive."""
    rows: dict[bytes, PreparedMark] = {}
    nodes: dict[bytes, set[int]] = {}
    stored: dict[bytes, set[bytes]] = {}
    checked: dict[bytes, set[bytes]] = {}
    for nid, answer in answers.items():
        for ttid, xid, since, text, partitions, stores, checks in answer.mark_list:
            rows.setdefault(ttid, PreparedMark(xid, since, text, frozenset(partitions), 0))
            nodes.setdefault(ttid, set()).add(nid)
            stored.setdefault(ttid, set()).update(stores)
            checked.setdefault(ttid, set()).update(checks)
    for ttid, mark in rows.items():
        objects = len(stored[ttid] | checked[ttid])
        yield Survivor(
            ttid=ttid,
            mark=mark._replace(objects=objects),
            nodes=frozenset(nodes[ttid]),
            stored=sorted(stored[ttid]),
            checked=sorted(checked[ttid]),
        )


class Copies:
    """The readable cells of running nodes, as (partition, nid), and those of them that are behind: they
    lack a transaction that stays prepared."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.running = cluster.running_storages()
        self.behind: set[tuple[int, int]] = set()

    def _unknown(self, survivor: Survivor) -> str | None:
        """Return the complaint that a mark names partitions that do not exist."""
        count = len(self._cluster.partitions)
        if any(partition >= count for partition in survivor.mark.partitions):
            return f"it names partitions that do not exist; there are {count}"
        return None

    def _cells(self, partition: int) -> set[tuple[int, int]]:
        readable = self._cluster.partitions.readable(partition)
        return {(partition, nid) for nid in readable if nid in self.running}

    def missing(self, survivor: Survivor) -> str | None:
        """Return which nodes lack the mark in a readable cell; None if it is complete."""
        if (unknown := self._unknown(survivor)) is not None:
            return unknown
        nids = {nid for p in survivor.mark.partitions for _, nid in self._cells(p)}
        if without := nids - survivor.nodes:
            return f"{format_nids(without)} did not prepare it, so it was not acknowledged"
        return None

    def keep(self, survivor: Survivor) -> str | None:
        """Count the cells that lack a transaction as behind. If it cannot stay, return why: some
        partition has no copy with both this transaction and all that stay already."""
        if (unknown := self._unknown(survivor)) is not None:
            return unknown
        lacking = set()
        for partition in sorted(survivor.mark.partitions):
            cells = self._cells(partition)
            having = {(partition, nid) for partition, nid in cells if nid in survivor.nodes}
            if not having:
                return f"no copy of partition {partition} has it, so it was not acknowledged"
            if having <= self.behind:
                return f"no copy of partition {partition} has it and what was prepared later"
            lacking |= cells - having
        self.behind |= lacking
        return None

    def leave_behind(self) -> None:
        """Make the cells that are behind OUT_OF_DATE."""
        rows = self._cluster.partitions.rows
        for nid in sorted({nid for _, nid in self.behind}):
            logger.warning(
                "%s lacks prepared transactions that its replicas have: it was lost while they were"
                " prepared or rolled back, or its disk went back in time. They are copied to partitions"
                " %s",
                format_nid(nid),
                ", ".join(str(p) for p, other in sorted(self.behind) if other == nid),
            )
        self._cluster.change_partitions(
            [(p, nid, left_behind(rows[p][nid])) for p, nid in sorted(self.behind)]
        )
