"""The open transactions of a client."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from ZODB.POSException import StorageTransactionError

logger = logging.getLogger("neo.client")


class Registered(Protocol):
    """An open transaction. The thread that leads on the master's channel calls these methods."""

    @property
    def metadata(self) -> Any: ...

    @property
    def imposed(self) -> bytes | None:
        """The tid of a copied transaction."""

    @property
    def changes(self) -> Mapping[bytes, object]: ...

    def rebase(self, locking_tid: bytes) -> None: ...

    def ended_by_operator(self) -> None: ...

    def stop(self) -> bool: ...


T = TypeVar("T", bound=Registered)


class TransactionRegistry(Generic[T]):
    """The open transactions of a client, and what the master tells them. Thread-safe."""

    def __init__(self) -> None:
        #: By the identity of ZODB's transaction, from tpc_begin on.
        self.begun: dict[int, T] = {}
        self._by_ttid: dict[bytes, T] = {}

    def check_alone(self, metadata: Any, oid: bytes) -> None:
        """Raise StorageTransactionError if another connection of ZODB changed or checked the object in
        the same transaction of the application: this one would wait for its lock, and so for itself."""
        # ZODB gives all connections the extension of the application's transaction. That of a copied
        # one is data of others, which is not decoded here.
        extension = getattr(metadata, "extension", None)
        if not isinstance(extension, dict):
            return
        for other in list(self.begun.values()):
            if other.metadata is not metadata and other.imposed is None and oid in other.changes:
                if getattr(other.metadata, "extension", None) is extension:
                    raise StorageTransactionError(
                        f"object {oid.hex()} is changed or checked by two connections of ZODB in one"
                        " transaction, which would wait for each other: change it through one of them"
                    )

    def own(self, ttid: bytes) -> bool:
        """Return whether an open transaction of this client has this ttid."""
        return ttid in self._by_ttid

    def add(self, ttid: bytes, transaction: T) -> None:
        """Tell a transaction from now on what the master tells about its ttid."""
        self._by_ttid[ttid] = transaction

    def remove(self, ttid: bytes, transaction: T) -> None:
        """Stop telling a transaction. Another one may have its ttid: a new master whose clock is behind
        may allocate the ttids of aborted transactions again."""
        if self._by_ttid.get(ttid) is transaction:
            del self._by_ttid[ttid]

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        """Handle NotifyDeadlock."""
        transaction = self._by_ttid.get(ttid)
        if transaction is not None:
            transaction.rebase(locking_tid)

    def ended_by_operator(self, ttid: bytes) -> None:
        """Handle NotifyTransactionEnded."""
        transaction = self._by_ttid.get(ttid)
        if transaction is not None:
            transaction.ended_by_operator()

    def stop(self) -> None:
        """Abort transactions in their first phase: the cluster stops when no transaction is left."""
        stopped = sum(transaction.stop() for transaction in list(self.begun.values()))
        logger.warning("the cluster stops; transactions aborted: %s", stopped)

    def clear(self) -> None:
        """Forget the parent's transactions. Call in the child of a fork."""
        self.begun.clear()
        self._by_ttid.clear()
