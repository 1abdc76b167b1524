"""``getSize()`` and ``len()`` of a storage, from the sizes of the storage nodes' databases.

Each partition is counted once: as the mean over the nodes that answered and have a readable cell of it.
Each node divides its size evenly among its cells. A partition for which no node answered counts as the
mean of the others. The client asks all storage nodes that it is connected to, or connects to one; it does
not wait for a slow node. The result is kept for some seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from neo.client.connect.connections import LOST
from neo.client.connect.storages import StorageConnections
from neo.client.read.replicas import Replicas
from neo.net.channel import Channel, Ticket
from neo.net.host import ThreadHost
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import FEATURE_OURS, A, AnswerSize, AskSize, Ping, Request

#: The result is kept for this time, because control panels ask for both numbers and are reloaded.
GOOD_SECONDS = 10.0
#: Timeout of each of two questions; a node that does not answer in time is left out.
MOMENT_SECONDS = 1.0
#: Interval at which answers are polled. A node on the same machine answers in a fraction of it.
LOOK_SECONDS = 0.005


class Totals(NamedTuple):
    """``size``: bytes. ``objects``: an estimate."""

    size: int = 0
    objects: int = 0


def total(readable: Sequence[Sequence[int]], answers: dict[int, AnswerSize]) -> Totals | None:
    """Combine the answers of nodes. ``readable``: per partition, the nodes with a readable cell."""
    sizes: list[float] = []
    objects: list[float] = []
    for nids in readable:
        known = [answers[nid] for nid in nids if nid in answers]
        if known:
            sizes.append(sum(a.size / max(a.cells, 1) for a in known) / len(known))
            objects.append(sum(a.objects / max(a.partitions, 1) for a in known) / len(known))
    if not sizes:
        return None
    scale = len(readable) / len(sizes)
    return Totals(round(sum(sizes) * scale), round(sum(objects) * scale))


class Size:
    """The size of a database. Thread-safe."""

    def __init__(self, host: ThreadHost, storages: StorageConnections, replicas: Replicas) -> None:
        self._host = host
        self._storages = storages
        self._replicas = replicas
        self._known = Totals()
        self._good_until = -inf

    def totals(self) -> Totals:
        """Return the last known totals; zeros if no node has answered yet."""
        now = self._host.now()
        if now >= self._good_until:
            self._good_until = now + GOOD_SECONDS  # other threads need not ask as well
            self._known = self._ask() or self._known
        return self._known

    def _ask(self) -> Totals | None:
        channels = self._storages.connected()
        # A node announces its features after it accepts; they have arrived when it answers a Ping.
        alive = _ask_all(self._host, channels, Ping())
        knowing = {n: channels[n] for n in alive if FEATURE_OURS in self._storages.announced(n)}
        found = _ask_all(self._host, knowing, AskSize())
        return total(self._replicas.view().readable, found) if found else None


def _ask_all(host: ThreadHost, channels: dict[int, Channel], question: Request[A]) -> dict[int, A]:
    """Return the answers that come in time.

    This thread polls, and the watcher or another thread reads, so that a node that hangs delays neither
    other nodes nor other threads.
    """
    deadline = host.now() + MOMENT_SECONDS
    asked: dict[int, Ticket[A]] = {}
    for nid, channel in channels.items():
        try:
            asked[nid] = ticket = channel.ask(question)
            channel.forget(ticket)
        except LOST:
            continue
    while not all(ticket.done for ticket in asked.values()) and host.now() < deadline:
        host.sleep(LOOK_SECONDS)
    answers = {}
    for nid, ticket in asked.items():
        if ticket.done:
            try:
                answers[nid] = ticket.result()
            except (*LOST, ErrorAnswer):
                continue  # the node cannot answer now
    return answers
