"""Connections between two nodes of one process, which pass messages as objects.

Theory of operation
-------------------
A peer has a :class:`LocalConnection` and a :class:`LocalLink` where it has a Connection and a transport
over the network. What a core flushes goes into the inbox of the other end's link, and the link into the
queue of :class:`Deliveries`, which all nodes of the process share. The owner of that queue empties it
between two events, so that a delivery is an event of its own: no core is called while a core is on the
stack::

    Core.flush ──> LocalLink.write ──> inbox of the other link ──(Deliveries.run)──> Peer.received

Rules
-----
* The messages of a direction arrive in the order in which they were sent, and before the end of the
  connection.
* A receiver has nothing that its sender may change: :mod:`neo.protocol.passing`.
* The end of one node's core is the loss of its connections for the others, as over the network.
* Unread messages are counted in about the bytes that they would have on the wire: the bounds of
  :mod:`neo.node.backlog` hold. The limits for the length of one message do not: it is in memory already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from neo.net.connection import HANDSHAKE, Question, Received, match
from neo.node.backlog import SLOW_BYTES
from neo.node.log import NODE
from neo.node.peer import Link, Wire
from neo.protocol.codec import MAX_ID, Packet
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import HandshakeError, LastWords, PeerError
from neo.protocol.packets import ANSWERS, Error, Message, Request
from neo.protocol.passing import detach, size_of

#: Deliveries after which the sockets of the process have their turn. Each may take a turn of
#: neo.node.backlog, but most take some microseconds.
TURN_DELIVERIES = 64


Check = Callable[[Message, Message], None]


class Sent(NamedTuple):
    packet: Packet
    size: int


class Parcel:
    """The messages of one event for one peer. Its length is their size in bytes."""

    __slots__ = ("_size", "messages")

    def __init__(self, messages: list[Sent], size: int) -> None:
        self.messages = messages
        self._size = size

    def __len__(self) -> int:
        return self._size


class Arrived:
    """Sizes of messages that arrive whole."""

    incomplete = 0

    def __init__(self) -> None:
        self.size = 0


class LocalConnection:
    """One end of a connection between two nodes of a process. For a peer it does what
    :class:`neo.net.connection.Connection` does. ``check``, for tests: called with each message and with
    what the other node gets."""

    def __init__(self, server: bool, check: Check | None = None) -> None:
        self.closed = False
        self.trusted = not server
        #: Whether the other node has accepted the connection.
        self.greeted = server
        self.decoder = Arrived()
        self.questions: dict[int | None, Question] = {}
        #: Whether messages are left that were not taken.
        self.more = False
        #: Size of the messages that :meth:`take_outgoing` has not returned yet.
        self.queued = 0
        self._outgoing: list[Sent] = []
        self._unread: deque[Sent] = deque()
        self._next_id = 0
        self._last_received_id: int | None = None
        self._check = check

    # -- sending -------------------------------------------------------------------------------

    def send(self, message: Message, message_id: int | None = None) -> None:
        """Queue a notification. ``message_id``: for a notification that belongs to a request."""
        if not self.closed:
            self._queue(self._new_id() if message_id is None else message_id, message)

    def ask(self, message: Request[Any], context: Any) -> int:
        """Queue a request and return its message id. ``context`` comes back with the answer."""
        assert not self.closed
        message_id = self._new_id()
        self.questions[message_id] = Question(ANSWERS[type(message)], context)
        self._queue(message_id, message)
        return message_id

    def answer(self, message_id: int | None, message: Message) -> None:
        """Queue the answer to the request that came with ``message_id``."""
        if not self.closed:
            self._queue(message_id, message)

    def _new_id(self) -> int:
        message_id = self._next_id
        self._next_id = (message_id + 1) & MAX_ID
        return message_id

    def _queue(self, message_id: int | None, message: Message) -> None:
        detached = detach(message)
        if self._check is not None:
            self._check(message, detached)
        size = size_of(detached)
        self._outgoing.append(Sent(Packet(message_id, detached), size))
        self.queued += size

    def take_outgoing(self) -> Parcel | None:
        """Return the queued messages, and forget them; None if there are none."""
        messages = self._outgoing
        if not messages:
            return None
        parcel = Parcel(messages, self.queued)
        self._outgoing = []
        self.queued = 0
        return parcel

    # -- receiving -----------------------------------------------------------------------------

    def welcome(self) -> None:
        """Do nothing: messages of any length are in memory already."""

    def trust(self) -> None:
        """Note that the peer is a node of the cluster."""
        self.trusted = True

    def feed(self, data: Parcel | bytes) -> None:
        """Add received messages. No bytes: nothing."""
        if isinstance(data, Parcel):
            self._unread += data.messages
            self.more = True

    def take(self) -> Received | None:
        """Return the next message; None if there is none, or if the connection is closed. Raise PeerError
        if the message answers no question of this node: the caller must then :meth:`fail` or
        :meth:`close`."""
        if self.closed or not self._unread:
            return None
        packet, self.decoder.size = self._unread.popleft()
        self.more = bool(self._unread)
        received = match(self.questions, packet)
        if received.question is not None:
            del self.questions[received.message_id]
        else:
            self._last_received_id = received.message_id
        return received

    # -- the end -------------------------------------------------------------------------------

    def fail(self, error: PeerError) -> None:
        """Queue the reason for a peer that broke the protocol, unless it is leaving. The caller then
        closes."""
        if not isinstance(error, (HandshakeError, LastWords)):
            self.answer(self._last_received_id, Error(ErrorCode.PROTOCOL_ERROR.value, str(error)))
        self.closed = True

    def close(self) -> list[Question]:
        """End: take and give no message any more. Return the questions that get no answer."""
        self.closed = True
        self._outgoing = []
        self.queued = 0
        questions = list(self.questions.values())
        self.questions.clear()
        return questions


class End(Protocol):
    """What a local connection ends at: a :class:`neo.node.peer.Peer`, or a client in the same process."""

    connection: Wire
    link: Link | None

    def received(self, data: Any) -> None: ...

    def slow(self) -> None:
        """React to more than SLOW_BYTES that the other end has not read."""

    def drained(self) -> None:
        """React to the end of slow(): little is unread."""

    def lost(self, reason: str) -> None: ...


class Deliveries:
    """What waits for nodes of this process, in order.

    ``wake`` is called when something waits: have :meth:`run` called, not at once but between two events.
    ``check``: see :class:`LocalConnection`. One thread at a time may use it.
    """

    def __init__(self, wake: Callable[[], None], check: Check | None = None) -> None:
        self._wake = wake
        self.check = check
        self._queue: deque[LocalLink] = deque()
        self._awake = False

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def put(self, link: LocalLink) -> None:
        self._queue.append(link)
        if not self._awake:
            self._awake = True
            self._wake()

    def run(self) -> None:
        """Deliver what waits, and what that causes, but at most TURN_DELIVERIES: the rest wakes again."""
        queue = self._queue
        try:
            for _ in range(TURN_DELIVERIES):
                if not queue:
                    break
                queue.popleft().deliver()
        finally:
            # Also after an error, which belongs to one node.
            self._awake = bool(queue)
            if queue:
                self._wake()


#: Takes a dialed connection: attaches the peer that its core accepts, or refuses.
Accept = Callable[["LocalLink"], None]


class LocalLink:
    """One end of a connection: what its owner wrote is in the inbox of ``other``."""

    def __init__(self, deliveries: Deliveries, accept: Accept | None = None) -> None:
        self.other: LocalLink
        #: Bytes that the owner wrote and that the other end has not taken.
        self.unsent = 0
        self._deliveries = deliveries
        self._accept = accept
        self._end: End | None = None
        self._node = ""
        #: What the other end wrote; None: it closed.
        self._inbox: deque[Parcel | None] = deque()
        self._waits = False
        self._paused = False
        self._slow = False

    def attach(self, end: End, server: bool = True) -> None:
        """Have a new peer communicate here."""
        assert end.connection.queued <= len(HANDSHAKE), "messages were queued before"
        end.connection = LocalConnection(server, self._deliveries.check)
        end.link = self
        self._end = end
        self._node = NODE.get()
        if server and (dialer := self.other._end) is not None:
            assert isinstance(dialer.connection, LocalConnection)
            dialer.connection.greeted = True

    def refuse(self, why: str) -> None:
        """Tell the dialing node why it cannot be served now, and close."""
        error = detach(Error(ErrorCode.NOT_READY.value, why))
        size = size_of(error)
        self.write(Parcel([Sent(Packet(None, error), size)], size))
        self.close()

    # -- Link ------------------------------------------------------------------------------------

    def write(self, data: Parcel) -> None:
        other = self.other
        if other._end is None and other._accept is None:
            return  # it has closed
        self.unsent += len(data)
        other._arrive(data)
        if not self._slow and self.unsent > SLOW_BYTES and self._end is not None:
            self._slow = True
            self._end.slow()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._inbox:
            self._wait()

    def close(self) -> None:
        """Have the other end lose the connection when it has what was written. Report nothing any
        more."""
        self._accept = None
        self._end = None
        self._inbox.clear()
        other = self.other
        if other._end is not None or other._accept is not None:
            other.unsent = 0  # nobody reads it
            other._arrive(None)

    # -- deliveries ------------------------------------------------------------------------------

    def _arrive(self, entry: Parcel | None) -> None:
        self._inbox.append(entry)
        self._wait()

    def _wait(self) -> None:
        if not self._waits:
            self._waits = True
            self._deliveries.put(self)

    def deliver(self) -> None:
        """Give the owner the next event."""
        self._waits = False
        accept, end = self._accept, self._end
        if accept is not None:
            self._accept = None
            accept(self)
            if self._end is not None and self._inbox:
                self._wait()
            return
        if end is None:
            return
        NODE.set(self._node)
        if self._slow and self.unsent <= SLOW_BYTES // 4:
            self._slow = False
            end.drained()
        if self._paused or not self._inbox or self._end is None:
            return
        entry = self._inbox.popleft()
        if self._inbox:
            self._wait()
        if entry is None:
            self._end = None
            end.lost("closed by the peer")
            return
        sender = self.other
        sender.unsent -= len(entry)
        if sender._slow and sender.unsent <= SLOW_BYTES // 4:
            sender._wait()
        end.received(entry)


def join(end: End, deliveries: Deliveries, accept: Accept) -> LocalLink:
    """Connect a peer that dials with a node of this process. ``accept`` is called with the other end of
    the link, in a delivery of its own: it attaches the peer that its core accepts, or refuses."""
    near, far = LocalLink(deliveries), LocalLink(deliveries, accept)
    near.other, far.other = far, near
    near.attach(end, server=False)
    far._wait()
    return near
