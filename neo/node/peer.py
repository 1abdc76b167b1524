"""The other end of a connection, as the core of a node sees it.

Everything that a core sends is queued in the connection and leaves when the event is over, in one
write (:meth:`Core.flush`): that is the outbox of DESIGN, *Cores and shells*.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from neo.net.connection import Connection, Question
from neo.net.sockets import format_address
from neo.node.handler import Handler
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, LastWords, PeerError
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    CODES,
    RESPONSE,
    Address,
    Error,
    Message,
    Ping,
    RequestIdentification,
)
from neo.topology.nodes import Node

if TYPE_CHECKING:
    from neo.node.core import Core

logger = logging.getLogger("neo.net")

#: A peer that owes an answer and is silent in so many looks of Core is asked whether it lives, and is
#: given up after as many more: about 25 and 50 seconds. Looks are counted, not seconds, so that a process
#: that stood still itself hears first what came meanwhile.
SILENT_LOOKS = 3


class Link(Protocol):
    """The shell's side of a connection."""

    #: Set for a peer with which requests go both ways: two that wait for each other to read would
    #: wait for ever.
    always_read: bool

    def write(self, data: bytes) -> None: ...

    def close(self) -> None:
        """Close after what was written is sent; report nothing any more."""


class Peer:
    """``node`` is set once the peer is identified. All methods run on the loop's thread."""

    def __init__(self, core: Core, handler: Handler, address: Address | None, server: bool) -> None:
        self.core = core
        self.handler = handler
        self.address = address  # where it was dialed, or where it comes from
        self.server = server  # it dialed us
        self.node: Node | None = None
        self.since = core.shell.monotonic()
        self.connection = Connection(server)
        self.link: Link | None = None
        self._heard = True
        self._silent_looks = 0
        core.peers[self] = None
        core.touch(self)

    def __repr__(self) -> str:
        name = format_nid(self.node.nid) if self.node else "unidentified peer"
        return f"{name} ({format_address(self.address)})"

    @property
    def closed(self) -> bool:
        return self.connection.closed

    # -- sending -------------------------------------------------------------------------------

    def send(self, message: Message, message_id: int | None = None) -> None:
        self.connection.send(message, message_id)
        self.core.touch(self)

    def ask(self, message: Message) -> Future[Message]:
        """The answer later; the future fails with ErrorAnswer or ConnectionLost."""
        future: Future[Message] = Future()
        if self.connection.closed:
            future.fail(ConnectionLost(f"{self} is not connected any more"))
        else:
            self.connection.ask(message, future)
            self.core.touch(self)
        return future

    def answer(self, message_id: int, message: Message) -> None:
        """Answer a request that its handler left open. Nothing if the peer is gone."""
        self.connection.answer(message_id, message)
        self.core.touch(self)

    def refuse(self, message_id: int, code: ErrorCode, text: str = "") -> None:
        self.answer(message_id, Error(code.value, text))

    def turn_away(self, message_id: int, request: RequestIdentification, why: ErrorAnswer) -> None:
        """Refuse an identification and disconnect. Who may not join yet asks again each second, each
        time from another port."""
        who = request.node_type.name.lower() if request.nid is None else format_nid(request.nid)
        host = self.address[0] if self.address else None
        if (more := self.core.noise.admit(f"{who} {host} may not join: {why}")) is not None:
            address = format_address(self.address)
            logger.warning("%s (%s) may not join: %s%s", who, address, why, more)
        self.refuse(message_id, why.code, why.message)
        self.close()

    def write_outgoing(self) -> None:
        if self.link is not None:
            data = self.connection.take_outgoing()
            if data:
                self.core.output(self.link, data, False)

    # -- called by the shell ----------------------------------------------------------------------

    def connected(self, link: Link, address: Address) -> None:
        """The dial succeeded. What was queued meanwhile is already with the link."""

    def received(self, data: bytes) -> None:
        self._heard = True
        try:
            for message_id, message, question in self.connection.receive(data):
                if question is not None:
                    _complete(question, message)
                else:
                    self._dispatch(message_id, message)
        except LastWords as e:
            self._end(str(e))
        except PeerError as e:
            if (more := self._admit(str(e))) is not None:
                logger.error("%r broke the protocol: %s%s", self, e, more)
            self.connection.fail(e)
            self._end(f"protocol error: {e}")
        except Exception:
            # A mistake of ours while serving this peer must not hurt the others.
            logger.exception("failure while serving %r; the connection is closed", self)
            self._end("internal failure")
        self.core.flush()

    def _dispatch(self, message_id: int | None, message: Message) -> None:
        kind = type(message)
        method = self.handler.method(kind)
        if method is None or message_id is None:
            raise PeerError(f"unexpected {kind.__name__} ({type(self.handler).__name__})")
        try:
            answer = method(self, message_id, message)
        except ErrorAnswer as e:
            answer = Error(e.code.value, e.message)
        if answer is not None:
            assert CODES[type(answer)] & RESPONSE
            self.connection.answer(message_id, answer)
            self.core.touch(self)

    def lost(self, reason: str) -> None:
        """The shell says that the connection ended or was never made."""
        self.connection.closed = True
        self._end(reason)
        self.core.flush()

    def watch(self) -> None:
        """Called by the core now and then: a process that hangs keeps its connections open, and must
        not hold up those who wait for its answer for ever."""
        if self._heard or not self.connection.awaits_answer:
            self._heard = False
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks == SILENT_LOOKS:
            self.ask(Ping())
        elif self._silent_looks == 2 * SILENT_LOOKS:
            logger.error("%r owes an answer and does not even answer to Ping: is it hanging?", self)
            self.lost("it does not answer")

    def _admit(self, what: str) -> str | None:
        """A wrong address, or one where nobody is, is dialed again each second for ever."""
        if self.server or self.node is not None:
            return ""
        return self.core.noise.admit(f"{format_address(self.address)} {what}")

    # -- the end -------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        if self not in self.core.peers:
            return
        if (more := self._admit(f"ended: {reason}")) is not None:
            logger.info("connection with %r ended: %s%s", self, reason, more)
        questions = self._detach()
        try:
            self.handler.lost(self, reason)
        finally:
            for question in questions:
                question.context.fail(ConnectionLost(f"connection with {self} ended: {reason}"))

    def _detach(self) -> list[Question]:
        self.core.peers.pop(self, None)
        data = self.connection.take_outgoing()
        questions = self.connection.close()
        if self.link is not None:
            self.core.output(self.link, data, True)
        return questions

    def farewell(self, code: ErrorCode, text: str) -> None:
        """Tell the peer why, then disconnect: an Error that answers nothing."""
        self.connection.answer(None, Error(code.value, text))
        self.close()

    def drop(self) -> None:
        """Disconnect without sending what is queued. Nobody is told, not even who asked something."""
        if self in self.core.peers:
            del self.core.peers[self]
            self.connection.close()
            if self.link is not None:
                self.link.close()

    def close(self) -> None:
        """Send what is queued, then disconnect (the specification's *abort*).

        No incoming message is processed any more, and the handler is not told.
        """
        if self in self.core.peers:
            for question in self._detach():
                question.context.fail(ConnectionLost(f"connection with {self} was closed by us"))


def _complete(question: Question, message: Message) -> None:
    if type(message) is Error:
        # ACK is the regular answer of requests that have no other (FACTS 1.5).
        if question.answer is Error and message.code == ErrorCode.ACK.value:
            question.context.resolve(message)
            return
        question.context.fail(ErrorAnswer.of(message.code, message.message))
    else:
        question.context.resolve(message)
