"""Waits for answers to reads, bounded by ``wait-timeout`` if a commit delays them.

A storage node delays a read while a transaction is locked that it may concern (specification 6.6, 6.7).
That is short, unless a synchronous backup is away for which commits wait. A node may also answer late
because its disk is slow. So the client asks the node which transactions delay the read, and waits on if
there are none. A node that does not answer that either is silent (specification 16.37).
"""

from __future__ import annotations

from neo.client.connect.connections import Backoff, Connections
from neo.client.connect.storages import StorageConnections
from neo.client.errors import UnavailableError
from neo.net.channel import Channel, DeadlinePassed, Ticket
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import INVALID_OID, ZERO_TID
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    AskLockHolders,
    AskObject,
    HolderRow,
    Ping,
    Request,
)


def wait_longer(
    connections: Connections,
    storages: StorageConnections,
    nid: int,
    channel: Channel,
    message: Request[A],
    ticket: Ticket[A],
) -> A:
    """Return the answer to a read that was not answered within ``wait-timeout``. Raise UnavailableError
    if commits delay it, or if the node is silent; the errors of the channel's wait()."""
    host, timeout = connections.host, connections.settings.wait_timeout
    oid = message.oid if isinstance(message, AskObject) else INVALID_OID
    over = connections.backoff(host.now() - timeout)
    while True:
        delaying = _delaying(storages, nid, channel, oid, over)
        if delaying and not ticket.done:
            raise UnavailableError(_describe(oid, delaying, timeout))
        try:
            return channel.wait(ticket, host.now() + timeout)
        except DeadlinePassed:
            pass


def _delaying(
    storages: StorageConnections, nid: int, channel: Channel, oid: bytes, over: Backoff
) -> list[HolderRow]:
    """Return the transactions that delay a read; none if the node cannot tell. Raise UnavailableError."""
    try:
        over.probe(channel, Ping())  # the features of the node have come before the answer
        if FEATURE_OURS not in storages.announced(nid):
            return []
        return over.probe(channel, AskLockHolders(ZERO_TID, oid)).holder_list
    except (ConnectionLost, ErrorAnswer):
        return []  # the ticket fails with the same connection


def _describe(oid: bytes, delaying: list[HolderRow], timeout: float) -> str:
    what = "what is read" if oid == INVALID_OID else f"object 0x{oid.hex()}"
    by = ", ".join(f"0x{ttid.hex()}" for ttid, *_ in delaying)
    return (
        f"{what} could not be read for {timeout:g} s, because transaction {by} is being committed;"
        " a synchronous standby may hold commits: see 'neoctl print backups';"
        " 'neoctl set sync NAME off' lets them go on without it"
    )
