"""Which transactions stay prepared when the cluster starts (specification 24.17 to 24.23).

A transaction was acknowledged as prepared only if all readable cells of its partitions had its mark, and
each mark names these partitions. So a mark that is missing in a readable cell proves that the transaction
was not acknowledged, or that its end was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.master.commit.outcomes import Outcome
from neo.master.commit.prepared import Survivor
from neo.master.commit.transactions import Mark
from neo.master.phases.memory import Memory
from neo.protocol.ids import format_nids, format_xid
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
    """``outcomes``: by xid, the oldest first. ``partial``: xids of rollbacks that not all nodes remember
    which must. ``nids``: the nodes that were asked and still run."""

    survivors: list[Survivor]
    outcomes: dict[bytes, Outcome]
    partial: set[bytes]
    nids: set[int]


def settle(cluster: Cluster, found: Found) -> Settled:
    """Return what stays prepared and what is remembered. Log what is dropped, and why. Call when the
    partition table is that of the service: a cell that was found to be behind proves nothing."""
    running = cluster.running_storages()
    answers = {nid: answer for nid, answer in found.answers.items() if nid in running}
    outcomes = _outcomes(cluster, found, answers)
    survivors: dict[bytes, Survivor] = {}
    # Of those with the same xid, the later was prepared when the earlier was aborted.
    for survivor in sorted(_marked(answers), key=lambda s: s.mark.since, reverse=True):
        xid = survivor.mark.xid
        outcome = outcomes.get(xid)
        if survivor.ttid in found.tids or _committed(survivor.ttid, outcome):
            continue
        if xid in survivors:
            reason: str | None = "its xid was used again"
        elif outcome is not None and outcome.ttid >= survivor.ttid:
            reason = f"the transaction of this xid was {outcome}"
        else:
            reason = _missing(cluster, survivor, running)
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
    return Settled(kept, outcomes, _partial(cluster, outcomes, answers), set(answers))


def complete(cluster: Cluster, answers: dict[int, AnswerPreparedTransactions]) -> set[bytes]:
    """Return the ttids of the prepared transactions that all running nodes with a readable cell of their
    partitions have."""
    running = cluster.running_storages()
    return {s.ttid for s in _marked(answers) if _missing(cluster, s, running) is None}


def _committed(ttid: bytes, outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.ttid == ttid and outcome.tid is not None


def _outcomes(
    cluster: Cluster, found: Found, answers: dict[int, AnswerPreparedTransactions]
) -> dict[bytes, Outcome]:
    """Return the outcomes that nodes with a readable cell of the metadata's partition remember, and those
    of the transactions that were finished just now on such nodes. What is remembered comes first: another
    node may have been away with a lock that was given up, or whose end was forgotten."""
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
    rows: dict[bytes, Mark] = {}
    nodes: dict[bytes, set[int]] = {}
    stored: dict[bytes, set[bytes]] = {}
    checked: dict[bytes, set[bytes]] = {}
    for nid, answer in answers.items():
        for ttid, xid, since, text, partitions, stores, checks in answer.mark_list:
            rows.setdefault(ttid, Mark(xid, since, text, frozenset(partitions), 0))
            nodes.setdefault(ttid, set()).add(nid)
            stored.setdefault(ttid, set()).update(stores)
            checked.setdefault(ttid, set()).update(checks)
    for ttid, mark in rows.items():
        objects = len(stored[ttid] | checked[ttid])
        yield Survivor(
            *(ttid, mark._replace(objects=objects), frozenset(nodes[ttid])),
            *(sorted(stored[ttid]), sorted(checked[ttid])),
        )


def _missing(cluster: Cluster, survivor: Survivor, running: set[int]) -> str | None:
    """Return which running nodes lack the mark in a readable cell; None if it is complete."""
    table, partitions = cluster.partitions, survivor.mark.partitions
    if any(partition >= len(table) for partition in partitions):
        return f"it names partitions that do not exist; there are {len(table)}"
    readable = {nid for partition in partitions for nid in table.readable(partition)}
    without = (readable & running) - survivor.nodes
    if without:
        return f"{format_nids(without)} did not prepare it, so it was not acknowledged"
    return None
