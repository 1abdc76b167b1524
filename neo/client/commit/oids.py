"""New oids, which the master allocates in ranges."""

from __future__ import annotations

from typing import Protocol

from neo.client.connect.connections import Backoff, Connections
from neo.client.connect.master import MasterConnection
from neo.client.errors import TransactionLostError, refusal
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_OID, u64
from neo.protocol.packets import AskNewOIDs

#: Oids that are requested from the master at once.
OIDS = 100
#: Oids that a master gives in one answer, at most.
OIDS_MAX = 100_000


class Begun(Protocol):
    @property
    def master(self) -> object:
        """The channel to the master that began the transaction."""


class NewOids:
    """Thread-safe."""

    def __init__(self, connections: Connections, master: MasterConnection) -> None:
        self._connections = connections
        self._master = master
        self._lock = connections.host.lock()
        self._oids: list[bytes] = []
        #: The master that allocated these oids, and the first oid of its range.
        self._oids_of: object = None
        self._oids_from = ZERO_OID
        #: The least and the greatest oid that the application was given.
        self._first: bytes | None = None
        self._last = ZERO_OID

    def new(self) -> bytes:
        """Return an oid that was never given before. Raise the errors of MasterConnection.ask()."""
        backoff = self._connections.backoff()
        with self._lock:
            master = self._master.channel(backoff)
            if not self._oids or self._oids_of is not master:
                # Another master may give the rest of these oids to other clients.
                self._oids = self._ask(backoff)
                if self._oids_of is not master:
                    self._oids_of, self._oids_from = master, self._oids[-1]
            self._last = self._oids.pop()
            self._first = self._first or self._last
            return self._last

    def check(self, begun: Begun, oid: bytes) -> None:
        """Check the oid of a new object. Raise TransactionLostError if the transaction belongs to another
        master than the one that allocated the oid: that master may have given it to another client."""
        master = begun.master
        with self._lock:
            ours = self._first is not None and self._first <= oid <= self._last
            if ours and (self._oids_of is not master or oid < self._oids_from):
                raise TransactionLostError(
                    f"the master that allocated the oid of the new object {oid.hex()} was lost"
                )

    def _ask(self, backoff: Backoff) -> list[bytes]:
        """Return new oids in descending order. Skip oids that this client was already given: a master
        that was restarted allocates oids again that were not committed."""
        count = OIDS
        while True:
            try:
                answer = self._master.ask(AskNewOIDs(count), backoff)
            except ErrorAnswer as e:
                raise refusal("no new oids", e) from None
            oids = sorted((oid for oid in answer.oid_list if oid > self._last), reverse=True)
            if oids:
                return oids
            backoff.check("the master allocates oids that are in use")
            count = min(OIDS + u64(self._last) - u64(min(answer.oid_list)), OIDS_MAX)
