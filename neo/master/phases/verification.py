"""VERIFYING: decide the transactions that were interrupted in tpc_finish (specification)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from neo.master.ids import GREATEST_TID, UNKNOWN_TIDS
from neo.node.peer import Peer
from neo.node.task import Checkpoint, Future
from neo.protocol.enums import NodeState
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_OID, ZERO_TID, format_nid
from neo.protocol.packets import (
    A,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    Request,
    ValidateTransaction,
)

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")


async def verify(master: MasterCore) -> None:
    """Replay what was committed, then learn the greatest ids.

    A storage lost meanwhile is left out; if it is needed, the whole phase is cancelled.
    """
    voted, locked = await _interrupted(master)
    await _find_tids(master, voted, locked)
    # In the order of commits: what a node has durably is complete up to its last tid at any moment.
    for ttid, tid in sorted(locked.items(), key=itemgetter(1)):
        for nid in voted.get(ttid, ()):
            peer = master.connected.get(nid)
            if peer is not None:
                logger.info("transaction %s is finished as %s on %r", ttid.hex(), tid.hex(), peer)
                peer.send(ValidateTransaction(ttid, tid))
    await _last_ids(master)
    for ttid in voted:
        master.tids.seen(ttid)
    master.truncate_tid = None


def _running(master: MasterCore) -> list[Peer]:
    return [p for p in master.storages() if p.node and p.node.state is NodeState.RUNNING]


async def _ask_all(master: MasterCore, peers: list[Peer], message: Request[A]) -> dict[int, A]:
    """Answers by node id; nodes that are lost or fail are left out."""
    return dict(await ask_each(master, [(peer, message) for peer in peers]))


async def ask_each(
    master: MasterCore, questions: Sequence[tuple[Peer, Request[A]]]
) -> list[tuple[int, A]]:
    """Ask all at once; returns (node id, answer) of each but those of nodes that are lost or fail."""
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
            master.disconnect(peer)
            await Checkpoint()
            continue
        assert peer.node is not None and peer.node.nid is not None
        answers.append((peer.node.nid, answer))
    return answers


async def _interrupted(
    master: MasterCore,
) -> tuple[dict[bytes, list[int]], dict[bytes, bytes]]:
    """(ttid → readable nodes that voted it, ttid → tid of those known to be locked)."""
    readable = master.partitions.nodes(readable_only=True)
    voted: dict[bytes, list[int]] = {}
    locked: dict[bytes, bytes] = {}
    for nid, answer in (await _ask_all(master, _running(master), AskLockedTransactions())).items():
        for ttid, tid in answer.tid_dict.items():
            if tid is not None:
                locked[ttid] = tid
            # Replication gives the others what they miss.
            if nid in readable:
                voted.setdefault(ttid, []).append(nid)
    return voted, locked


async def _find_tids(
    master: MasterCore, voted: dict[bytes, list[int]], locked: dict[bytes, bytes]
) -> None:
    """Nodes that already unlocked a transaction know its tid: the first that does is enough. Also one
    whose cell is behind: maybe only that one was locked, and the readable ones failed in a verification
    which has finished it there."""
    running = master.running_storages()
    for ttid in [ttid for ttid in voted if ttid not in locked]:
        partition = master.partitions.partition(ttid)
        readable = master.partitions.readable(partition)
        for nid in (*readable, *(master.partitions.rows[partition].keys() - readable)):
            peer = master.connected.get(nid)
            if peer is None or nid not in running:
                continue
            answers = await _ask_all(master, [peer], AskFinalTID(ttid))
            answer = answers.get(nid)
            if answer is not None and answer.tid is not None:
                locked[ttid] = answer.tid
                break


async def _last_ids(master: MasterCore) -> None:
    """The generators go on after the greatest oid and tid; storages truncate before answering."""
    loid, ltid = ZERO_OID, ZERO_TID
    for nid, answer in (await _ask_all(master, _running(master), AskLastIDs())).items():
        if (answer.ltid or ZERO_TID) > GREATEST_TID:
            logger.error(
                "%s says that its last transaction is %s, after which no other could be given: look at"
                " its database",
                *(format_nid(nid), (answer.ltid or ZERO_TID).hex()),
            )
            if (peer := master.connected.get(nid)) is not None:
                master.disconnect(peer)
                await Checkpoint()
            continue
        loid = max(loid, answer.loid or ZERO_OID)
        ltid = max(ltid, answer.ltid or ZERO_TID)
    master.oids.reset(loid)
    master.tids.reset(ltid)
    master.last_tid = ltid
    if master.served_ptid is None and not master.partitions.whole():
        # Copies are behind or away. If an operator gave up what only these have, no other transaction may
        # get the tid of one of theirs: when they come back, nobody could tell it from that. At random:
        # the master that these had then may have left out some, too.
        master.tids.leave_out(master.shell.random.randrange(UNKNOWN_TIDS, 2 * UNKNOWN_TIDS))
