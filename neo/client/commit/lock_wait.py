"""Waits for locks, bounded by ``wait-timeout``: then a ConflictError names the transaction that holds it.

A storage node answers a store when its transaction holds the object's lock. Another transaction may hold
the lock for long: its client is stopped, in a debugger, or between tpc_vote and tpc_finish while another
data manager blocks. A storage node may also answer late for another reason, such as a slow disk, which is
no conflict. So the client asks the node whether a lock delays the request, and for how long. The node
answers in the order of the requests; a node that does not answer that either is silent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ZODB.POSException import ConflictError, ReadConflictError

from neo.client.commit.participants import Asked, Kind
from neo.client.connect.connections import LOST, PROBE_SECONDS, Connections
from neo.client.connect.storages import StorageConnections
from neo.net.channel import DeadlinePassed, Ticket
from neo.net.sockets import format_address
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import FEATURE_OURS, AskLockHolders, HolderRow, Ping


class LockWait:
    """One wait of the committing thread for the answers to its requests, one by one."""

    def __init__(
        self,
        connections: Connections,
        storages: StorageConnections,
        ttid: bytes,
        own: Callable[[bytes], bool],
    ) -> None:
        """``own``: whether a ttid is that of an open transaction of this client."""
        self._own = own
        self._host = connections.host
        self._storages = storages
        self._ttid = ttid
        self._timeout = connections.settings.wait_timeout
        self._deadline = self._host.now() + self._timeout
        #: The request of the current deadline. Needed only for nodes that do not know AskLockHolders.
        self._ticket: Ticket[Any] | None = None

    def wait(self, ticket: Ticket[Any]) -> None:
        """Return when the request is answered, refused or lost, or must be waited for again.

        Raise ConflictError, ReadConflictError; UnavailableError if the cluster is lost.
        """
        asked = ticket.context
        assert isinstance(asked, Asked)
        # Requests without an oid, such as a vote, wait for no lock.
        deadline = None if asked.oid is None else self._deadline
        if self._ticket is None:
            self._ticket = ticket
        try:
            asked.channel.wait(ticket, deadline)
        except (ConnectionLost, ErrorAnswer):
            pass  # the caller handles the ticket's result
        except DeadlinePassed:
            assert asked.oid is not None
            self._examine(ticket, asked, asked.oid)

    def _examine(self, ticket: Ticket[Any], asked: Asked, oid: bytes) -> None:
        """Raise ConflictError if a lock has delayed the request for too long, else set a new deadline."""
        try:
            asked.channel.call(Ping(), None, PROBE_SECONDS)  # its features have come before the answer
            known = FEATURE_OURS in self._storages.announced(asked.nid)
            question = AskLockHolders(self._ttid, oid)
            blocked = asked.channel.call(question, None, PROBE_SECONDS) if known else None
        except (*LOST, ErrorAnswer):
            known, blocked = True, None  # the ticket fails with the same connection, if the node is lost
        waited: float | None = None
        holders: list[HolderRow] = []
        if blocked is not None:
            waited, holders = blocked.waited, blocked.holder_list
        elif not known and self._ticket is ticket:
            waited = self._timeout
        self._ticket = ticket
        if not ticket.done and waited is not None and waited >= self._timeout:
            raise self._conflict(asked, oid, waited, holders)
        self._deadline = self._host.now() + self._timeout - (waited or 0.0)

    def _conflict(
        self, asked: Asked, oid: bytes, waited: float, holders: list[HolderRow]
    ) -> ConflictError:
        checks = asked.change is not None and asked.change.kind is Kind.CHECK
        error: type[ConflictError] = ReadConflictError if checks else ConflictError
        by = "; ".join(map(self._describe, holders)) or "which transaction holds it is not known"
        return error(
            f"the object is locked by another transaction for {waited:.0f} s: {by}", oid=oid
        )

    def _describe(self, holder: HolderRow) -> str:
        """Return a description of a transaction that holds a lock."""
        ttid, nid, address, age, phase = holder
        where = "not connected" if address is None else format_address(address)
        if self._own(ttid):
            return (
                f"transaction 0x{ttid.hex()}, which holds it, belongs to this process, to another"
                f" connection of ZODB, and is {phase}: commit or abort that one"
            )
        return (
            f"{format_nid(nid)} ({where}) holds it with transaction 0x{ttid.hex()}, which began"
            f" {age:.0f} s ago and is {phase}; 'neoctl end 0x{ttid.hex()}' ends it"
        )
