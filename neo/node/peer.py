"""The other end of a connection, as the core of a node sees it.

Messages that a core sends are queued in the connection. :meth:`Core.flush` writes them at the end of
the event, with one write per peer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from neo.net.connection import Connection, Question, Received
from neo.net.sockets import format_address
from neo.node.backlog import (
    ASIDE_BYTES,
    JOB_BYTES,
    JOB_BYTES_MIN,
    JOBS_BYTES,
    SLOW_BYTES,
    SMALL_BYTES,
    TURN_BYTES,
    TURN_SECONDS,
    Backlog,
)
from neo.node.log_throttle import LogThrottle
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, LastWords, PeerError
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    A,
    Address,
    Error,
    Message,
    Ping,
    Request,
    RequestIdentification,
)
from neo.topology.nodes import Node

logger = logging.getLogger("neo.net")

#: Checks by Core after which a silent peer that owes an answer is sent a Ping; after as many more it is
#: given up: about 25 and 50 seconds. Checks are counted, not seconds, so that a process that was
#: suspended itself first reads what arrived meanwhile.
SILENT_LOOKS = 3


#: What a connection gives to its link, and takes from it: bytes, or messages of another node of this
#: process (:mod:`neo.node.local`). The two of a peer fit each other.
Portion: TypeAlias = Any


class Incoming(Protocol):
    """Sizes of what the peer sends, in bytes."""

    @property
    def incomplete(self) -> int:
        """Bytes of the message whose rest has not come."""

    @property
    def size(self) -> int:
        """Bytes of the last message."""


class Wire(Protocol):
    """Gives the messages of a peer, and takes messages for it: see
    :class:`neo.net.connection.Connection`, and :class:`neo.node.local.LocalConnection`."""

    closed: bool
    more: bool
    questions: dict[int | None, Question]

    @property
    def queued(self) -> int: ...

    @property
    def trusted(self) -> bool: ...

    @property
    def greeted(self) -> bool: ...

    @property
    def decoder(self) -> Incoming: ...

    def send(self, message: Message, message_id: int | None = None) -> None: ...

    def ask(self, message: Request[Any], context: Any) -> int: ...

    def answer(self, message_id: int | None, message: Message) -> None: ...

    def take_outgoing(self) -> Portion: ...

    def welcome(self) -> None: ...

    def trust(self) -> None: ...

    def feed(self, data: Portion) -> None: ...

    def take(self) -> Received | None: ...

    def fail(self, error: PeerError) -> None: ...

    def close(self) -> list[Question]: ...


class Link(Protocol):
    """The host's side of a connection."""

    @property
    def unsent(self) -> int:
        """Bytes that were written and that the network has not taken. Above SLOW_BYTES of
        :mod:`neo.node.backlog` the link calls ``peer.slow()``, and later ``peer.drained()``."""

    def write(self, data: Portion) -> None: ...

    def pause_reading(self) -> None:
        """Stop passing bytes to ``peer.received()``. Some more bytes may still come."""

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what was written, then close. Report nothing from now on."""


class MessageHandler(Protocol):
    """What takes the messages of a peer; see :class:`neo.node.handler.Handler`."""

    @property
    def table(self) -> Mapping[type[Message], Callable[..., Message | None]]:
        """The methods that take messages, by type. Other messages are unexpected."""

    def failed(self, peer: Peer, error: Exception) -> Message | None:
        """Return the answer to a message whose function raised ``error``; None if there is none. Raises
        ``error`` if it is a bug."""

    def lost(self, peer: Peer, reason: str) -> None:
        """React to the end of the connection."""

    def waits_for(self, message: Message) -> str | None:
        """Return, for a trace, which transactions hold what a request waits for."""

    def sync_seconds(self) -> float:
        """Return, for a trace, the seconds that syncs took so far."""


class Clock(Protocol):
    def monotonic(self) -> float: ...


class PeerOwner(Protocol):
    """The core that a peer belongs to; see :class:`neo.node.core.Core`."""

    peers: dict[Peer, None]
    strangers: dict[Peer, None]
    #: At the end of this event, what is queued for them is written out.
    touched: dict[Peer, None]
    backlog: Backlog
    log_throttle: LogThrottle

    @property
    def host(self) -> Clock: ...

    def output(self, link: Link, data: Portion, close: bool) -> None: ...

    def call_later(self, delay: float, callback: Callable[[], None]) -> object: ...

    def flush(self) -> None: ...


class Peer:
    """One connection, incoming or outgoing. ``node`` is set once the peer is identified.

    All methods run on the thread of the event loop.
    """

    def __init__(
        self, core: PeerOwner, handler: MessageHandler, address: Address | None, server: bool
    ) -> None:
        self.core = core
        self.handler = handler
        self.address = address  # the remote address
        self.server = server  # the peer dialed this node
        self.node: Node | None = None
        self.since = core.host.monotonic()
        #: Requests go both ways. Answers and notifications are then processed while requests wait,
        #: because two nodes that wait for each other to read would wait forever.
        self.both_ways = False
        #: The peer is the primary master: what it says never waits until it reads, since it may itself
        #: wait until this node reads. What it asks for is short.
        self.leads = False
        self.connection: Wire = Connection(server)
        #: Text of the Error with which the peer ended the connection.
        self.last_words = ""
        self.link: Link | None = None
        #: Requests in progress that are answered later.
        self._jobs = 0
        self._slow = False
        self._incomplete = False
        # What waits for the next turn, or for the peer to read, in this order: postponed reads, decoded
        # messages, and if ``_held``, the bytes that the connection has.
        self._put_off: deque[Callable[[], None]] = deque()
        self._front: deque[Received] = deque()
        self._held = False
        # Requests that must wait, if requests go both ways.
        self._aside: deque[Received] = deque()
        self._aside_bytes = 0
        self._planned = False
        self._heard = True
        self._silent_looks = 0
        core.peers[self] = None
        if server:
            core.strangers[self] = None
        core.touched[self] = None

    def __repr__(self) -> str:
        name = format_nid(self.node.nid) if self.node else "unidentified peer"
        return f"{name} ({format_address(self.address)})"

    @property
    def closed(self) -> bool:
        return self.connection.closed

    # -- sending -------------------------------------------------------------------------------

    def send(self, message: Message, message_id: int | None = None) -> None:
        self.connection.send(message, message_id)
        self.core.touched[self] = None

    def queue(self, message: Message) -> None:
        """Send a notification with the next message; the caller sees to it that there is one."""
        self.connection.send(message)

    def ask(self, message: Request[A]) -> Future[A]:
        """Send a request and return the future of its answer. It fails with ErrorAnswer or
        ConnectionLost."""
        future: Future[A] = Future()
        if self.connection.closed:
            future.fail(ConnectionLost(f"{self} is not connected any more"))
        else:
            self.connection.ask(message, future)
            self.core.touched[self] = None
        return future

    def answer(self, message_id: int, message: Message) -> None:
        """Answer a request that its handler left open. Do nothing if the peer is gone."""
        self.connection.answer(message_id, message)
        self.core.touched[self] = None

    def refuse(self, message_id: int, code: ErrorCode, text: str = "") -> None:
        self.answer(message_id, Error(code.value, text))

    def welcome(self) -> None:
        """Mark the peer as identified but not trusted."""
        self.connection.welcome()

    def trust(self) -> None:
        """Mark the peer as a node of the cluster: it may send long messages and keeps its connection."""
        self.connection.trust()
        self.core.strangers.pop(self, None)

    def turn_away(self, message_id: int, request: RequestIdentification, why: ErrorAnswer) -> None:
        """Refuse an identification and disconnect. The log is throttled by host, because a refused node
        asks again each second, each time from another port."""
        who = request.node_type.name.lower() if request.nid is None else format_nid(request.nid)
        host = self.address[0] if self.address else None
        if (more := self.core.log_throttle.admit(f"{who} {host} may not join: {why}")) is not None:
            address = format_address(self.address)
            logger.warning("%s (%s) may not join: %s%s", who, address, why, more)
        self.refuse(message_id, why.code, why.message)
        self.close()

    def write_outgoing(self) -> None:
        if self.link is not None:
            data = self.connection.take_outgoing()
            if data:
                self.core.output(self.link, data, False)
                if self._slow and len(data) > SMALL_BYTES:
                    self.core.backlog.relieve()

    # -- called by the host -----------------------------------------------------------------------

    def connected(self, link: Link, address: Address) -> None:
        """Do nothing: the link already has what was queued during the dial."""

    def received(self, data: Portion) -> None:
        """Execute the received messages as far as flow control allows (:mod:`neo.node.backlog`)."""
        self._heard = True
        self._execute(data)
        if self.core.touched:
            self.core.flush()

    def _execute(self, data: Portion) -> None:
        """Feed ``data``, then execute messages until the turn is over or a request must wait."""
        connection = self.connection
        executed = 0
        began = 0.0
        try:
            connection.feed(data)
            while not self._held and (connection.more or self._front):
                received = self._front.popleft() if self._front else connection.take()
                if received is None:
                    break
                if executed:
                    now = self.core.host.monotonic()
                    if executed == 1:
                        began = now
                    if connection.queued > TURN_BYTES or now - began > TURN_SECONDS:
                        self._hold(received)
                        break
                executed += 1
                if received.question is not None:
                    _complete(received.question, received.message)
                elif not self._aside and (
                    not (self._jobs or self._slow or connection.queued > SLOW_BYTES)
                    or not self.must_wait
                ):
                    self._dispatch(received.message_id, received.message)
                elif not self.both_ways:
                    self._hold(received)
                elif isinstance(received.message, Request):
                    self._put_aside(received)
                else:
                    self._dispatch(received.message_id, received.message)
            size = connection.decoder.incomplete
            if (size > SMALL_BYTES or self._incomplete) and not self._held:
                self._count_incomplete(size)
        except LastWords as e:
            self.last_words = e.words
            self._end(str(e))
        except PeerError as e:
            if (more := self._admit(str(e))) is not None:
                logger.error("%r broke the protocol: %s%s", self, e, more)
            connection.fail(e)
            self._end(f"protocol error: {e}")
        except Exception:
            # A bug while serving this peer must not affect the others.
            logger.exception("failure while serving %r; the connection is closed", self)
            self._end("internal failure")

    def _count_incomplete(self, size: int) -> None:
        self._incomplete = size > SMALL_BYTES
        if not self.core.backlog.incomplete(self, size):
            raise PeerError("this node has no room for another message of this size now")

    # -- flow control, see neo.node.backlog ---------------------------------------------------------

    @property
    def unread(self) -> int:
        """Bytes that the peer has not read yet."""
        unread = self.connection.queued
        return unread if self.link is None else unread + self.link.unsent

    @property
    def trusted(self) -> bool:
        return self.connection.trusted

    @property
    def full(self) -> bool:
        """Whether the unread bytes of the peer exceed its share."""
        unread = self.unread if self._slow else self.connection.queued
        return unread > SLOW_BYTES and unread > self.core.backlog.share()

    @property
    def must_wait(self) -> bool:
        """Whether a request of the peer must wait before it is executed."""
        return self._jobs >= JOBS_BYTES or (self.full and not self.leads)

    def put_off(self, read: Callable[[], None]) -> None:
        """Call ``read``, which answers an earlier request, once the peer is no longer full."""
        self._put_off.append(read)
        self._plan()

    def begin_job(self, size: int = JOB_BYTES) -> None:
        """Count a request that is executed in steps and answered later. ``size``: the bytes that it keeps
        in memory. Call end_job() afterwards, with the same size."""
        self._jobs += max(size, JOB_BYTES_MIN)

    def end_job(self, size: int = JOB_BYTES) -> None:
        self._jobs -= max(size, JOB_BYTES_MIN)
        self._plan_if_waiting()

    def _hold(self, received: Received) -> None:
        """Keep this message and the rest for another turn, and read nothing more until then."""
        self._front.appendleft(received)
        self._held = True
        if self.link is not None:
            self.link.pause_reading()
        self._plan()

    def _put_aside(self, received: Received) -> None:
        self._aside.append(received)
        self._aside_bytes += self.connection.decoder.size
        if self._aside_bytes > ASIDE_BYTES:
            raise PeerError(f"{ASIDE_BYTES} bytes of requests wait until the peer reads its answers")
        self._plan()

    def _plan_if_waiting(self) -> None:
        if self._held or self._aside or self._put_off:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self.core.call_later(0.0, self._go_on)

    def _go_on(self) -> None:
        """Take another turn if the peer may have one. Otherwise drained() or end_job() plans it."""
        self._planned = False
        while self._put_off and not self.full:
            self._put_off.popleft()()
            if self.connection.queued > TURN_BYTES:
                self._plan()
                return
        if self._aside and not self.must_wait:
            self._front = self._aside + self._front
            self._aside = deque()
            self._aside_bytes = 0
            self._held = True
        if not self._held or self.closed or (self.must_wait and not self.both_ways):
            if self.connection.queued:
                # Also what only waits for another message: else this would be planned for ever.
                self.core.touched[self] = None
                self._plan_if_waiting()  # the queue may be short after the write
            return
        self._held = False
        self._execute(b"")
        if not self._held and self.link is not None:
            self.link.resume_reading()

    def _dispatch(self, message_id: int | None, message: Message) -> Message | None:
        """Execute a message; return the answer, None if there is none now."""
        handler = self.handler
        take = handler.table.get(type(message))
        if take is None or message_id is None:
            raise PeerError(f"unexpected {type(message).__name__} ({type(handler).__name__})")
        try:
            answer = take(self, message_id, message)
        except PeerError:
            raise
        except Exception as e:  # noqa: BLE001  # the handler raises it again if it is a bug
            answer = handler.failed(self, e)
        if answer is not None:
            self.connection.answer(message_id, answer)
            self.core.touched[self] = None
        return answer

    @property
    def waiting(self) -> int:
        """Received messages that wait for a turn, or until the peer reads."""
        return len(self._put_off) + len(self._front) + len(self._aside)

    def slow(self) -> None:
        """Note that the link holds more than SLOW_BYTES."""
        self._slow = True
        self.core.backlog.slow(self)

    def drained(self) -> None:
        """Note that the link holds little again."""
        self._slow = False
        self.core.backlog.drained(self)
        self._plan_if_waiting()

    def lost(self, reason: str) -> None:
        """End the peer, because its connection ended or was never made."""
        self.connection.closed = True
        self._end(reason)
        self.core.flush()

    def watch(self) -> None:
        """Check that the peer is alive. The core calls this periodically: a process that hangs keeps its
        connections open, and must not block requests forever."""
        if self._heard or not self.connection.questions:
            self._heard = False
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks == SILENT_LOOKS:
            self.ask(Ping())
        elif self._silent_looks == 2 * SILENT_LOOKS:
            logger.error("%r owes an answer and does not answer Ping either: disconnecting it", self)
            self.lost("it does not answer")

    def _admit(self, what: str) -> str | None:
        """Throttle the log of unidentified outgoing peers: a wrong address is dialed again each
        second."""
        if self.server or self.node is not None:
            return ""
        return self.core.log_throttle.admit(f"{format_address(self.address)} {what}")

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
        self._forget_waiting()
        data = self.connection.take_outgoing()
        questions = self.connection.close()
        if self.link is not None:
            self.core.output(self.link, data, True)
        return questions

    def _forget_waiting(self) -> None:
        """Discard everything that waits for execution."""
        self.core.backlog.forget(self)
        self.core.strangers.pop(self, None)
        self._held = False
        for waiting in (self._put_off, self._front, self._aside):
            waiting.clear()

    def farewell(self, code: ErrorCode, text: str) -> None:
        """Send an Error that answers no request, then disconnect."""
        self.connection.answer(None, Error(code.value, text))
        self.close()

    def drop(self) -> None:
        """Disconnect without sending what is queued. Neither the handler nor pending requests are
        told."""
        if self in self.core.peers:
            del self.core.peers[self]
            self._forget_waiting()
            self.connection.close()
            if self.link is not None:
                self.link.close()

    def close(self) -> None:
        """Send what is queued, then disconnect (specification 2.27).

        Incoming messages are ignored from now on. The handler is not told.
        """
        if self in self.core.peers:
            for question in self._detach():
                question.context.fail(ConnectionLost(f"connection with {self} was closed by this node"))


def _complete(question: Question, message: Message) -> None:
    if type(message) is Error:
        # ACK is the regular answer of requests that have no other (specification 2.15).
        if question.answer is Error and message.code == ErrorCode.ACK.value:
            question.context.resolve(message)
            return
        question.context.fail(ErrorAnswer.of(message.code, message.message))
    else:
        question.context.resolve(message)
