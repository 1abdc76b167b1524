"""The errors of a client, and the largest object that it sends."""

from __future__ import annotations

import pytest
from transaction.interfaces import TransientError
from ZODB.POSException import ReadOnlyError, StorageError

from neo.client import errors
from neo.client.errors import (
    NEOStorageError,
    RegroupedError,
    TransactionLostError,
    UnavailableError,
    refusal,
)
from neo.client.read import records
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer


def test_errors_are_those_of_zodb_and_some_may_be_tried_again() -> None:
    """Specification 16.24."""
    own = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, NEOStorageError)
    }
    assert set(own) == {
        *("NEOStorageError", "ConfigurationError", "RefusedError", "ClosedError", "CorruptedError"),
        *("UnavailableError", "RegroupedError", "TransactionLostError", "OutcomeUnknownError"),
    }
    assert all(issubclass(kind, StorageError) for kind in own.values())
    transient = {kind for kind in own.values() if issubclass(kind, TransientError)}
    assert transient == {UnavailableError, RegroupedError, TransactionLostError}


@pytest.mark.parametrize("code", ErrorCode)
def test_a_refusal_in_a_commit_has_the_error_of_its_code(code: ErrorCode) -> None:
    """Specification 16.25."""
    expected = {
        ErrorCode.READ_ONLY_ACCESS: ReadOnlyError,
        ErrorCode.INCOMPLETE_TRANSACTION: TransactionLostError,
        ErrorCode.NOT_READY: TransactionLostError,
    }
    error = refusal("the vote", ErrorAnswer(code, "text"))
    assert type(error) is expected.get(code, NEOStorageError)
    assert str(error).startswith("the vote: ")


def test_the_largest_object() -> None:
    """Specification 16.28."""
    assert records.LARGEST_BYTES == (512 << 20) - 4096
