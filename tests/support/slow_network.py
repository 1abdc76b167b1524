"""A slow network: ports that forward datagrams after a delay, in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

Address = tuple[str, int]


class _Back(asyncio.DatagramProtocol):
    """The socket of one sender towards the target; answers go back the same way."""

    def __init__(self, front: _Front, source: Address) -> None:
        self.front = front
        self.source = source
        self.waiting: list[bytes] = []
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.sendto(data)

    def datagram_received(self, data: bytes, address: Address) -> None:
        self.front.later(lambda: self.front.answer(data, self.source))


class _Front(asyncio.DatagramProtocol):
    def __init__(self, target: Address, delay: float) -> None:
        self.target = target
        self.delay = delay
        self.transport: asyncio.DatagramTransport | None = None
        self.backs: dict[Address, _Back] = {}
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[object]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def close(self) -> None:
        for transport in (self.transport, *(back.transport for back in self.backs.values())):
            if transport is not None:
                transport.close()
        self.transport = None

    def later(self, action: object) -> None:
        self.loop.call_later(self.delay, action)  # type: ignore[arg-type]

    def answer(self, data: bytes, source: Address) -> None:
        if self.transport is not None:
            self.transport.sendto(data, source)

    def datagram_received(self, data: bytes, address: Address) -> None:
        back = self.backs.get(address)
        if back is None:
            back = self.backs[address] = _Back(self, address)
            opening = self.loop.create_datagram_endpoint(lambda: back, remote_addr=self.target)
            task: asyncio.Task[object] = self.loop.create_task(opening)
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        self.later(lambda: back.send(data))


class SlowNetwork:
    """Forwards datagrams from :attr:`ports` to ``targets``, with a ``delay`` each way."""

    def __init__(self, targets: dict[str, int], delay: float) -> None:
        self.ports: dict[str, int] = {}
        self._fronts: list[_Front] = []
        self._targets = targets
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)

    async def _open(self) -> None:
        for name, port in self._targets.items():
            transport, front = await self._loop.create_datagram_endpoint(
                lambda port=port: _Front(("127.0.0.1", port), self._delay),
                local_addr=("127.0.0.1", 0),
            )
            self._fronts.append(front)
            self.ports[name] = transport.get_extra_info("sockname")[1]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for front in self._fronts:
            front.close()
        await asyncio.sleep(2 * self._delay)  # packets on their way are dropped
