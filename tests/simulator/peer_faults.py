"""Faults between a node and its clients: late reads and news of deadlocks, and clients that are lost
before a vote.

The protocol keeps no order between the reads of a client, and the answers may come in any order.
"""

from __future__ import annotations

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AnswerObject,
    AnswerObjectHistory,
    AnswerObjectUndoSerial,
    AnswerOIDs,
    AnswerRevisions,
    AnswerTIDs,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskObject,
    AskStoreTransaction,
    AskVoteSingle,
    AskVoteTransaction,
    Message,
    NotifyDeadlock,
)

_VOTES = AskStoreTransaction, AskVoteTransaction, AskVoteSingle
_ANSWERS = frozenset(
    {
        AnswerObject,
        AnswerObjectHistory,
        AnswerObjectUndoSerial,
        AnswerOIDs,
        AnswerRevisions,
        AnswerTIDs,
        AnswerTIDsFrom,
        AnswerTransactionInformation,
    }
)


def inject_faults(host: Host, peer: Peer) -> None:
    """Have the node of this peer execute or answer some of its reads late, and lose it before some of
    its votes, as the seed says."""
    core, dispatch, answer, tell = peer.core, peer._dispatch, peer.connection.answer, peer.send

    def faulty_dispatch(message_id: int | None, message: Message) -> Message | None:
        kind = type(message) if type(message) in peer.handler.table else None
        if kind is AskObject and host.fault(FaultSite.READ_LATE):
            core.call_later(LATE_SECONDS, lambda: execute(message_id, message))
        elif kind in _VOTES and host.fault(FaultSite.CLIENT_DROPPED_BEFORE_VOTE):
            peer.close()
            peer.handler.lost(peer, "disconnected on purpose")
        else:
            return dispatch(message_id, message)
        return None

    def execute(message_id: int | None, message: Message) -> None:
        if not peer.closed:
            dispatch(message_id, message)

    def answer_late(message_id: int | None, message: Message) -> None:
        if type(message) in _ANSWERS and host.fault(FaultSite.READ_ANSWER_LATE):
            core.call_later(LATE_SECONDS, lambda: send(message_id, message))
        else:
            answer(message_id, message)

    def send(message_id: int | None, message: Message) -> None:
        answer(message_id, message)
        core.touched[peer] = None

    def tell_late(message: Message, message_id: int | None = None) -> None:
        to_client = peer.node is not None and peer.node.type is NodeType.CLIENT
        late = to_client and type(message) is NotifyDeadlock and host.fault(FaultSite.DEADLOCK_LATE)
        if late:
            core.call_later(LATE_SECONDS, lambda: tell(message, message_id))
        else:
            tell(message, message_id)

    peer.send = tell_late  # type: ignore[method-assign]
    peer._dispatch = faulty_dispatch  # type: ignore[method-assign]
    peer.connection.answer = answer_late  # type: ignore[method-assign]
