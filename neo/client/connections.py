"""The channels of a client: how they are opened, and the backoff if they cannot be."""

from __future__ import annotations

import logging

from neo.client.errors import ClosedError, UnavailableError
from neo.client.settings import Settings
from neo.net.channel import Channel, Handler
from neo.net.host import Host
from neo.net.tls import TlsLink
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, HandshakeError
from neo.protocol.ids import format_nid
from neo.protocol.packets import AcceptIdentification, Address, RequestIdentification

logger = logging.getLogger("neo.client")

#: The first and the longest pause between two rounds over masters or replicas.
PAUSE_SECONDS = (0.05, 1.0)

#: Errors of a storage node after which another one, or the same one later, may answer.
NOT_HERE = (ErrorCode.NON_READABLE_CELL, ErrorCode.NOT_READY, ErrorCode.CHECKING_ERROR)
LOST = (ConnectionLost, HandshakeError, OSError)

#: A peer that is silent for this time while an answer is due is sent a Ping; see neo.net.channel.
PATIENCE_SECONDS = 20.0
#: Timeout of identification. A storage node may wait for the master to announce this client.
IDENTIFY_SECONDS = 10.0
#: A master that does not answer for this time is logged. The first dial ends after this time, and is
#: repeated with the usual timeout.
LATE_SECONDS = 1.0


class Connections:
    """The channels of one client. Thread-safe."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self.host = host
        self.settings = settings
        #: No new channel is opened.
        self.closed = False
        #: The last channel to each storage node, by node id.
        self.storages: dict[int, Channel] = {}

    def backoff(self) -> Backoff:
        """Return pauses for attempts that begin now."""
        return Backoff(self)

    def check_open(self) -> None:
        """Raise ClosedError if the storage was closed."""
        if self.closed:
            raise ClosedError("the storage is closed")

    def open(
        self,
        address: Address,
        handler: Handler,
        name: str,
        patience: float = PATIENCE_SECONDS,
        dial: float | None = None,
    ) -> Channel:
        """Dial a peer. ``dial``: seconds, if not the usual timeout. Raise OSError, HandshakeError."""
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
        limit: float = IDENTIFY_SECONDS,
        reported: set[str] | None = None,
    ) -> AcceptIdentification:
        """Wait until the peer accepts this client. ``reported``: masters that were logged as silent; None
        for a storage node."""
        # After an exception the caller closes the channel.
        ticket, begin = channel.ask(request), self.host.now()
        if reported is None or channel.name in reported:
            accepted = channel.wait(ticket, begin + limit)
        else:
            try:
                accepted = channel.wait(ticket, begin + LATE_SECONDS)
            except TimeoutError:
                reported.add(channel.name)
                logger.warning(
                    "master %s: connected, but it does not answer yet; check the address, and that both"
                    " sides use TLS, or none",
                    channel.name,
                )
                accepted = channel.wait(ticket, begin + limit)
        if accepted.node_type is not node_type:
            raise ConnectionLost(f"{channel.name} is not a {node_type.name.lower()}")
        return accepted

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


class Backoff:
    """Exponential backoff until ``wait_timeout`` is over."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._deadline = connections.host.now() + connections.settings.wait_timeout
        self._seconds = PAUSE_SECONDS[0]

    def check(self, reason: str) -> None:
        """Raise UnavailableError after ``wait_timeout``, ClosedError if the storage was closed."""
        self._connections.check_open()
        if self._connections.host.now() >= self._deadline:
            settings = self._connections.settings
            raise UnavailableError(
                f"cluster {settings.cluster!r} did not answer for {settings.wait_timeout:g} s;"
                f" last reason: {reason}"
            )

    def wait(self, reason: str, most: float = PAUSE_SECONDS[1]) -> None:
        """Raise the errors of check(), or sleep. ``most``: seconds of the longest pause."""
        self.check(reason)
        self._connections.host.sleep(min(self._seconds, most))
        self._seconds = min(2 * self._seconds, PAUSE_SECONDS[1])
