"""Base of the four roles: a node without IO, clock, randomness or threads (docs/architecture.md, *Cores
and hosts*).

A core is called with what happened: bytes came, a connection ended, a time has come, a write is durable.
It queues messages, starts timers and dials through its :class:`~neo.node.host.Host`. After each event the
caller flushes the core.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, NamedTuple

from neo.node.backlog import Backlog
from neo.node.figures import Sample, node_samples
from neo.node.handler import Handler
from neo.node.host import Host, Timer
from neo.node.log_throttle import LogThrottle
from neo.node.measured_peer import MeasuredPeer
from neo.node.peer import Link, Peer, Portion
from neo.node.task import Cancelled, Future, Task
from neo.node.traced_peer import TracedPeer
from neo.protocol.packets import Address
from neo.topology.nodes import NodeTable
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.node")

#: A peer that connects and does not identify itself in this time is disconnected.
STRANGER_SECONDS = 30.0
#: Interval of the check of all peers; see also Peer.watch.
WATCH_SECONDS = STRANGER_SECONDS / 4


class Readiness(NamedTuple):
    """Whether a node does its part, and in which state it is, for people."""

    ready: bool
    text: str


def _peer_class(host: Host) -> Callable[..., Peer]:
    """Return what makes peers. Those of a node that is not watched measure nothing."""
    if host.meter is None:
        return Peer
    if host.traces is None:
        return partial(MeasuredPeer, host.meter)
    return partial(TracedPeer, host.traces, host.meter)


class Core:
    """State that every role has: peers, node table, partition table."""

    def __init__(self, host: Host) -> None:
        self.host = host
        # Dictionaries, not sets: iteration must not depend on memory addresses.
        self.peers: dict[Peer, None] = {}
        #: Peers that dialed this node and are not trusted; the oldest first.
        self.strangers: dict[Peer, None] = {}
        self.backlog = Backlog()
        self.nodes = NodeTable()
        self.partitions = PartitionTable()
        self.stopped = False
        self.log_throttle = LogThrottle(host.monotonic)
        #: Peers for which something is queued.
        self.touched: dict[Peer, None] = {}
        self._tasks: dict[Task[Any], None] = {}
        self._new_peer = _peer_class(host)

    # -- called by the host ----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work. The node is listening."""
        self._watch_peers()

    def accepted(self, address: Address) -> Peer:
        """Return the peer of a new incoming connection."""
        return self._new_peer(self, self.stranger_handler(), address, server=True)

    def limit_strangers(self, most: int) -> None:
        """Disconnect the oldest untrusted peers until there is room for one more among ``most``,
        because they must not keep nodes of the cluster out."""
        while len(self.strangers) >= most:
            oldest = next(iter(self.strangers))
            if (more := self.log_throttle.admit("too many unidentified peers")) is not None:
                logger.warning(
                    "more than %s unidentified peers: disconnecting the oldest: %r%s",
                    most,
                    oldest,
                    more,
                )
            oldest.lost("more recent unidentified peers need its place")

    def terminate(self) -> None:
        """React to SIGTERM or SIGINT. A role that must finish something first overrides this."""
        self.stop(0)

    def fail(self, error: Exception) -> None:
        """Log the error and stop the process, because this node cannot continue."""
        logger.critical("%s", error)
        self.stop(1)

    def flush(self) -> None:
        """Write what the event queued, with one write per peer."""
        while self.touched:
            touched, self.touched = self.touched, {}
            for peer in touched:
                peer.write_outgoing()

    def output(self, link: Link, data: Portion, close: bool) -> None:
        """Write to a connection and, if ``close``, close it. All that leaves passes here."""
        if data:
            link.write(data)
        if close:
            link.close()

    # -- for monitoring ----------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        """Return whether this node does its part."""
        return Readiness(not self.stopped, "this node works")

    def samples(self) -> Iterator[Sample]:
        """Return the figures of this node as they are now."""
        yield from node_samples(
            self.readiness().ready, self.peers, self.backlog.slow_count, self.host.meter
        )

    # -- for roles -------------------------------------------------------------------------------

    def stranger_handler(self) -> Handler:
        """Return the handler of incoming peers that are not identified yet."""
        return Handler()

    def adopt(self, peer: Peer, handler: Handler) -> None:
        """Take over a peer of another core of this process, including its queued messages."""
        del peer.core.peers[peer]
        peer.core.backlog.move(peer, self.backlog)
        if peer in peer.core.strangers:
            del peer.core.strangers[peer]
            self.strangers[peer] = None
        peer.core = self
        peer.handler = handler
        self.peers[peer] = None
        self.touched[peer] = None

    def dial(self, address: Address, handler: Handler) -> Peer:
        """Return a new outgoing peer. Messages can be queued for it at once."""
        peer = self._new_peer(self, handler, address, server=False)
        self.host.dial(peer)
        return peer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        def run() -> None:
            if not self.stopped:
                callback()
                self.flush()

        return self.host.call_later(delay, run)

    def sleep(self, seconds: float) -> Future[None]:
        future: Future[None] = Future()
        self.call_later(seconds, lambda: future.resolve(None))
        return future

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Task[Any]:
        """Run a workflow. An unexpected error in it stops the node, whose state would be unknown."""
        task = Task(coroutine)
        self._tasks[task] = None
        task.then(lambda _: self._task_done(task))
        return task

    def _task_done(self, task: Task[Any]) -> None:
        self._tasks.pop(task, None)
        try:
            task.result()
        except Cancelled:
            return
        except Exception as e:
            logger.exception("workflow %s failed", task.name)
            self.fail(e)

    def stop(self, code: int) -> None:
        """Close every connection and stop the process. The core is dead afterwards."""
        if self.stopped:
            return
        self.stopped = True
        for task in list(self._tasks):
            task.cancel()
        for peer in list(self.peers):
            peer.close()
        self.flush()
        self.host.stop(code)

    def abandon(self) -> None:
        """Drop every connection and all queued messages, without notice. The core is dead afterwards."""
        if self.stopped:
            return
        self.stopped = True
        for peer in list(self.peers):
            peer.drop()
        for task in list(self._tasks):
            task.cancel()
        self.touched.clear()

    def _watch_peers(self) -> None:
        limit = self.host.monotonic() - STRANGER_SECONDS
        for peer in list(self.peers):
            if peer.server and peer.node is None and peer.since < limit and self.must_identify:
                logger.warning("%r did not identify itself in time: disconnecting it", peer)
                peer.close()
            else:
                peer.watch()
        self.backlog.relieve()
        self.call_later(WATCH_SECONDS, self._watch_peers)

    #: False if peers may stay unidentified, as ``neoctl`` does.
    must_identify = True
