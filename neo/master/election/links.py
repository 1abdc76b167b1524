"""Connections between the masters that keep a log together.

Each master dials each other one, and sends on the connection that it dialed; it receives on those that
the others dialed. So no rule is needed for which of two connections counts. They are NEO connections,
with handshake, cluster name and TLS, and carry messages of the feature ``log``.

A silent connection is dialed again, because TCP may take minutes to notice a cut.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol

from neo.net.sockets import format_address
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AcceptIdentification,
    Address,
    FlushLog,
    Message,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyLease,
    NotifyLeaseGranted,
    NotifyLog,
    NotifyLogState,
    NotifyNodeInformation,
    NotifySuspicion,
    Ping,
    Pong,
    RequestIdentification,
)
from neo.topology.nodes import Node

logger = logging.getLogger("neo.master")

#: Pause before a master is dialed again.
PAUSE_SECONDS = 0.4
#: A dial is repeated after this time, because the kernel retries more and more slowly.
DIAL_SECONDS = 1.2
#: A master that was silent for this long is dialed again.
SILENCE_SECONDS = 3.0
#: Interval of the state message, which is also the heartbeat.
STATE_SECONDS = 1.0
#: Flow control: unconfirmed bytes per master. Beyond it messages are dropped; the engine resends.
WINDOW_BYTES = 4 * 1024 * 1024
#: Maximum number of links; more masters indicate a mistake in configurations.
LINKS_MAX = 32


class LocalMember(Protocol):
    """The member of the log, as its links use it: identity and state."""

    cluster: str
    bind: Address

    @property
    def nid(self) -> int | None: ...

    def nid_of(self, name: str) -> int | None:
        """Return the node id that the log assigns to a master; None if it is no member."""

    def state(self) -> NotifyLogState:
        """Return the state of the log to announce to the other masters."""

    def log_state(self, link: MasterLink, m: NotifyLogState) -> None: ...

    def log_messages(self, link: MasterLink, packets: list[bytes]) -> None:
        """Handle messages of the log. Raises ValueError if they are malformed."""


ElectionMessage = NotifyLease | NotifyLeaseGranted | NotifySuspicion


class Events(Protocol):
    """Receives events of links, and what other masters say about the election and the cluster."""

    def reached(self, link: MasterLink) -> None:
        """Note that messages can be sent to a master."""

    def refused(self, link: MasterLink) -> None:
        """Note that a master could not be dialed."""

    def told(self, link: MasterLink, m: ElectionMessage) -> None: ...

    def end(self, reason: str) -> None:
        """End this process, as the primary says."""


class _Dialed(Handler):
    """Handler of a connection that this master dialed: only features are received."""

    def __init__(self, link: MasterLink) -> None:
        self._link = link

    def lost(self, peer: Peer, reason: str) -> None:
        self._link.lost(peer, reason)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, message: NotifyFeatures) -> None:
        if FEATURE_OURS not in message.features:
            raise PeerError("this master does not keep a log with others")
        self._link.established(peer)


class FromMaster(Handler):
    """Handler of a connection that another master dialed."""

    def __init__(self, core: Core, member: LocalMember, events: Events, link: MasterLink) -> None:
        self._core = core
        self._member = member
        self._events = events
        self._link = link

    @on(NotifyLogState)
    def log_state(self, peer: Peer, message_id: int, message: NotifyLogState) -> None:
        self._heard()
        self._member.log_state(self._link, message)

    @on(NotifyLog)
    def log_messages(self, peer: Peer, message_id: int, message: NotifyLog) -> None:
        self._heard()
        try:
            self._member.log_messages(self._link, message.message_list)
        except ValueError as e:
            raise PeerError(f"broken messages of the log: {e}") from None

    @on(NotifyLease, NotifyLeaseGranted, NotifySuspicion)
    def election(self, peer: Peer, message_id: int, message: ElectionMessage) -> None:
        self._heard()
        self._events.told(self._link, message)

    @on(NotifyClusterInformation)
    def cluster_state(self, peer: Peer, message_id: int, message: NotifyClusterInformation) -> None:
        if message.state is ClusterState.STOPPING:
            self._events.end(f"the cluster stops: told by master {self._link.name}")

    @on(NotifyNodeInformation)
    def nodes(self, peer: Peer, message_id: int, message: NotifyNodeInformation) -> None:
        bind = self._member.bind
        if any(row[1] == bind and row[3] is NodeState.DOWN for row in message.node_list):
            self._events.end(f"this master ends: told by master {self._link.name}")

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, message: FlushLog) -> None:
        self._core.host.reopen_logs()

    def _heard(self) -> None:
        self._link.heard = self._core.host.monotonic()


class MasterLink:
    """The link to one other master. ``name``: as in the log."""

    def __init__(self, core: Core, member: LocalMember, events: Events, address: Address) -> None:
        self.address = address
        self.name = format_address(address)
        #: When it was heard last, on any connection that it dialed.
        self.heard: float | None = None
        #: The last state of its log that it announced.
        self.state: NotifyLogState | None = None
        #: The state was announced since the last lost connection; an older one may be obsolete.
        self.current = False
        self._core = core
        self._member = member
        self._events = events
        #: Messages can be sent.
        self.up = False
        self._peer: Peer | None = None
        self._dialed = -PAUSE_SECONDS
        self._state_sent = 0.0
        self._unconfirmed = 0
        self._confirming = False

    def node(self) -> Node:
        """Return the master as a node."""
        nid = self._member.nid_of(self.name)
        return Node(NodeType.MASTER, nid, self.address, NodeState.RUNNING)

    def alive(self, now: float) -> bool:
        """Return whether the master was heard lately."""
        return self.heard is not None and now - self.heard < SILENCE_SECONDS

    def tick(self, now: float) -> None:
        if self._peer is None:
            if now - self._dialed >= PAUSE_SECONDS:
                self._dial(now)
        elif not self.up:
            if now - self._dialed > DIAL_SECONDS:
                self.close()
        elif now - self._dialed > SILENCE_SECONDS and not self.alive(now):
            self.close()
        elif now - self._state_sent >= STATE_SECONDS:
            self.send_state()

    def send_state(self) -> None:
        self._state_sent = self._core.host.monotonic()
        self.send(self._member.state())

    def send(self, message: Message) -> None:
        """Send, or drop the message if the link is down."""
        if self.up and self._peer is not None:
            self._peer.send(message)

    def send_log(self, packets: list[bytes]) -> None:
        """Send messages of the log; drop them also if the master has not read earlier ones."""
        if not self.up or self._peer is None or self._unconfirmed > WINDOW_BYTES:
            return
        self._unconfirmed += sum(map(len, packets))
        self._peer.send(NotifyLog(packets))
        if self._unconfirmed > WINDOW_BYTES // 2 and not self._confirming:
            self._confirming = True
            confirmed = self._unconfirmed
            self._peer.ask(Ping()).then(lambda answer: self._confirmed(answer, confirmed))

    def _confirmed(self, answer: Future[Pong], size: int) -> None:
        self._confirming = False
        try:
            answer.result()
        except ConnectionLost:
            return
        self._unconfirmed -= size

    def _dial(self, now: float) -> None:
        member = self._member
        self._dialed = now
        peer = self._peer = self._core.dial(self.address, _Dialed(self))
        request = RequestIdentification(
            node_type=NodeType.MASTER,
            nid=member.nid,
            address=member.bind,
            name=member.cluster,
            id_timestamp=None,
            extra={FEATURES: [FEATURE_OURS]},
        )
        peer.ask(request).then(lambda answer: self._identified(peer, answer))

    def _identified(self, peer: Peer, answer: Future[AcceptIdentification]) -> None:
        try:
            answer.result()
        except ConnectionLost:
            return  # lost() is called
        except ErrorAnswer as e:
            report = f"master {self.name} refuses the connection: {e}"
            if (more := self._core.log_throttle.admit(report)) is not None:
                logger.warning("%s%s", report, more)
            if self._peer is peer:
                self.close()

    def established(self, peer: Peer) -> None:
        if peer is not self._peer or self.up:
            return
        self.up = True
        peer.node = self.node()
        self._unconfirmed = 0
        self._confirming = False
        # Restart the timeout of silence, for the other master may just have lost contact.
        self._dialed = self._core.host.monotonic()
        self.send_state()
        self._events.reached(self)

    def lost(self, peer: Peer, reason: str) -> None:
        if peer is not self._peer:
            return
        was_ready = self.up
        self._peer, self.up, self.current = None, False, False
        now = self._core.host.monotonic()
        if was_ready:
            logger.warning("lost the connection to master %s: %s", self.name, reason)
            self._dial(now)
        else:
            self._events.refused(self)

    def close(self) -> None:
        peer, self._peer, self.up, self.current = self._peer, None, False, False
        if peer is not None:
            peer.close()


class MasterLinks:
    """Links to all other masters: members, configured masters, and masters that dialed this one."""

    def __init__(self, core: Core, member: LocalMember, events: Events) -> None:
        self._core = core
        self._member = member
        self._events = events
        self._links: dict[str, MasterLink] = {}

    def __iter__(self) -> Iterator[MasterLink]:
        return iter(list(self._links.values()))

    def get(self, name: str) -> MasterLink | None:
        return self._links.get(name)

    def of(self, address: Address) -> MasterLink | None:
        return self._links.get(format_address(address))

    def want(self, addresses: Iterable[Address]) -> None:
        """Create links to these addresses."""
        for address in addresses:
            name = format_address(address)
            if address != self._member.bind and name not in self._links:
                link = MasterLink(self._core, self._member, self._events, address)
                self._links[name] = link

    def tick(self, wanted: set[str], now: float) -> None:
        """Drive all links. Drop idle links to masters that are not in ``wanted``."""
        for name, link in list(self._links.items()):
            link.tick(now)
            if name not in wanted and not link.up and not link.alive(now):
                link.close()
                del self._links[name]

    def broadcast(self, message: Message) -> None:
        for link in self._links.values():
            link.send(message)

    def accept(self, peer: Peer, message_id: int, request: RequestIdentification) -> None:
        """Accept or refuse a master that dialed this one."""
        known = request.address is not None and self.of(request.address) is not None
        try:
            link = self._check(request)
        except ErrorAnswer as e:
            logger.warning("%r may not join: %s", peer, e)
            peer.refuse(message_id, e.code, e.message)
            peer.close()
            return
        peer.welcome()
        if known:  # a member, or a configured master
            peer.trust()
        peer.handler = FromMaster(self._core, self._member, self._events, link)
        peer.node = link.node()
        answer = AcceptIdentification(NodeType.MASTER, self._member.nid, peer.node.nid)
        peer.answer(message_id, answer)
        peer.send(NotifyFeatures([FEATURE_OURS]))
        link.heard = self._core.host.monotonic()

    def _check(self, request: RequestIdentification) -> MasterLink:
        features = request.extra.get(FEATURES)
        if not isinstance(features, list) or FEATURE_OURS not in features:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                "the masters of this cluster keep a log together: give all of them the same 'masters'",
            )
        address = request.address
        if address is None or address == self._member.bind:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, "address conflict: a master must have one of its own"
            )
        if len(self._links) < LINKS_MAX:
            self.want([address])
        link = self._links.get(format_address(address))
        if link is None:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"this master has links to {LINKS_MAX} others already"
            )
        return link
