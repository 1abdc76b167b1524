"""The event loop's side of a connection: asyncio.Protocol on uvloop.

All methods run on the loop's thread. A transport knows nothing of messages: bytes go to its owner,
and the owner's bytes to the socket. Writes before the connection is established are kept.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol, cast

from neo.net.sockets import configure, format_address
from neo.net.tls import TlsLink
from neo.protocol.errors import HandshakeError
from neo.protocol.packets import Address

logger = logging.getLogger("neo.net")

#: With more unsent bytes the owner is told that the peer reads too slowly.
SLOW_BYTES = 256 * 1024
#: A connection that is closed with more unsent bytes is aborted.
ABORT_BYTES = 4 * 1024 * 1024
#: Timeout of a dial: less than the kernel's two minutes.
DIAL_SECONDS = 10


class Owner(Protocol):
    """Receives the events of a transport."""

    def connected(self, transport: Transport, address: Address) -> None:
        """React to a connected socket, with this remote address."""

    def received(self, data: bytes) -> None: ...

    def slow(self) -> None:
        """React to more than SLOW_BYTES of unsent bytes."""

    def drained(self) -> None:
        """React to the end of slow(): few bytes are unsent."""

    def lost(self, reason: str) -> None: ...


class Transport(asyncio.Protocol):
    #: Sockets of this process that are not closed yet.
    open_count = 0

    def __init__(self, owner: Owner, tls: TlsLink | None) -> None:
        # None when nothing is reported any more. Else the two would keep each other in memory until the
        # next run of the garbage collector.
        self._owner: Owner | None = owner
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._closing = False
        self._over = False  # whether the socket was connected, and is closed

    # -- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self._transport = transport
        Transport.open_count += 1
        address = transport.get_extra_info("peername")
        if address is None:
            # The connection was reset before accept() returned, as by health checks. connection_lost()
            # follows.
            transport.abort()
            return
        sock = transport.get_extra_info("socket")
        configure(sock)
        transport.set_write_buffer_limits(high=SLOW_BYTES)
        if self._tls is not None:
            transport.write(self._tls.start())
        for data in self._waiting:
            self.write(data)
        self._waiting.clear()
        if self._closing or self._owner is None:
            transport.close()
        else:
            self._owner.connected(self, address[:2])

    def data_received(self, data: bytes) -> None:
        if self._closing or self._owner is None:
            return
        if self._tls is not None:
            try:
                data = self._tls.decrypt(data)
            except HandshakeError as e:
                peer = self._transport and self._transport.get_extra_info("peername")
                logger.warning("%s: %s", format_address(peer[:2]) if peer else "a peer", e)
                if self._transport is not None:
                    self._transport.write(self._tls.farewell())
                    self._transport.close()
                self.end(str(e))
                return
            if self._tls.pending and self._transport is not None:
                self._transport.write(self._tls.outgoing())
            if not data:
                return
        self._owner.received(data)

    def pause_writing(self) -> None:
        if self._owner is not None:
            self._owner.slow()

    def resume_writing(self) -> None:
        if self._owner is not None:
            self._owner.drained()

    def connection_lost(self, error: Exception | None) -> None:
        Transport.open_count -= 1
        self._transport = None
        self._waiting.clear()
        self._over = True
        reason = getattr(error, "strerror", None) or str(error)
        self.end("closed by the peer" if error is None else reason.lower())

    def end(self, reason: str) -> None:
        """Report the end of the connection, or of the dial, to the owner, and nothing afterwards."""
        self._closing = True
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.lost(reason)

    # -- for the owner ---------------------------------------------------------------------------

    def report_to(self, owner: Owner) -> None:
        """Report to another owner from now on."""
        if self._owner is not None:
            self._owner = owner

    def write(self, data: bytes) -> None:
        if self._over:
            return
        if self._transport is None:
            self._waiting.append(data)
            return
        if not self._transport.is_closing():
            self._transport.write(data if self._tls is None else self._tls.encrypt(data))

    @property
    def unsent(self) -> int:
        """Return the number of written bytes that the kernel has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Stop reading: what the peer sends waits in the kernels."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close when all written bytes are sent. Report nothing any more."""
        self._closing = True
        self._owner = None
        if self._transport is not None and not self._transport.is_closing():
            if self.unsent > ABORT_BYTES:
                # A peer that never reads must not keep the socket open forever.
                self._transport.abort()
            else:
                if self._tls is not None:
                    self._transport.write(self._tls.farewell())
                self._transport.close()


async def dial(transport: Transport, address: Address) -> None:
    """Connect a transport. Report a failure to its owner like a loss."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await loop.create_connection(lambda: transport, address[0], address[1])
    except TimeoutError:
        transport.end(f"no answer from {format_address(address)} in {DIAL_SECONDS} s")
    except (OSError, ValueError) as e:  # a host that is no name is a UnicodeError
        reason = getattr(e, "strerror", None) or str(e)
        transport.end(f"cannot connect to {format_address(address)}: {reason}")


def bound_socket(address: Address) -> socket.socket:
    """Return a socket bound to an IPv4 or IPv6 address, not listening yet. Raise OSError."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def is_here(host: str) -> bool:
    """Return whether an address is one of this machine."""
    try:
        bound_socket((host, 0)).close()
    except OSError:
        return False
    return True
