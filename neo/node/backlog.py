"""Flow control of a node: how much its peers may leave unread, and how much of its time one may take.

Theory of operation
-------------------
A request is executed only if its peer reads its answers. What a peer has not read waits in its
:class:`~neo.net.connection.Connection` and in its link, and is counted in bytes. A peer above its
*share* is neither read from nor executed: what was received of it waits, in order, until the link is
drained. The share is PEER_BYTES while few peers are *slow*; if they are many, NODE_BYTES are divided
among them. So peers with the most unread bytes wait first, and one that reads never waits for others.

A peer has the loop for a *turn*: after TURN_BYTES of answers or TURN_SECONDS the rest of what it sent
waits for the next turn, and all others are served in between.

Jobs, whose answers come later, are counted instead: a peer has at most JOBS_MAX at a time.

Bounds: a peer has at most its share, a turn, one answer and JOBS_MAX jobs unread; all peers together
DROP_BYTES, beyond which the slowest one is disconnected.
"""

from __future__ import annotations

from typing import Protocol

#: Least share, and what a link holds before its peer counts as slow: the least that keeps a fast
#: network busy, small enough for a thousand peers.
SLOW_BYTES = 256 << 10
#: Greatest share of one peer.
PEER_BYTES = 4 << 20
#: Shares of all slow peers together.
NODE_BYTES = 256 << 20
#: Answers, and notifications, of which no request can be put off, to all slow peers together. One answer
#: may have 512 MiB.
DROP_BYTES = 1 << 30
#: Answers of a turn.
TURN_BYTES = 1 << 20
#: Work of a turn; others wait at most as long, and for one request.
TURN_SECONDS = 0.005
#: Sound peers, which ask for a chunk or a page at a time, have some for different purposes.
JOBS_MAX = 4
#: Requests that wait while answers of the same peer are taken: those that go both ways ask for one chunk
#: at a time, and say what they have of it.
ASIDE_BYTES = 64 << 20
#: Messages of which a part is here, of all nodes of the cluster together. Two of the longest fit.
INCOMPLETE_BYTES = 1 << 30
#: The same of all peers for which nobody vouches.
GUESTS_BYTES = 32 << 20
#: A message with less of it here is not counted.
SMALL_BYTES = 64 << 10


class Reader(Protocol):
    """A peer, as a backlog knows it."""

    @property
    def unread(self) -> int:
        """Bytes that wait for it."""

    @property
    def trusted(self) -> bool:
        """Whether it is a node of the cluster."""

    def lost(self, reason: str) -> None:
        """Disconnect it."""


class Backlog:
    """The slow peers of a node."""

    def __init__(self) -> None:
        self._slow: dict[Reader, None] = {}
        self._incomplete: dict[Reader, int] = {}

    def slow(self, peer: Reader) -> None:
        """The link holds more than SLOW_BYTES."""
        self._slow[peer] = None

    def drained(self, peer: Reader) -> None:
        """The link holds little, or ended."""
        self._slow.pop(peer, None)

    def move(self, peer: Reader, other: Backlog) -> None:
        """The peer belongs to another core of this process."""
        if peer in self._slow:
            other.slow(peer)
        if (size := self._incomplete.get(peer)) is not None:
            other.incomplete(peer, size)
        self.forget(peer)

    def forget(self, peer: Reader) -> None:
        """The connection ended."""
        self._slow.pop(peer, None)
        self._incomplete.pop(peer, None)

    def share(self) -> int:
        """Bytes that a peer may leave unread before its requests wait."""
        count = len(self._slow)
        if count * PEER_BYTES <= NODE_BYTES:
            return PEER_BYTES
        return max(SLOW_BYTES, NODE_BYTES // count)

    def relieve(self) -> None:
        """Disconnect the slowest peers while more than DROP_BYTES wait."""
        while self._slow:
            unread = {peer: peer.unread for peer in self._slow}
            if sum(unread.values()) <= DROP_BYTES:
                break
            slowest = max(unread, key=unread.__getitem__)
            self.forget(slowest)
            slowest.lost(f"the peer does not read: {unread[slowest]} bytes wait for it")

    # -- messages of which a part is here ------------------------------------------------------------

    def incomplete(self, peer: Reader, size: int) -> bool:
        """``size``: bytes that are here of the message that the peer is sending.

        False if the node has no room for it: all have too much together, and this peer the most. Nodes of
        the cluster are counted apart from others.
        """
        if size <= SMALL_BYTES:
            self._incomplete.pop(peer, None)
            return True
        self._incomplete[peer] = size
        trusted = peer.trusted
        sizes = [each for other, each in self._incomplete.items() if other.trusted is trusted]
        limit = INCOMPLETE_BYTES if trusted else GUESTS_BYTES
        return sum(sizes) <= limit or size < max(sizes)
