"""VERIFYING: decide the outcome of transactions that were interrupted in tpc_finish (specification)."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from operator import itemgetter

from neo.master.cluster import Cluster
from neo.master.ids import GREATEST_TID, UNKNOWN_TIDS
from neo.master.phases.memory import Memory
from neo.master.phases.survivors import Found, complete
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Checkpoint, Future
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_OID, ZERO_TID, format_nid
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    AnswerPreparedTransactions,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskPreparedTransactions,
    Request,
    ValidateTransaction,
)

logger = logging.getLogger("neo.master")


async def verify(cluster: Cluster, core: Core, memory: Memory | None) -> Found:
    """Finish the transactions that were committed, then learn the greatest ids. Return what nodes
    remember of prepared transactions, and of a backup. ``memory``: what the nodes remembered of the
    backup before.

    Storage nodes that are lost meanwhile are left out. If one is needed, this workflow is cancelled.
    """
    voted, locked, behind = await _interrupted(cluster)
    last = max(locked.values(), default=None)
    prepared = await _prepared(cluster)
    whole = complete(cluster, prepared)
    locked = {ttid: tid for ttid, tid in behind.items() if ttid not in whole} | locked
    await _find_tids(cluster, voted, locked, whole)
    # In the order of commits, so that a node has durably all transactions up to its last tid at any
    # moment.
    for ttid, tid in sorted(locked.items(), key=itemgetter(1)):
        for nid in voted.get(ttid, ()):
            peer = cluster.connected.get(nid)
            if peer is not None:
                logger.info("transaction %s is finished as %s on %r", ttid.hex(), tid.hex(), peer)
                peer.send(ValidateTransaction(ttid, tid))
    if memory is not None and last is not None:
        memory = memory.finished(cluster, last)
    await _last_ids(cluster, core)
    for ttid in (*voted, *_named(prepared)):
        cluster.tids.seen(ttid)
    found = Found(prepared, locked, cluster.truncate_tid, memory)
    cluster.truncate_tid = None
    return found


async def _ask_all(cluster: Cluster, peers: list[Peer], message: Request[A]) -> dict[int, A]:
    """Send a question to peers. Return the answers by node id, without nodes that are lost or fail."""
    return dict(await ask_each(cluster, [(peer, message) for peer in peers]))


async def ask_each(
    cluster: Cluster, questions: Sequence[tuple[Peer, Request[A]]]
) -> list[tuple[int, A]]:
    """Ask all questions at once. Return (node id, answer) for each, without nodes that are lost or
    fail."""
    asked: list[tuple[Peer, Request[A], Future[A]]] = [
        (peer, message, peer.ask(message)) for peer, message in questions
    ]
    answers = []
    for peer, message, future in asked:
        try:
            answer = await future
        except ConnectionLost:
            continue
        except ErrorAnswer as e:
            logger.error("%r failed to answer %s: %s", peer, type(message).__name__, e)
            cluster.disconnect(peer)
            await Checkpoint()
            continue
        assert peer.node is not None and peer.node.nid is not None
        answers.append((peer.node.nid, answer))
    return answers


async def _interrupted(
    cluster: Cluster,
) -> tuple[dict[bytes, list[int]], dict[bytes, bytes], dict[bytes, bytes]]:
    """Return three tables: ttid → nodes with readable cells that voted; ttid → tid of transactions that
    such nodes have locked; and the same for locks of nodes without readable cells."""
    readable = cluster.partitions.nodes(readable_only=True)
    voted: dict[bytes, list[int]] = {}
    locked: dict[bytes, bytes] = {}
    behind: dict[bytes, bytes] = {}
    for nid, answer in (
        await _ask_all(cluster, cluster.running(), AskLockedTransactions())
    ).items():
        for ttid, tid in answer.tid_dict.items():
            if tid is not None:
                (locked if nid in readable else behind)[ttid] = tid
            # Other nodes get what they miss by replication.
            if nid in readable:
                voted.setdefault(ttid, []).append(nid)
    return voted, locked, behind


async def _prepared(cluster: Cluster) -> dict[int, AnswerPreparedTransactions]:
    """Return the marks and outcomes of the nodes that know prepared transactions (specification
    24.17)."""
    knowing = [
        peer
        for peer in cluster.running()
        if peer.node is not None and FEATURE_OURS in peer.node.features
    ]
    return await _ask_all(cluster, knowing, AskPreparedTransactions())


def _named(answers: dict[int, AnswerPreparedTransactions]) -> Iterator[bytes]:
    """Yield the ttids of marks and outcomes, also of nodes that are behind: of two transactions under one
    xid, the later one must have the later ttid."""
    for answer in answers.values():
        yield from (row[0] for row in answer.mark_list)
        yield from (row[1] for row in answer.decided_list)


async def _find_tids(
    cluster: Cluster,
    voted: dict[bytes, list[int]],
    locked: dict[bytes, bytes],
    whole: Container[bytes],
) -> None:
    """Look for the tids of transactions that some node has unlocked already: one node that knows a tid is
    enough. Cells that are behind count, too: maybe only such a node had locked, and the nodes with
    readable cells were lost during a verification that finished the transaction there. Cells that are
    behind do not count for a prepared transaction that is whole: no such verification was successful on
    any node, and later transactions may have been committed without the node that is behind
    (specification 24.18)."""
    running = cluster.running_storages()
    for ttid in [ttid for ttid in voted if ttid not in locked]:
        partition = cluster.partitions.partition(ttid)
        readable = cluster.partitions.readable(partition)
        others = () if ttid in whole else cluster.partitions.rows[partition].keys() - readable
        for nid in (*readable, *others):
            peer = cluster.connected.get(nid)
            if peer is None or nid not in running:
                continue
            answers = await _ask_all(cluster, [peer], AskFinalTID(ttid))
            answer = answers.get(nid)
            if answer is not None and answer.tid is not None:
                locked[ttid] = answer.tid
                break


async def _last_ids(cluster: Cluster, core: Core) -> None:
    """Continue ids after the greatest oid and tid of the database. Storage nodes truncate before they
    answer."""
    loid, ltid = ZERO_OID, ZERO_TID
    for nid, answer in (await _ask_all(cluster, cluster.running(), AskLastIDs())).items():
        if (answer.ltid or ZERO_TID) > GREATEST_TID:
            logger.error(
                "%s reports the last transaction %s, after which no tid is left: it is disconnected;"
                " check its database",
                format_nid(nid),
                (answer.ltid or ZERO_TID).hex(),
            )
            if (peer := cluster.connected.get(nid)) is not None:
                cluster.disconnect(peer)
                await Checkpoint()
            continue
        loid = max(loid, answer.loid or ZERO_OID)
        ltid = max(ltid, answer.ltid or ZERO_TID)
    cluster.oids.reset(loid)
    cluster.tids.reset(ltid)
    cluster.last_tid = ltid
    if cluster.served_ptid is None and not cluster.partitions.whole():
        # Copies are behind or away. If the operator gave up transactions that only these copies have,
        # no new transaction may get the tid of one of them: when the copies come back, both would look
        # the same. The number is random, because the master that those nodes had may have skipped tids,
        # too.
        cluster.tids.leave_out(core.host.random.randrange(UNKNOWN_TIDS, 2 * UNKNOWN_TIDS))
