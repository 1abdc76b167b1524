"""Sockets of the daemon: addresses that cannot be reached."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest
import uvloop

from neo.transactor.links import Links
from neo.transactor.members import Address
from neo.transactor.sockets import (
    ADDRESSES_MAX,
    IP_MTU_DISCOVER,
    IPV6_MTU_DISCOVER,
    PMTUDISC_PROBE,
    PeerSockets,
    listener,
)
from tests.support.patience import PATIENCE_SECONDS


class Heard:
    """Links that only receive."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram(self, address: Address, data: bytes) -> None:
        self.got.put_nowait(data)


class Names:
    """An event loop that resolves one host to addresses of both families."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def getaddrinfo(self, host: str, port: int, **hints: Any) -> Any:
        if host != "both":
            return await self._loop.getaddrinfo(host, port, **hints)
        found = [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]
        wanted = hints.get("family") or 0
        return [(f, 0, 0, "", (host, port)) for f, host in found if wanted in (0, f)]


@pytest.mark.parametrize("own", ["127.0.0.1", "::1"])
def test_addresses_that_lead_nowhere_do_no_harm(own: str) -> None:
    """``b..example`` is no valid name, one address is of the other family; a valid name is resolved."""
    bad = [(host, 7000) for host in ("b..example", "a\0b", "::1", "127.0.0.1")] + [(own, 0)]

    async def run() -> list[dict[str, Any]]:
        troubles: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: troubles.append(context))
        heard = Heard()
        network = PeerSockets(lambda network: cast(Links, heard))
        sock = listener((own, 0), socket.SOCK_DGRAM)
        network._loop = cast(asyncio.AbstractEventLoop, Names(loop))
        here = ("both", sock.getsockname()[1])
        await loop.create_datagram_endpoint(lambda: network, sock=sock)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while heard.got.empty():  # until the names are resolved
                for address in bad:
                    network.dial("x", address)
                    network.send_datagram(address, b"to nobody")
                network.send_datagram(here, b"to itself")
                await asyncio.wait([*network._tasks], timeout=1)
            assert await heard.got.get() == b"to itself"
        await asyncio.gather(*network._tasks)
        network.close()
        return troubles

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run()) == []


def test_addresses_of_strangers_are_forgotten() -> None:
    """The memory of the daemon is bounded, whatever addresses strangers name; peers are still reached."""

    async def run() -> None:
        heard = Heard()
        network = PeerSockets(lambda network: cast(Links, heard))
        sock = listener(("127.0.0.1", 0), socket.SOCK_DGRAM)
        here = sock.getsockname()
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: network, sock=sock)
        for port in range(1, 3 * ADDRESSES_MAX):
            network.send_datagram(("127.0.0.1", port), b"to nobody")
        await asyncio.gather(*network._tasks)
        assert len(network._resolving) == ADDRESSES_MAX >= len(network._resolved)
        network.send_datagram(here, b"not yet")
        await asyncio.gather(*network._tasks)
        network.send_datagram(here, b"to itself")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await heard.got.get() == b"to itself"
        network.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_datagrams_are_never_cut_to_pieces() -> None:
    for host, level, option in (
        ("127.0.0.1", socket.IPPROTO_IP, IP_MTU_DISCOVER),
        ("::1", socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER),
    ):
        with listener((host, 0), socket.SOCK_DGRAM) as sock:
            assert sock.getsockopt(level, option) == PMTUDISC_PROBE
