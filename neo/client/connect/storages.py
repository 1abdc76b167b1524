"""Connections to storage nodes, made on demand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from neo.client.connect.connections import (
    ATTEMPT_PART,
    IDENTIFY_SECONDS,
    LOST,
    Backoff,
    Connections,
)
from neo.client.connect.master import Joined, MasterConnection
from neo.client.errors import NEOStorageError
from neo.net.channel import Channel
from neo.net.host import Lock
from neo.net.sockets import format_address
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    Address,
    FlushLog,
    Message,
    NotifyFeatures,
    Ping,
    RequestIdentification,
)

logger = logging.getLogger("neo.client")

#: A node that was silent is avoided for this time, if another one can be asked.
SUSPECTED_SECONDS = 10.0
#: Timeout of the attempt to connect to any node only to ask for its size.
MOMENT_SECONDS = 1.0


class StorageHandler:
    """The handler of the channel to a storage node."""

    def __init__(self, nid: int, suspects: dict[int, float], now: Callable[[], float]) -> None:
        self._nid = nid
        self._suspects = suspects
        self._now = now
        self.features: frozenset[str] = frozenset()
        #: Whether all of them have arrived.
        self.complete = False

    def lost(self, channel: Channel, reason: str) -> None:
        if channel.silent:
            self._suspects[self._nid] = self._now() + SUSPECTED_SECONDS
        logger.info("connection to storage node %s ended: %s", channel.name, reason)

    def notified(self, channel: Channel, message: Message) -> None:
        if isinstance(message, NotifyFeatures):
            self.features = frozenset(message.features)
        elif not isinstance(message, FlushLog):
            raise PeerError(f"unexpected {type(message).__name__}")


class StorageConnections:
    """One connection to each storage node, opened on demand. Thread-safe."""

    def __init__(self, connections: Connections, master: MasterConnection) -> None:
        self._connections = connections
        self._master = master
        self._channels = connections.storages
        self._handlers: dict[int, StorageHandler] = {}
        self._dialing: dict[int, Lock] = {}
        #: Nodes that were silent, and until when they are avoided.
        self.suspects: dict[int, float] = {}

    def backoff(self) -> Backoff:
        """Return pauses for attempts that begin now."""
        return self._connections.backoff()

    def choose(self, nids: Sequence[int]) -> int:
        """Return a random node to read from. Choose a node that was silent only if there is no other."""
        if self.suspects:
            now = self._connections.host.now()
            nids = [nid for nid in nids if self.suspects.get(nid, 0.0) <= now] or nids
        return self._connections.host.choose(nids)

    def channel(self, nid: int, backoff: Backoff | None = None) -> Channel:
        """Return a channel to a storage node. Raise the errors of LOST, ErrorAnswer, those of
        MasterConnection.joined()."""
        channel = self._channels.get(nid)
        if channel is not None and channel.lost is None:
            return channel
        backoff = backoff or self._connections.backoff()
        joined = self._master.joined(backoff)
        dialing = self._dialing.setdefault(nid, self._connections.host.lock())
        waits = dialing.locked()
        with dialing:
            channel = self._channels.get(nid)
            if channel is None or channel.lost is not None:
                if waits:
                    backoff.check(f"{format_nid(nid)} could not be reached")
                channel = self._dial(nid, joined, backoff)
            return channel

    def _dial(self, nid: int, joined: Joined, backoff: Backoff) -> Channel:
        self._connections.check_open()
        address = joined.handler.view.addresses.get(nid)
        if address is None:
            raise ConnectionLost(self._connections.why_lost(nid))
        host, settings = self._connections.host, self._connections.settings
        handler = StorageHandler(nid, self.suspects, host.now)
        name = f"{format_nid(nid)} {format_address(address)}"
        deadline = backoff.attempt(min(IDENTIFY_SECONDS, ATTEMPT_PART * settings.wait_timeout))
        try:
            channel = self._identified(nid, joined, address, handler, name, deadline)
        except TimeoutError:
            self.suspects[nid] = host.now() + SUSPECTED_SECONDS
            raise
        self.suspects.pop(nid, None)
        self._handlers[nid] = handler
        self._channels[nid] = channel
        if self._master.current is not joined or self._connections.closed:
            channel.close("the client joined the cluster again")
        return channel

    def _identified(
        self,
        nid: int,
        joined: Joined,
        address: Address,
        handler: StorageHandler,
        name: str,
        deadline: float,
    ) -> Channel:
        """Return a new channel to a node that accepted this client."""
        connections = self._connections
        left = deadline - connections.host.now()
        channel = connections.open(address, handler, name, connections.patience, left)
        try:
            request = RequestIdentification(
                NodeType.CLIENT, joined.nid, None, connections.settings.cluster,
                joined.handler.id_timestamp(joined.nid), {FEATURES: [FEATURE_OURS]},
            )  # fmt: skip
            accepted = connections.identify(channel, request, NodeType.STORAGE, deadline)
            if accepted.nid != nid:
                raise ConnectionLost(f"{channel.name} is {format_nid(accepted.nid)}")
            if accepted.your_nid != joined.nid:
                raise ConnectionLost(
                    f"{channel.name} accepted {format_nid(accepted.your_nid)},"
                    f" not {format_nid(joined.nid)}"
                )
        except BaseException:
            channel.close("identification failed")
            raise
        return channel

    def connected(self) -> dict[int, Channel]:
        """Return the open channels by node id. If there is none, open one, unless that fails. Does not
        wait for an unreachable cluster."""
        found = {nid: c for nid, c in list(self._channels.items()) if c.lost is None}
        joined = self._master.current
        if not found and joined is not None and joined.channel.lost is None:
            nids = list(joined.handler.view.addresses)
            try:
                if nids:
                    nid = self._connections.host.choose(nids)
                    begin = self._connections.host.now() + MOMENT_SECONDS
                    timeout = self._connections.settings.wait_timeout
                    found[nid] = self.channel(nid, self._connections.backoff(begin - timeout))
            except (*LOST, ErrorAnswer, NEOStorageError) as e:
                logger.info("no storage node can be asked now: %s", e)
        return found

    def announced(self, nid: int) -> frozenset[str]:
        """Return the features that a storage node has announced so far."""
        handler = self._handlers.get(nid)
        return frozenset() if handler is None else handler.features

    def features(self, nid: int, backoff: Backoff | None = None) -> frozenset[str]:
        """Return the features of a storage node. Raise the errors of channel()."""
        # A node announces its features after it accepts; they have arrived when it answers a Ping.
        backoff = backoff or self._connections.backoff()
        channel = self.channel(nid, backoff)
        handler = self._handlers[nid]
        if not handler.complete:
            backoff.answer(channel, channel.ask(Ping()))
            handler.complete = True
        return handler.features

    def forked(self) -> list[Channel]:
        """Forget the parent's connections and return its channels. Call in the child of a fork."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._handlers.clear()
        self._dialing = {}
        return channels
