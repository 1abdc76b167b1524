"""``getSize()`` and ``len()`` of a storage: what its nodes say of their databases, kept for some seconds.

Each partition is counted once: as the mean of what the nodes that answered and can read it say, each of
which divides what it has evenly among its cells. A partition of which no node answered counts as the mean
of the others. The nodes that the client is connected to are asked, or one that it connects to; all
at once, and none is waited for longer than a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from neo.client.pause import LOST
from neo.net.channel import Channel, Ticket
from neo.net.host import Host
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import FEATURE_SIZE, A, AnswerSize, AskSize, Ping, Request

if TYPE_CHECKING:
    from neo.client.session import Session

#: How long an answer is good: pages of control panels ask for both numbers, and are reloaded.
GOOD_SECONDS = 10.0
#: A node that does not answer in this time, to each of two questions, is left out.
MOMENT_SECONDS = 1.0
#: A node on the same machine answers in a fraction of it.
LOOK_SECONDS = 0.005


class Totals(NamedTuple):
    """``size``: bytes. ``objects``: an estimate."""

    size: int = 0
    objects: int = 0


def total(readable: Sequence[Sequence[int]], answers: dict[int, AnswerSize]) -> Totals | None:
    """Put the answers of nodes together. ``readable``: by partition, the nodes that can read it."""
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
    """All methods: any thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known = Totals()
        self._good_until = -inf

    def totals(self) -> Totals:
        """Return what is known; zeros if no node that knows the question ever answered."""
        session = self._session
        now = session.host.now()
        if now >= self._good_until and not session.closed:
            self._good_until = now + GOOD_SECONDS  # other threads need not ask as well
            self._known = self._ask() or self._known
        return self._known

    def _ask(self) -> Totals | None:
        session = self._session
        channels = session.connected_storages()
        # What a node announced has arrived with the answer to a later question.
        alive = _ask_all(session.host, channels, Ping())
        knowing = {n: channels[n] for n in alive if FEATURE_SIZE in session.announced(n)}
        found = _ask_all(session.host, knowing, AskSize())
        return total(session.view().readable, found) if found else None


def _ask_all(host: Host, channels: dict[int, Channel], question: Request[A]) -> dict[int, A]:
    """Return the answers that come in time. No thread waits for them: whichever reads takes them, so that
    a node that hangs delays neither the others nor another thread."""
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
                continue  # it has nothing to say now
    return answers
