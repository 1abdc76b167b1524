"""Figures of a node, as plain data: what monitoring is told (docs/monitoring.md has the table).

A role lists its figures once; the core gives their values. :mod:`neo.node.metrics` writes them in the
format of Prometheus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from neo import __version__
from neo.node.measured_peer import MeasuredPeer
from neo.node.meter import Histogram, Meter
from neo.node.peer import Peer
from neo.protocol.enums import NodeType


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Figure(NamedTuple):
    """``name``: ends with the unit, if there is one; that of a counter with ``_total``."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE


class Sample(NamedTuple):
    """The value of a figure for one combination of values of its labels."""

    figure: Figure
    value: float | Histogram
    labels: tuple[str, ...] = ()


BUILD = Figure("neo_build_info", "1 for the program of this node.", ("cluster", "role", "version"))
READY = Figure("neo_node_ready", "1 if this node does its part: what /ready says.")
REQUESTS = Figure(
    "neo_request_seconds",
    "Time from a message to its answer; of a notification, in which it was handled.",
    ("message",),
    Kind.HISTOGRAM,
)
OPEN = Figure("neo_requests_open", "Requests that are not answered yet.")
WAITING = Figure(
    "neo_messages_waiting", "Received messages that wait for a turn, or until their peer reads."
)
UNREAD = Figure("neo_send_queue_bytes", "Bytes that wait until peers read them.")
SLOW = Figure("neo_peers_slow", "Peers that read so slowly that their requests may have to wait.")
CONNECTIONS = Figure("neo_connections", "Connections with others, by what they are.", ("peer",))

COMMON = BUILD, READY, REQUESTS, OPEN, WAITING, UNREAD, SLOW, CONNECTIONS


def build(cluster: str, role: str) -> Sample:
    """Return which program this node is."""
    return Sample(BUILD, 1, (cluster, role, __version__))


def node_samples(
    ready: bool, peers: Iterable[Peer], slow: int, meter: Meter | None
) -> Iterator[Sample]:
    """Return the figures that all roles have. ``slow``: the number of slow peers."""
    peers = list(peers)
    yield Sample(READY, ready)
    if meter is not None:
        durations = sorted(meter.durations.items(), key=lambda item: item[0].__name__)
        for kind, histogram in durations:
            yield Sample(REQUESTS, histogram, (kind.__name__,))
    yield Sample(OPEN, sum(len(peer.open) for peer in peers if isinstance(peer, MeasuredPeer)))
    yield Sample(WAITING, sum(peer.waiting for peer in peers))
    yield Sample(UNREAD, sum(peer.unread for peer in peers))
    yield Sample(SLOW, slow)
    found = Counter("unidentified" if p.node is None else p.node.type.name.lower() for p in peers)
    for name in (*(each.name.lower() for each in NodeType), "unidentified"):
        yield Sample(CONNECTIONS, found[name], (name,))
