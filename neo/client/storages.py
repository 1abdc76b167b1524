"""Connections to storage nodes, made on demand."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from neo.client.connections import LOST, Connections
from neo.client.errors import NEOStorageError
from neo.client.master import Joined, MasterConnection
from neo.net.channel import Channel
from neo.net.sockets import format_address
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    FEATURE_OIDS,
    FEATURES,
    FlushLog,
    Message,
    NotifyFeatures,
    Ping,
    RequestIdentification,
)

logger = logging.getLogger("neo.client")


class StorageHandler:
    """The handler of the channel to a storage node."""

    def __init__(self) -> None:
        self.features: frozenset[str] = frozenset()
        #: Whether all of them have arrived.
        self.complete = False

    def lost(self, channel: Channel, reason: str) -> None:
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
        self._dialing: dict[int, AbstractContextManager[object]] = {}

    def channel(self, nid: int) -> Channel:
        """Return a channel to a storage node. Raise the errors of LOST, ErrorAnswer."""
        channel = self._channels.get(nid)
        if channel is not None and channel.lost is None:
            return channel
        joined = self._master.joined()
        with self._dialing.setdefault(nid, self._connections.host.lock()):
            channel = self._channels.get(nid)
            if channel is None or channel.lost is not None:
                channel = self._dial(nid, joined)
            return channel

    def _dial(self, nid: int, joined: Joined) -> Channel:
        self._connections.check_open()
        address = joined.handler.view.addresses.get(nid)
        if address is None:
            raise ConnectionLost(self._connections.why_lost(nid))
        handler = StorageHandler()
        name = f"{format_nid(nid)} {format_address(address)}"
        channel = self._connections.open(address, handler, name)
        try:
            request = RequestIdentification(
                NodeType.CLIENT, joined.nid, None, self._connections.settings.cluster,
                joined.handler.id_timestamp(joined.nid), {FEATURES: [FEATURE_OIDS]},
            )  # fmt: skip
            accepted = self._connections.identify(channel, request, NodeType.STORAGE)
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
        self._handlers[nid] = handler
        self._channels[nid] = channel
        if self._master.current is not joined or self._connections.closed:
            channel.close("the client joined the cluster again")
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
                    found[nid] = self.channel(nid)
            except (*LOST, ErrorAnswer, NEOStorageError) as e:
                logger.info("no storage node can be asked now: %s", e)
        return found

    def announced(self, nid: int) -> frozenset[str]:
        """Return the features that a storage node has announced so far."""
        handler = self._handlers.get(nid)
        return frozenset() if handler is None else handler.features

    def features(self, nid: int) -> frozenset[str]:
        """Return the features of a storage node. Raise the errors of channel()."""
        # A node announces its features after it accepts; they have arrived when it answers a Ping.
        channel = self.channel(nid)
        handler = self._handlers[nid]
        if not handler.complete:
            channel.call(Ping())
            handler.complete = True
        return handler.features

    def forked(self) -> list[Channel]:
        """Forget the parent's connections and return its channels. Call in the child of a fork."""
        channels = list(self._channels.values())
        self._channels.clear()
        self._handlers.clear()
        self._dialing = {}
        return channels
