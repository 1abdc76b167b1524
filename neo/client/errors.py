"""Errors of the client. All that is not one of ZODB's own is a :class:`NEOStorageError`.

Those that go away by themselves are also TransientErrors: ``transaction`` and web frameworks retry.
"""

from __future__ import annotations

from transaction.interfaces import TransientError
from ZODB.POSException import ReadOnlyError, StorageError

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer


class NEOStorageError(StorageError):
    """The base of all."""


class ConfigurationError(NEOStorageError, ValueError):
    """A setting is wrong; the message names it."""


class RefusedError(NEOStorageError):
    """The cluster answered that it will not do this; waiting does not help."""


class ClosedError(NEOStorageError):
    """The storage was closed."""


class CorruptedError(NEOStorageError):
    """No replica has data that matches its checksum."""


class UnavailableError(NEOStorageError, TransientError):
    """The cluster, or all replicas of an object, did not answer during ``wait-timeout``."""


class TransactionLostError(NEOStorageError, TransientError):
    """A node was lost during the commit and the transaction was not committed."""


class OutcomeUnknownError(NEOStorageError):
    """The master was lost in tpc_finish, and nobody could tell whether the transaction was committed.
    Not transient: what may be there already must not be done again without a look."""


def refused(what: str, error: ErrorAnswer) -> RefusedError:
    """For an Error packet that no caller knows what to do with."""
    return RefusedError(f"{what}: {error}")


def refusal(what: str, error: ErrorAnswer) -> StorageError:
    """The exception for an Error packet that answers a step of a commit."""
    if error.code is ErrorCode.READ_ONLY_ACCESS:
        return ReadOnlyError(f"{what}: {error}")
    if error.code in (ErrorCode.INCOMPLETE_TRANSACTION, ErrorCode.NOT_READY):
        return TransactionLostError(f"{what}: {error}")
    return NEOStorageError(f"{what}: {error}")
