"""The channels of a client: how they are opened, and the backoff if they cannot be."""

from __future__ import annotations

import logging

from neo.client.errors import ClosedError, UnavailableError
from neo.client.settings import Settings
from neo.net.channel import Channel, DeadlinePassed, Handler, Ticket
from neo.net.host import ThreadHost
from neo.net.tls import TlsLink
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, HandshakeError
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    A,
    AcceptIdentification,
    Address,
    Ping,
    Request,
    RequestIdentification,
)

logger = logging.getLogger("neo.client")

#: The first and the longest pause between two rounds over masters or replicas.
PAUSE_SECONDS = (0.05, 1.0)

#: Errors after which another storage node may answer, or this node later.
NOT_HERE = (ErrorCode.NON_READABLE_CELL, ErrorCode.NOT_READY, ErrorCode.CHECKING_ERROR)
LOST = (ConnectionLost, HandshakeError, OSError)

#: A peer that is silent for a quarter of ``wait-timeout``, but at least and at most for these times, is
#: sent a Ping, and is lost after as long again (specification 16.36). So half of the time is left to find
#: another one.
PATIENCE_PART = 0.25
LEAST_PATIENCE_SECONDS = 0.25
PATIENCE_SECONDS = 20.0
#: Timeouts of a dial and of an identification, and of both together in parts of ``wait-timeout``. A
#: storage node may wait for the master to announce this client.
DIAL_SECONDS = 10.0
IDENTIFY_SECONDS = 10.0
ATTEMPT_PART = 0.5
#: Least time for both, at the end of ``wait-timeout``.
LEAST_ATTEMPT_SECONDS = 0.5
#: A peer that answers no Ping in this time, after ``wait-timeout``, is silent; otherwise it is slow.
PROBE_SECONDS = 0.5
#: A master that does not answer for this time is logged. The first dial ends after this time, and is
#: repeated with the usual timeout.
LATE_SECONDS = 1.0


class Connections:
    """The channels of one client. Thread-safe."""

    def __init__(self, host: ThreadHost, settings: Settings) -> None:
        self.host = host
        self.settings = settings
        #: No new channel is opened.
        self.closed = False
        #: Channels to peers that have not accepted this client yet.
        self._identifying: set[Channel] = set()
        self.patience = patience_of(settings.wait_timeout)
        #: The last channel to each storage node, by node id.
        self.storages: dict[int, Channel] = {}

    def backoff(self, begin: float | None = None) -> Backoff:
        """Return pauses for attempts that begin now, or began at that time."""
        return Backoff(self, begin)

    def check_open(self) -> None:
        """Raise ClosedError if the storage was closed."""
        if self.closed:
            raise ClosedError("the storage is closed")

    def open(
        self,
        address: Address,
        handler: Handler,
        name: str,
        patience: float,
        dial: float,
    ) -> Channel:
        """Dial a peer with a timeout in seconds. Raise OSError, HandshakeError."""
        settings = self.settings
        tls = None if settings.tls is None else TlsLink(settings.tls, server=False)
        wire = self.host.connect(address, tls, dial)
        try:
            return Channel(self.host, wire, handler, name, patience)
        except BaseException:
            wire.close()
            raise

    def identify(
        self,
        channel: Channel,
        request: RequestIdentification,
        node_type: NodeType,
        deadline: float,
        reported: set[str] | None = None,
    ) -> AcceptIdentification:
        """Wait until the peer accepts this client. Raise ClosedError if the storage is closed.
        ``reported``: masters that were logged as silent; None for a storage node."""
        # After an exception the caller closes the channel.
        self._identifying.add(channel)
        try:
            self.check_open()  # close() sees the channel, or is seen here
            return self._identify(channel, request, node_type, deadline, reported)
        finally:
            self._identifying.discard(channel)

    def _identify(
        self,
        channel: Channel,
        request: RequestIdentification,
        node_type: NodeType,
        deadline: float,
        reported: set[str] | None,
    ) -> AcceptIdentification:
        ticket, late = channel.ask(request), self.host.now() + LATE_SECONDS
        if reported is None or channel.name in reported or late > deadline:
            accepted = channel.wait(ticket, deadline)
        else:
            try:
                accepted = channel.wait(ticket, late)
            except TimeoutError:
                reported.add(channel.name)
                logger.warning(
                    "master %s: connected, but it does not answer yet; check the address, and that both"
                    " sides use TLS, or none",
                    channel.name,
                )
                accepted = channel.wait(ticket, deadline)
        if accepted.node_type is not node_type:
            raise ConnectionLost(f"{channel.name} is not a {node_type.name.lower()}")
        return accepted

    def close(self, reason: str) -> None:
        """End all channels but the master's; no other is opened. Threads that wait raise an error."""
        self.closed = True
        for channel in list(self._identifying):
            channel.close(reason)
        self.close_storages(reason)

    def close_storages(self, reason: str) -> None:
        """End the channels to storage nodes."""
        for channel in list(self.storages.values()):
            channel.close(reason)

    def why_lost(self, nid: int) -> str:
        """Return why the connection to a storage node ended."""
        channel = self.storages.get(nid)
        if channel is None or channel.lost is None:
            return f"{format_nid(nid)} is not running"
        return f"{channel.name}: {channel.lost}"


