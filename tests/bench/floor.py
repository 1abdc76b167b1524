"""The floor of the machine: the cost of a round trip and of a sync without a database."""

import asyncio
import os
import socket
import statistics
import time
from pathlib import Path
from typing import cast

import uvloop

from tests.bench import clients
from tests.bench.sizes import Sizes

_MESSAGE = b"x" * 300
_WARM_UP = 100  # round trips before both processes run at speed


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().stop()


def measure(folder: Path, sizes: Sizes) -> dict[str, float]:
    """Return the median µs of an echo of 300 bytes over loopback and of an fdatasync in `folder`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        _, echo = clients.run_many(
            2,
            lambda index, ready: _echo(address, sizes.echoes) if index else _serve(listener),
            sizes.seconds_max,
        )
    return {
        "echo_us": echo,
        "fdatasync_us": clients.run(lambda: _fdatasync(folder, sizes.syncs), sizes.seconds_max),
    }


def _serve(listener: socket.socket) -> float:
    """Echo on one connection until it is closed."""
    loop = uvloop.new_event_loop()
    loop.run_until_complete(loop.create_server(_Echo, sock=listener))
    loop.run_forever()
    return 0.0


def _echo(address: tuple[str, int], count: int) -> float:
    samples = []
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_WARM_UP + count):
            begin = time.perf_counter()
            connection.sendall(_MESSAGE)
            missing = len(_MESSAGE)
            while missing:
                received = len(connection.recv(missing))
                if not received:
                    raise clients.ClientFailed("the echo server closed the connection")
                missing -= received
            samples.append(time.perf_counter() - begin)
    return statistics.median(samples[_WARM_UP:]) * 1e6


def _fdatasync(folder: Path, count: int) -> float:
    samples = []
    with (folder / "fdatasync").open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(_MESSAGE)
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            samples.append(time.perf_counter() - begin)
    return statistics.median(samples) * 1e6
