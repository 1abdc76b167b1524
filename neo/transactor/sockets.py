"""Sockets of the daemon: datagrams and streams of peers, connections of application servers.

Everything runs on the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Callable, Coroutine
from typing import cast

from neo.transactor.disk import StoreError
from neo.transactor.links import Links
from neo.transactor.members import Address
from neo.transactor.service import Service
from neo.transactor.session import Session

logger = logging.getLogger("transactor")

#: Maximum of unsent bytes per peer; data beyond it is dropped, and the engine resends.
STREAM_BACKLOG = 64 * 1024 * 1024
#: Interval after which a host name is resolved again.
RESOLVE_SECONDS = 60.0
#: Bound of the cache of resolved addresses: without a key, strangers can name any number of them.
ADDRESSES_MAX = 100
DIAL_SECONDS = 5.0
#: Linux constants: datagrams are not fragmented, so that probes measure the path.
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, PMTUDISC_PROBE = 10, 23, 3


def listener(address: Address, kind: socket.SocketKind) -> socket.socket:
    """Return a bound socket. Raises StoreError, so that all obstacles to a start are reported alike."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, kind)
    try:
        if kind is socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        elif family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
        sock.bind(address)
        if kind is socket.SOCK_STREAM:
            sock.listen(128)
    except OSError as e:
        sock.close()
        raise StoreError(f"cannot listen on {address[0]}:{address[1]}: {e.strerror}") from None
    sock.setblocking(False)
    return sock


def local_listener(path: str) -> socket.socket:
    """Return a bound Unix socket that only the user of this process may open. Raises StoreError.

    A socket that a killed transactor left behind is removed: this process has locked its logs already.
    """
    sock = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)  # leave no moment in which another user could connect
    try:
        if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
        sock.bind(path)
        sock.listen(128)
    except OSError as e:
        sock.close()
        raise StoreError(f"cannot listen on {path}: {e.strerror or e}") from None
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock


class PeerSockets(asyncio.DatagramProtocol):
    """Implements :class:`neo.transactor.links.Transport`."""

    def __init__(self, links: Callable[[PeerSockets], Links]) -> None:
        """``links`` makes the links that use these sockets."""
        self.links = links(self)
        self._loop = asyncio.get_running_loop()
        self._datagrams: asyncio.DatagramTransport | None = None
        self._streams: dict[int, asyncio.Transport] = {}
        self._numbers = 0
        self._resolved: dict[Address, Address] = {}
        self._resolving: dict[Address, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._datagrams = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.links.datagram((address[0], address[1]), data)

    def error_received(self, exc: Exception) -> None:
        """Ignore that a peer is down or a probe was too large: the missing answer shows it."""

    # -- Transport ---------------------------------------------------------------------------------

    def send_datagram(self, address: Address, data: bytes) -> None:
        if self._datagrams is None:
            return
        target = self._resolve(address)
        if target is not None:
            try:
                self._datagrams.sendto(data, target)
            except (OSError, ValueError) as e:
                self.error_received(e)

    def send_stream(self, conn: int, data: bytes) -> None:
        transport = self._streams.get(conn)
        if transport is not None and transport.get_write_buffer_size() < STREAM_BACKLOG:
            transport.write(data)

    def dial(self, name: str, address: Address) -> None:
        self._spawn(self._dial(name, address))

    def close_stream(self, conn: int) -> None:
        transport = self._streams.pop(conn, None)
        if transport is not None:
            transport.close()

    def close(self) -> None:
        if self._datagrams is not None:
            self._datagrams.close()
        for conn in list(self._streams):
            self.close_stream(conn)

    # -- inside ------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, name: str, address: Address) -> None:
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._loop.create_connection(lambda: Stream(self, name), *address)
        except (OSError, TimeoutError, ValueError):
            return  # Links dials again

    def _resolve(self, address: Address) -> Address | None:
        """Return the numeric address, of the address family of the socket, once it is known."""
        now = self._loop.time()
        if now - self._resolving.get(address, -1e9) > RESOLVE_SECONDS:
            self._resolving.pop(address, None)  # reinsert at the end: the oldest entry is first
            if len(self._resolving) == ADDRESSES_MAX:
                oldest = next(iter(self._resolving))
                del self._resolving[oldest]
                self._resolved.pop(oldest, None)
            self._resolving[address] = now
            self._spawn(self._look_up(address))
        return self._resolved.get(address)

    async def _look_up(self, address: Address) -> None:
        assert self._datagrams is not None
        family = self._datagrams.get_extra_info("socket").family
        try:
            found = await self._loop.getaddrinfo(*address, family=family, type=socket.SOCK_DGRAM)
        except (OSError, ValueError) as e:
            reason = getattr(e, "strerror", None) or e
            logger.warning("host %s cannot be resolved: %s", address[0], reason)
            return
        if address in self._resolving:
            self._resolved[address] = cast(Address, found[0][4][:2])

    def opened(self, transport: asyncio.Transport, name: str | None) -> int:
        self._numbers += 1
        self._streams[self._numbers] = transport
        self.links.connected(self._numbers, name)
        return self._numbers

    def lost(self, conn: int) -> None:
        if self._streams.pop(conn, None) is not None:
            self.links.disconnected(conn)


class Stream(asyncio.Protocol):
    """A TCP connection to a peer."""

    def __init__(self, sockets: PeerSockets, name: str | None) -> None:
        self._sockets = sockets
        self._name = name
        self._conn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        no_delay(transport)
        self._conn = self._sockets.opened(cast(asyncio.Transport, transport), self._name)

    def data_received(self, data: bytes) -> None:
        self._sockets.links.stream(self._conn, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.lost(self._conn)


class ClientConnection(asyncio.Protocol):
    """A connection of an application server or an operator. Implements the Client of a session."""

    def __init__(self, service: Service, admin: bool, challenge: str | None = None) -> None:
        """``challenge``: see :meth:`Service.open`."""
        self._service = service
        self._admin = admin
        self._challenge = challenge
        self._transport: asyncio.Transport
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = "this machine"
        if transport.get_extra_info("socket").family != socket.AF_UNIX:
            no_delay(transport)
            peer = transport.get_extra_info("peername")
            if peer is None:
                self._transport.abort()  # the peer reset the connection before it was accepted
                return
            name = f"{peer[0]}:{peer[1]}"
        self._session = self._service.open(self, self._admin, name, self._challenge)

    def data_received(self, data: bytes) -> None:
        if self._session is not None and not self._session.closed:
            self._session.receive(data)

    def pause_writing(self) -> None:
        """Apply back-pressure: stop reading from a client that does not read its answers."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
        if self._session is not None:
            self._service.feed(self._session)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._session is not None:
            self._session.lost()

    # -- Client ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def backlog(self) -> int:
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        if self.backlog() > STREAM_BACKLOG:
            self._transport.abort()
        else:
            self._transport.close()


def no_delay(transport: asyncio.BaseTransport) -> None:
    """Send small messages at once."""
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
