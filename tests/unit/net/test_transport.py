"""The event loop's side of a connection, with real sockets on loopback."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
import uvloop

from neo.net import transport as transport_module
from neo.net.connection import HANDSHAKE
from neo.net.tls import TlsLink, tls_context
from neo.net.transport import SLOW_BYTES, Transport, bound_socket, dial
from neo.node import backlog
from neo.protocol.packets import Address
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_range
from tests.support.tls_peer import TlsPeer


class Owner:
    """Remembers what its transport reports."""

    def __init__(self) -> None:
        self.transport: Transport | None = None
        self.address: Address | None = None
        self.data = b""
        self.reasons: list[str] = []
        self.states: list[str] = []

    def connected(self, transport: Transport, address: Address) -> None:
        self.transport, self.address = transport, address

    def received(self, data: bytes) -> None:
        self.data += data

    def slow(self) -> None:
        self.states.append("slow")

    def drained(self) -> None:
        self.states.append("drained")

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)

    @property
    def link(self) -> Transport:
        """Return the transport, which is connected."""
        assert self.transport is not None
        return self.transport

    @property
    def socket(self) -> Any:
        assert self.link._transport is not None
        return self.link._transport.get_extra_info("socket")


class Listener:
    """A server whose owners are in the order of their connections."""

    def __init__(self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self.owners: list[Owner] = []
        self._context = context
        self._socket = bound_socket((host, 0))
        self.address: Address = self._socket.getsockname()[:2]
        self._server: asyncio.Server

    def _accept(self) -> Transport:
        self.owners.append(Owner())
        tls = None if self._context is None else TlsLink(self._context, server=True)
        return Transport(self.owners[-1], tls)

    async def __aenter__(self) -> Listener:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=self._socket)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.002)


async def connect(
    address: Address, context: ssl.SSLContext | None = None
) -> tuple[Owner, Transport]:
    owner = Owner()
    tls = None if context is None else TlsLink(context, server=False)
    transport = Transport(owner, tls)
    await dial(transport, address)
    return owner, transport


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: Any) -> None:
        uvloop.run(test(**fixtures))

    return run


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@on_a_loop
async def test_both_ends_have_the_options_of_every_socket(host: str) -> None:
    """Specification 2.31."""
    async with Listener(host) as listener:
        owner, transport = await connect(listener.address)
        await until(lambda: listener.owners and listener.owners[0].address)
        assert owner.address == listener.address
        for end in (owner, listener.owners[0]):
            # All options are set together: see test_sockets.
            assert end.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert end.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000
        transport.close()


@on_a_loop
async def test_bytes_both_ways_and_those_written_before_the_connection() -> None:
    async with Listener() as listener:
        owner = Owner()
        transport = Transport(owner, None)
        transport.write(b"early ")
        transport.write(b"bird")
        await dial(transport, listener.address)
        await until(lambda: listener.owners and listener.owners[0].data == b"early bird")
        server = listener.owners[0].link
        server.write(b"worm")
        await until(lambda: owner.data == b"worm")
        transport.close()


@on_a_loop
async def test_closing_sends_what_was_written_and_reports_to_the_other_end_only() -> None:
    async with Listener() as listener:
        owner, transport = await connect(listener.address)
        big = bytes(3_000_000)
        transport.write(big)
        transport.close()
        transport.close()
        await until(lambda: listener.owners[0].reasons)
        assert listener.owners[0].data == big
        assert listener.owners[0].reasons == ["closed by the peer"]
        assert owner.reasons == []


@on_a_loop
async def test_closing_before_the_connection_is_made() -> None:
    async with Listener() as listener:
        owner = Owner()
        transport = Transport(owner, None)
        transport.write(b"last words")
        transport.close()
        await dial(transport, listener.address)
        await until(lambda: listener.owners and listener.owners[0].reasons)
        assert listener.owners[0].data == b"last words"
        assert (owner.address, owner.reasons) == (None, [])


@on_a_loop
async def test_a_refused_connection() -> None:
    address = ("127.0.0.1", free_range(1))
    owner, _ = await connect(address)
    assert owner.reasons == [f"cannot connect to 127.0.0.1:{address[1]}: Connection refused"]


@pytest.mark.parametrize("host", ["b..example", "x" * 300, "a\0b", "\ud800", ""])
@on_a_loop
async def test_a_host_that_is_no_name(host: str) -> None:
    """Addresses of others come from others."""
    owner, _ = await connect((host, 7000))
    (reason,) = owner.reasons
    assert reason.startswith(f"cannot connect to {host}:7000: ")


@on_a_loop
async def test_a_dial_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "DIAL_SECONDS", 0.05)
    # A full backlog: the kernel drops further requests for a connection.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address: Address = full.getsockname()[:2]
        with socket.create_connection(address):
            owners = [(await connect(address))[0] for _ in range(3)]
        assert f"no answer from 127.0.0.1:{address[1]} in 0.05 s" in owners[-1].reasons


@on_a_loop
async def test_the_owner_hears_when_a_peer_is_slow_and_pauses_reading() -> None:
    async with Listener() as listener:
        loop = asyncio.get_running_loop()
        with socket.create_connection(listener.address) as sock:
            sock.setblocking(False)
            await until(lambda: listener.owners)
            owner = listener.owners[0]
            transport = owner.link
            answer = bytes(16 << 20)
            transport.write(answer)
            assert owner.states == ["slow"]
            assert SLOW_BYTES < transport.unsent <= len(answer)
            transport.pause_reading()
            transport.pause_reading()
            await loop.sock_sendall(sock, b"question")
            received = 0
            while received < len(answer):
                assert owner.data == b""
                received += len(await loop.sock_recv(sock, 1 << 20))
            await until(lambda: owner.states == ["slow", "drained"])
            assert transport.unsent == 0
            assert owner.data == b""
            transport.resume_reading()
            transport.resume_reading()
            await until(lambda: owner.data == b"question")


def test_node_and_transport_agree_on_what_is_slow() -> None:
    """The node counts what is unsent of a peer from there on."""
    assert SLOW_BYTES == backlog.SLOW_BYTES


def test_nothing_keeps_a_transport_and_its_owner_together() -> None:
    """With the garbage collector off, what a peer held is free when its connection ends."""

    async def scenario() -> None:
        async with Listener() as listener:
            for ours in (True, False):
                with socket.create_connection(listener.address) as sock:
                    await until(lambda: listener.owners and listener.owners[0].transport)
                    owner = listener.owners.pop()
                    transport, held = weakref.ref(owner.link), weakref.ref(owner)
                    if ours:
                        owner.link.close()
                    else:
                        sock.close()
                        await until(lambda owner=owner: owner.reasons)
                    del owner
                await until(lambda held=held: held() is None)
                await until(lambda transport=transport: transport() is None)

    gc.collect()
    gc.disable()
    try:
        uvloop.run(scenario())
    finally:
        gc.enable()


@on_a_loop
async def test_closing_on_a_peer_that_does_not_read_does_not_last() -> None:
    before = Transport.open_count
    async with Listener() as listener:
        with socket.create_connection(listener.address):
            await until(lambda: listener.owners)
            transport = listener.owners[0].link
            transport.write(bytes(transport_module.ABORT_BYTES * 8))
            transport.close()
            await until(lambda: Transport.open_count == before)


def test_an_address_in_use() -> None:
    with bound_socket(("127.0.0.1", 0)) as sock:
        sock.listen()
        with pytest.raises(OSError):
            bound_socket(sock.getsockname())


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def contexts(authority: Authority, expired: bool = False) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a dialer and of a server."""
    files = authority.node(expired=expired)
    dialer, server = (tls_context(files.ca, files.cert, files.key, side) for side in (False, True))
    return dialer, server


