"""A peer whose requests are measured: from the message to the answer.

Bytes that wait until it is the peer's turn (:mod:`neo.node.backlog`) are not part of that time.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from neo.node.meter import Meter
from neo.node.peer import MessageHandler, Peer, PeerOwner
from neo.protocol.packets import (
    Address,
    AskBeginTransaction,
    AskBlob,
    AskCheckCurrentSerial,
    AskFinishPrepared,
    AskFinishTransaction,
    AskLockInformation,
    AskObject,
    AskPrepareInformation,
    AskPrepareTransaction,
    AskRebaseObject,
    AskStoreBlob,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteSingle,
    AskVoteTransaction,
    Message,
    Request,
)

logger = logging.getLogger("neo.slow")

_LOCK, DISK, _PEERS = "a lock of another transaction", "the disk", "storage nodes"
#: For what a request waits whose answer comes after its method has returned. Others wait for steps of a
#: job, or for other nodes.
WAITS: dict[type[Message], str] = {
    AskStoreObject: _LOCK,
    AskCheckCurrentSerial: _LOCK,
    AskRebaseObject: _LOCK,
    AskObject: "the unlock of a transaction that is being finished",
    AskBlob: "the disk or a node that has the content",
    AskStoreBlob: DISK,
    AskStoreTransaction: DISK,
    AskVoteTransaction: DISK,
    AskVoteSingle: DISK,
    AskLockInformation: DISK,
    AskPrepareInformation: DISK,
    AskFinishTransaction: _PEERS,
    AskPrepareTransaction: _PEERS,
    AskFinishPrepared: _PEERS,
    AskBeginTransaction: "the end of a transaction with an imposed tid",
}
OTHERS = "its steps or other nodes"


class OpenRequest(NamedTuple):
    """``began``, ``handled``: when its method was called, and when it returned without an answer. No more
    of the message is kept than its ids, because a store has much data."""

    kind: type[Message]
    began: float
    handled: float
    ttid: bytes | None
    oid: bytes | None


class MeasuredPeer(Peer):
    def __init__(
        self,
        meter: Meter,
        core: PeerOwner,
        handler: MessageHandler,
        address: Address | None,
        server: bool,
    ) -> None:
        super().__init__(core, handler, address, server)
        self._meter = meter
        #: Requests that are not answered, by message id. Bound: that of the answers that they wait for.
        self.open: dict[int, OpenRequest] = {}
        #: The request whose method is at work, until it is answered.
        self._current: int | None = None

    def _dispatch(self, message_id: int | None, message: Message) -> Message | None:
        meter, kind = self._meter, type(message)
        self._current = message_id
        began = meter.clock()
        answer = super()._dispatch(message_id, message)
        now = meter.clock()
        if answer is not None or self._current is None or not isinstance(message, Request):
            seconds = now - began
            meter.took(kind, seconds)
            if seconds >= meter.slow:
                self._tell(_open(message, began, now), now)
        elif not self.closed:
            assert message_id is not None
            self.open[message_id] = _open(message, began, now)
        return answer

    def answer(self, message_id: int, message: Message) -> None:
        super().answer(message_id, message)
        if message_id == self._current:
            self._current = None
        request = self.open.pop(message_id, None) if self.open else None
        if request is not None:  # the first of several answers
            now = self._meter.clock()
            self._meter.took(request.kind, now - request.began)
            if now - request.began >= self._meter.slow:
                self._tell(request, now)

    def _tell(self, request: OpenRequest, now: float) -> None:
        """Log a slow request, at most once a minute for each message and each reason."""
        own, waited = request.handled - request.began, now - request.handled
        why = "this node's own work" if own >= waited else WAITS.get(request.kind, OTHERS)
        name = request.kind.__name__
        if (more := self.core.log_throttle.admit(f"slow {name} {why}")) is None:
            return
        ids = f" of transaction {request.ttid.hex()}" if request.ttid else ""
        if request.oid:
            ids += f", object {request.oid.hex()}"
        logger.warning(
            "%s of %r%s took %.3f s: %.3f s of work, then it waited %.3f s; most of it for %s%s",
            name,
            self,
            ids,
            now - request.began,
            own,
            waited,
            why,
            more,
        )

    def _forget_waiting(self) -> None:
        super()._forget_waiting()
        self.open.clear()


def _open(message: Message, began: float, handled: float) -> OpenRequest:
    ttid, oid = getattr(message, "ttid", None), getattr(message, "oid", None)
    return OpenRequest(type(message), began, handled, ttid, oid)
