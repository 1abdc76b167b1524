"""A long cable between two machines of :mod:`tests.faults.network`, with a delay in each direction.

All packets between the two machines take it. A process forwards the frames, because not every kernel has
a queueing discipline that delays. Frames may also be lost, silently.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.network import IP, Machine, NetworkError, run

_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17
_ETH_P_ALL = 3
_FRAME_BYTES = 65536
#: Frames on the way in one direction. More are lost, and TCP sends them again.
_FRAMES = 100_000
_LOST = "lost"


def _disable_offload(device: str) -> None:
    """Let the kernel compute checksums and cut frames, as no network card is here that does."""
    value = array("I", [_ETHTOOL_STXCSUM, 0])
    request = struct.pack("16sP16x", device.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        fcntl.ioctl(opened, _SIOCETHTOOL, request)


class Link:
    """The cable. ``seconds``: delay in each direction."""

    def __init__(self, one: Machine, other: Machine, seconds: float) -> None:
        self._machines = (one, other)
        for machine in self._machines:
            near, far = self._ends(machine)
            run(IP, "link", "add", near, "type", "veth", "peer", "name", far)
            run(IP, "link", "set", far, "address", _station(machine))
            _disable_offload(far)
            run(IP, "link", "set", far, "netns", machine.pid)
            run(IP, "link", "set", near, "up")
        for machine, peer in ((one, other), (other, one)):
            self._route(machine, peer)
        ends = [self._ends(machine)[0] for machine in self._machines]
        self._forwarder = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.link", *ends],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._seconds = seconds
        self.set(seconds, seconds)

    @staticmethod
    def _ends(machine: Machine) -> tuple[str, str]:
        number = machine.address.rpartition(".")[2]
        return f"near{number}", f"far{number}"

    def _route(self, machine: Machine, peer: Machine) -> None:
        device = self._ends(machine)[1]
        run(*machine.prefix, IP, "link", "set", device, "up")
        where = [f"{peer.address}/32", "dev", device, "src", machine.address]
        run(*machine.prefix, IP, "route", "add", *where)
        station = ["lladdr", _station(peer), "dev", device, "nud", "permanent"]
        run(*machine.prefix, IP, "neighbour", "replace", peer.address, *station)

    def set(self, there: float | None, back: float | None) -> None:
        """Set the delay from the first machine to the other one, and back, for all frames that come from
        now on. None: they are lost. Raise NetworkError."""
        process = self._forwarder
        assert process.stdin is not None and process.stdout is not None
        words = [_LOST if seconds is None else repr(seconds) for seconds in (there, back)]
        process.stdin.write(" ".join(words).encode() + b"\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise NetworkError(f"the link ended with exit code {process.wait()}")

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Lose all frames meanwhile."""
        self.set(None, None)
        try:
            yield
        finally:
            self.set(self._seconds, self._seconds)

    def close(self) -> None:
        self._forwarder.kill()
        self._forwarder.wait()


def _station(machine: Machine) -> str:
    """Return the hardware address of a machine's end."""
    return f"02:00:00:00:01:{int(machine.address.rpartition('.')[2]):02x}"


# -- the process -------------------------------------------------------------------------------------


class _Direction:
    """Frames from one socket to another one. They never overtake each other."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self._sink = sink
        self.delay: float | None = None
        self._frames: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        frame, address = self.source.recvfrom(_FRAME_BYTES)
        # What was sent here is seen, too.
        if self.delay is None or address[2] == socket.PACKET_OUTGOING:
            return
        if len(self._frames) < _FRAMES:
            self._frames.append((time.monotonic() + self.delay, frame))

    def deliver(self, now: float) -> None:
        while self._frames and self._frames[0][0] <= now:
            try:
                self._sink.send(self._frames.popleft()[1])
            except OSError:
                pass  # a full queue loses a frame, as any network does

    def due(self) -> float:
        return self._frames[0][0] if self._frames else float("inf")


def _opened(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    opened.bind((device, 0))
    return opened


def main() -> None:
    """Forward frames between two devices until the standard input ends. A line of it has two delays."""
    one, other = map(_opened, sys.argv[1:3])
    directions = [_Direction(one, other), _Direction(other, one)]
    by_source = {direction.source: direction for direction in directions}
    while True:
        wait = min(direction.due() for direction in directions) - time.monotonic()
        timeout = None if wait == float("inf") else max(wait, 0.0)
        ready, _, _ = select.select([*by_source, sys.stdin.buffer], [], [], timeout)
        for source in ready:
            if source in by_source:
                by_source[source].take()
                continue
            line = sys.stdin.buffer.readline()
            if not line:
                return
            for direction, word in zip(directions, line.decode().split(), strict=True):
                direction.delay = None if word == _LOST else float(word)
            print("set", flush=True)
        now = time.monotonic()
        for direction in directions:
            direction.deliver(now)


if __name__ == "__main__":
    main()
