"""Reads that a storage node executes, or answers, later than other reads.

The protocol keeps no order between the reads of a client, and the answers may come in any order.
"""

from __future__ import annotations

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.host import Host
from neo.node.peer import Peer
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
    Message,
)

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


def delay_reads(host: Host, peer: Peer) -> None:
    """Have the node of this peer execute or answer some of its reads late, as the seed says."""
    core, dispatch, answer = peer.core, peer._dispatch, peer.connection.answer

    def late_dispatch(message_id: int | None, message: Message) -> None:
        reads = type(message) is AskObject and AskObject in peer.handler.table
        if reads and host.fault(FaultSite.READ_LATE):
            core.call_later(LATE_SECONDS, lambda: execute(message_id, message))
        else:
            dispatch(message_id, message)

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

    peer._dispatch = late_dispatch  # type: ignore[method-assign]
    peer.connection.answer = answer_late  # type: ignore[method-assign]