def patience_of(wait_timeout: float) -> float:
    """Return for how many seconds a peer may be silent before it is sent a Ping."""
    return max(LEAST_PATIENCE_SECONDS, min(PATIENCE_PART * wait_timeout, PATIENCE_SECONDS))


class Backoff:
    """Exponential backoff until ``wait_timeout`` is over. All waits of one operation share it, also for
    other peers than the first, so that they take ``wait_timeout`` together."""

    def __init__(self, connections: Connections, begin: float | None = None) -> None:
        """``begin``: when the operation began, if not now."""
        self._connections = connections
        begin = connections.host.now() if begin is None else begin
        #: When the time is over, by the host's clock.
        self.deadline = begin + connections.settings.wait_timeout
        self._seconds = PAUSE_SECONDS[0]

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self._connections.host.now() >= self.deadline

    def attempt(self, seconds: float) -> float:
        """Return the deadline of an attempt to connect that begins now, and may take so long."""
        now = self._connections.host.now()
        return max(min(now + seconds, self.deadline), now + LEAST_ATTEMPT_SECONDS)

    def answer(self, channel: Channel, ticket: Ticket[A]) -> A:
        """Return the answer of a peer, for which a slow one may take longer (specification 16.37).

        Raise UnavailableError if the peer is silent, ClosedError, the errors of Channel.wait().
        """
        host, timeout = self._connections.host, self._connections.settings.wait_timeout
        deadline = max(self.deadline, host.now() + PROBE_SECONDS)
        while True:
            try:
                return channel.wait(ticket, deadline)
            except DeadlinePassed:
                self.probe(channel, Ping())
                deadline = host.now() + timeout

    def probe(self, channel: Channel, question: Request[A]) -> A:
        """Return the answer of a slow peer to a question that takes it no time. Raise UnavailableError if
        it is silent, and the time is over; ErrorAnswer, ConnectionLost."""
        while True:
            try:
                return channel.call(question, None, PROBE_SECONDS)
            except DeadlinePassed as e:
                self.check(str(e))

    def check(self, reason: str) -> None:
        """Raise UnavailableError after ``wait_timeout``, ClosedError if the storage was closed."""
        self._connections.check_open()
        if self.over:
            settings = self._connections.settings
            raise UnavailableError(
                f"cluster {settings.cluster!r} did not answer for {settings.wait_timeout:g} s;"
                f" last reason: {reason}"
            )

    def wait(self, reason: str, most: float = PAUSE_SECONDS[1]) -> None:
        """Raise the errors of check(), or sleep. ``most``: seconds of the longest pause."""
        self.check(reason)
        left = self.deadline - self._connections.host.now()
        self._connections.host.sleep(min(self._seconds, most, max(left, PAUSE_SECONDS[0])))
        self._seconds = min(2 * self._seconds, PAUSE_SECONDS[1])
