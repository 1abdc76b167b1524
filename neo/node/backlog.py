"""Flow control of a node: limits of unread bytes and of processing time per peer.

Theory of operation
-------------------
A request is executed only if its peer reads its answers. Unread bytes wait in the peer's
:class:`~neo.net.connection.Connection` and in its link, where they are counted. A peer above its
*share* is neither read from nor executed: its received messages wait, in order, until the link is
drained. The share is PEER_BYTES while few peers are *slow*; if they are many, NODE_BYTES are divided
among them. So the peers with the most unread bytes wait first, and a peer that reads never waits for
others.

A peer has the event loop for a *turn*: after TURN_BYTES of answers or TURN_SECONDS its remaining
messages wait for the next turn, and all other peers are served in between.

Jobs, whose answers come later, are counted instead, by the bytes that they keep in memory: a peer whose
jobs have JOBS_BYTES begins no other one.

Bounds: a peer has at most its share, a turn, one answer and the jobs of JOBS_BYTES unread. All peers
together have at most DROP_BYTES, beyond which the slowest one is disconnected.
"""

from __future__ import annotations

from typing import Protocol

#: Smallest share, and the content of a link above which its peer is slow. It keeps a fast network busy
#: and is small enough for a thousand peers.
SLOW_BYTES = 256 << 10
#: Largest share of one peer.
PEER_BYTES = 4 << 20
#: Sum of the shares of all slow peers.
NODE_BYTES = 256 << 20
#: Unread bytes of all slow peers, including notifications, which cannot be postponed. One answer may have
#: 512 MiB.
DROP_BYTES = 1 << 30
#: Bytes of answers in a turn.
TURN_BYTES = 1 << 20
#: Duration of a turn. Other peers wait at most this long, plus one request.
TURN_SECONDS = 0.005
#: Bytes of a job: a chunk, a page or a piece of a content. Jobs that have few bytes say so.
JOB_BYTES = 512 << 10
#: The least that a job counts, for what is kept beside its bytes.
JOB_BYTES_MIN = 8 << 10
#: Bytes of the jobs of one peer, before its next request waits. A correct peer asks for one chunk or page
#: at a time, for a few purposes; many small contents come together.
JOBS_BYTES = 4 * JOB_BYTES
#: Bytes of requests that wait while answers of the same peer are processed. Nodes that ask each other
#: ask for one chunk at a time.
ASIDE_BYTES = 64 << 20
#: Bytes of incomplete messages of all nodes of the cluster. Two of the longest messages fit.
INCOMPLETE_BYTES = 1 << 30
#: Bytes of incomplete messages of all untrusted peers.
GUESTS_BYTES = 32 << 20
#: An incomplete message with fewer received bytes is not counted.
SMALL_BYTES = 64 << 10


class Reader(Protocol):
    """A peer, as its backlog sees it."""

    @property
    def unread(self) -> int:
        """Bytes that the peer has not read."""

    @property
    def trusted(self) -> bool:
        """Whether the peer is a node of the cluster."""

    def lost(self, reason: str) -> None:
        """Disconnect the peer."""


class Backlog:
    """The slow peers of a node."""

    def __init__(self) -> None:
        self._slow: dict[Reader, None] = {}
        self._incomplete: dict[Reader, int] = {}

    def slow(self, peer: Reader) -> None:
        """Note that the link of this peer holds more than SLOW_BYTES."""
        self._slow[peer] = None

    def drained(self, peer: Reader) -> None:
        """Note that the link of this peer holds little, or ended."""
        self._slow.pop(peer, None)

    def move(self, peer: Reader, other: Backlog) -> None:
        """Move a peer to the backlog of another core of this process."""
        if peer in self._slow:
            other.slow(peer)
        if (size := self._incomplete.get(peer)) is not None:
            other.incomplete(peer, size)
        self.forget(peer)

    def forget(self, peer: Reader) -> None:
        """Remove a peer whose connection ended."""
        self._slow.pop(peer, None)
        self._incomplete.pop(peer, None)

    @property
    def slow_count(self) -> int:
        """How many peers are slow."""
        return len(self._slow)

    def share(self) -> int:
        """Return the number of bytes that a peer may leave unread before its requests wait."""
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

    # -- incomplete messages -------------------------------------------------------------------------

    def incomplete(self, peer: Reader, size: int) -> bool:
        """Note that ``size`` bytes of the message that the peer is sending have arrived.

        Return False if the node has no room for it: the sum is above the limit and this peer has the
        most. Trusted and untrusted peers are counted separately.
        """
        if size <= SMALL_BYTES:
            self._incomplete.pop(peer, None)
            return True
        self._incomplete[peer] = size
        trusted = peer.trusted
        sizes = [each for other, each in self._incomplete.items() if other.trusted is trusted]
        limit = INCOMPLETE_BYTES if trusted else GUESTS_BYTES
        return sum(sizes) <= limit or size < max(sizes)
