"""Errors of the client. Those that ZODB does not define derive from :class:`NEOStorageError`.

Errors that a later attempt may not meet are also TransientErrors, so that web frameworks retry.
"""

from __future__ import annotations

from transaction.interfaces import TransientError
from ZODB.POSException import ConflictError, ReadConflictError, ReadOnlyError, StorageError

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer


class NEOStorageError(StorageError):
    """The base class of the client's errors."""


class ConfigurationError(NEOStorageError, ValueError):
    """A setting is wrong; the message names it."""


class RefusedError(NEOStorageError):
    """The cluster refused the request; waiting does not help."""


class ClosedError(NEOStorageError):
    """The storage was closed."""


class CorruptedError(NEOStorageError):
    """No replica has data that matches its checksum."""


class UnavailableError(NEOStorageError, TransientError):
    """The cluster, or all replicas of an object, did not answer during ``wait-timeout``; or what is read
    was being committed all that time."""


class RegroupedError(NEOStorageError, TransientError):
    """The number of partitions was changed while partitions were read one after the other."""


class TransactionLostError(NEOStorageError, TransientError):
    """The transaction was not committed, because a node was lost during the commit."""


class OutcomeUnknownError(NEOStorageError):
    """The master was lost in tpc_finish or tpc_prepare, and no node could tell whether the transaction
    was committed, or prepared.

    Not transient: the application must look at the data before it repeats the transaction.
    """


class PreparedConflictError(ConflictError):
    """A prepared transaction holds the object until its coordinator decides; the message names it."""


class PreparedReadConflictError(PreparedConflictError, ReadConflictError):
    """A prepared transaction holds an object that this transaction only read."""


def prepared_conflict(error: ErrorAnswer, oid: bytes, checks: bool) -> PreparedConflictError:
    """Return the exception for an Error packet that begins with ``PREPARED_WORDS``."""
    kind = PreparedReadConflictError if checks else PreparedConflictError
    return kind(error.message, oid=oid)


def refused(what: str, error: ErrorAnswer) -> RefusedError:
    """Return the exception for an Error packet that the caller does not handle."""
    return RefusedError(f"{what}: {error}")


def refusal(what: str, error: ErrorAnswer) -> StorageError:
    """Return the exception for an Error packet that answers a step of a commit."""
    if error.code is ErrorCode.READ_ONLY_ACCESS:
        return ReadOnlyError(f"{what}: {error}")
    if error.code in (ErrorCode.INCOMPLETE_TRANSACTION, ErrorCode.NOT_READY):
        return TransactionLostError(f"{what}: {error}")
    return NEOStorageError(f"{what}: {error}")
