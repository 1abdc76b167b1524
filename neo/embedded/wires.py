"""The connection of a client with a node of the same process.

The client's threads have a :class:`LocalWire`, the node's peer has a :class:`ClientLink`. The bytes that
one writes are put into a queue of the other; a put, like a get, is one call of a function of C. So an
exception from outside comes before or after it (:mod:`neo.net.channel`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from neo.embedded.loop import Loop
from neo.net.host import Watched, gather
from neo.node.backlog import SLOW_BYTES
from neo.node.peer import Peer

#: A thread that waits for bytes checks its deadline, and whether the node is silent, at this interval.
TICK_SECONDS = 0.25


class Watches(Protocol):
    """Takes the watches whose channel is to be served."""

    def put(self, watch: LocalWatch, /) -> None: ...


class LocalWatch:
    """The watcher's interest in one wire."""

    def __init__(self, wire: LocalWire, watched: Watched, watches: Watches) -> None:
        #: Returns the channel, unless it was forgotten or is gone.
        self.watched: Callable[[], Watched | None] = weakref.ref(watched)
        self._wire = wire
        self._watches = watches
        self._armed = False
        wire.came = self.came

    def arm(self) -> None:
        self._armed = True
        # Bytes that came before are not told of by the node.
        if not self._wire.empty():
            self.came()

    def disarm(self) -> None:
        self._armed = False

    def forget(self) -> None:
        self._armed, self.watched = False, lambda: None

    def came(self) -> None:
        """Have the channel served if the watch is armed. Any thread."""
        if self._armed:
            self._armed = False
            self._watches.put(self)


class LocalWire:
    """The client's side."""

    def __init__(self, loop: Loop) -> None:
        incoming: SimpleQueue[bytes] = SimpleQueue()
        self._get = incoming.get
        self._wake = incoming.put
        self.empty = incoming.empty
        self._put = loop.put
        self._link = link = ClientLink(loop, incoming, self)
        self._arrive = link.arrive
        #: Has an element after the first of the outgoing messages was put, until it is deleted.
        self._done: list[None] = []
        self._sent = 0
        self._ended = False
        #: Called when bytes came.
        self.came: Callable[[], None] = lambda: None

    @property
    def link(self) -> ClientLink:
        return self._link

    def send(self, outgoing: list[bytes]) -> None:
        done = self._done
        if not done:
            gather(outgoing)
        while outgoing:
            data = outgoing[0]
            if not done and not self._ended:
                done.extend(map(self._put, ((self._arrive, data),)))
            size = len(data)
            # Nothing is called between these lines.
            del outgoing[0]
            del done[:]
            self._sent += size

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        if self._link.slow and self.empty():
            self._put((self._link.drained, None))
        try:
            portions.extend(map(self._get, (wait,), (TICK_SECONDS,)))
        except Empty:
            return False
        return True

    def flow(self) -> tuple[int, int]:
        taken = self._link.taken
        return taken, max(0, self._sent - taken)

    def end(self) -> None:
        self._ended = True
        self._put((self._link.ended, None))
        # The loop may have stopped.
        self._wake(b"")

    def close(self) -> None:
        """End, if that was not done."""
        if not self._ended:
            self.end()


class ClientLink:
    """The node's side: the :class:`~neo.node.peer.Link` of a peer. All but ``slow`` and ``taken`` belongs
    to the loop's thread."""

    def __init__(self, loop: Loop, incoming: SimpleQueue[bytes], wire: LocalWire) -> None:
        self._loop = loop
        self._write = incoming.put
        self._empty = incoming.empty
        self._wire = wire
        self._peer: Peer | None = None
        self._is_over = False
        self._paused = False
        self._unread: list[bytes] = []
        self._written = 0
        #: Whether the client was told to read.
        self.slow = False
        #: Bytes of the client that have arrived here.
        self.taken = 0

    def attach(self, peer: Peer) -> None:
        """Have a new peer communicate here."""
        peer.link = self
        self._peer = peer

    def end_with(self, data: bytes) -> None:
        """Send the client these last bytes."""
        self.write(data)
        self.close()

    # -- what the client does --------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        self.taken += len(data)
        if self._paused or self._unread:
            self._unread.append(data)
        elif self._peer is not None:
            self._peer.received(data)

    def ended(self, _: None) -> None:
        """Note that the client has ended the connection."""
        peer, self._peer = self._peer, None
        self.close()
        if peer is not None:
            peer.lost("closed by the peer")

    def drained(self, _: None) -> None:
        """Note that the client has read everything."""
        if self.slow:
            self.slow, self._written = False, 0
            if self._peer is not None:
                self._peer.drained()

    # -- Link ------------------------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Return the bytes that were written since the client had read everything."""
        if self._empty():
            self._written = 0
        return self._written

    def write(self, data: bytes) -> None:
        if self._is_over:
            return
        self._written = self.unsent + len(data)
        becomes_slow = self._written > SLOW_BYTES and not self.slow and self._peer is not None
        if becomes_slow:
            # First, because a client that has read everything looks at it, and waits.
            self.slow = True
        self._write(data)
        self._wire.came()
        if becomes_slow and self._peer is not None:
            self._peer.slow()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if self._unread:
                self._loop.put((self._read_on, None))

    def _read_on(self, _: None) -> None:
        while self._unread and not self._paused and self._peer is not None:
            self._peer.received(self._unread.pop(0))

    def close(self) -> None:
        self._peer = None
        self._unread.clear()
        if not self._is_over:
            self._is_over = True
            self._write(b"")
            self._wire.came()