@on_a_loop
async def test_tls(authority: Authority) -> None:
    """Specification 2.1."""
    client_context, server_context = contexts(authority)
    async with Listener(context=server_context) as listener:
        owner, transport = await connect(listener.address, client_context)
        transport.write(b"question")
        await until(lambda: listener.owners[0].data == b"question")
        server = listener.owners[0].link
        server.write(bytes(2_000_000))
        server.close()
        await until(lambda: owner.reasons)
        assert owner.data == bytes(2_000_000)
        assert owner.reasons == ["closed by the peer"]


@on_a_loop
async def test_each_end_learns_why_tls_failed(authority: Authority) -> None:
    """With TLS 1.3 the dialer has finished its handshake when the server looks at its certificate."""
    client_context, _ = contexts(authority, expired=True)
    _, server_context = contexts(authority)
    async with Listener(context=server_context) as listener:
        owner, transport = await connect(listener.address, client_context)
        transport.write(b"question")
        await until(lambda: owner.reasons and listener.owners[0].reasons)
        assert listener.owners[0].data == b""
        assert "certificate has expired" in listener.owners[0].reasons[0]
        assert "alert certificate expired" in owner.reasons[0]
        assert len(owner.reasons) == len(listener.owners[0].reasons) == 1


@on_a_loop
async def test_plaintext_at_either_end(authority: Authority) -> None:
    client_context, server_context = contexts(authority)
    async with Listener(context=server_context) as listener:
        owner, transport = await connect(listener.address)
        transport.write(b"\x92\xa3NEO\x01")
        await until(lambda: owner.reasons)
        assert owner.data[:1] == b"\x15"  # an alert: the connection says what that means
        reason = listener.owners[0].reasons[0]
        assert reason.startswith("this node uses TLS and the peer does not")
    async with Listener() as plain:
        owner, _ = await connect(plain.address, client_context)
        await until(lambda: plain.owners and plain.owners[0].data)
        server = plain.owners[0].link
        server.write(b"\x92\xa3NEO\x01")
        await until(lambda: owner.reasons)
        assert owner.reasons[0].startswith("this node uses TLS and the peer does not")
        assert plain.owners[0].data[:1] == b"\x16"


def test_the_end_of_a_tls_stream_is_announced(authority: Authority) -> None:
    client_context, server_context = contexts(authority)

    async def scenario(address: Address) -> None:
        owner, transport = await connect(address, client_context)
        await until(lambda: owner.data == HANDSHAKE)
        transport.close()

    with TlsPeer(server_context) as peer:
        uvloop.run(scenario(peer.address))
    assert peer.end is None
